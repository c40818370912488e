"""`pub`, `sub` and `bench` against a broker in a process of its own, started by `serve` as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.commands.bench import Plan, Tally, percentile, summarize
from millstream.commands.connection import MqttVersion, find_target
from millstream.commands.outcome import CommandFailed
from millstream.commands.publish import make_properties
from millstream.commands.subscribe import as_dict
from millstream.commands.tree import app
from millstream.protocols.mqtt.wire.packets import Publish

ACL = "default: allow\nrules:\n  - deny: all\n    topics: ['closed/#']\n"


class Serving:
    """A `millstream serve` process: its addresses, its log."""

    def __init__(self, directory: Path) -> None:
        (directory / "acl.yaml").write_text(ACL)
        (directory / "a.yaml").write_text(
            "mqtt:\n  port: 0\nwebsocket:\n  port: 0\namqp:\n  port: 0\nauth:\n  acl_file: acl.yaml\nlog:\n  format: json\n"
        )
        self.directory = directory
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "serve", "--config", "a.yaml", "--ready-file", "ready.json"],
            cwd=directory,
            env=clean,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline().strip() for _ in range(3)]
        self.urls = dict(line.split(" ", 1) for line in self.lines)
        self.wait_event("ready")

    def wait_event(self, event: str) -> dict[str, object]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            fields: dict[str, object] = json.loads(line)
            if fields["event"] == event:
                return fields
        raise AssertionError(f"the broker ended without {event}")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("serving"))
    yield serving
    serving.process.terminate()
    serving.process.communicate(timeout=30)


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=text)


def test_serve_prints_its_addresses_and_writes_them_to_the_ready_file(serving: Serving) -> None:
    listeners = json.loads((serving.directory / "ready.json").read_text())["listeners"]
    assert serving.lines == [
        f"mqtt mqtt://127.0.0.1:{listeners['mqtt']['port']}",
        f"websocket ws://127.0.0.1:{listeners['websocket']['port']}/mqtt",
        f"amqp amqp://127.0.0.1:{listeners['amqp']['port']}",
    ]


@pytest.mark.parametrize("listener", ["mqtt", "websocket"])
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_retained_message_goes_from_pub_to_sub(serving: Serving, listener: str, version: str) -> None:
    url = ("--url", serving.urls[listener], "--mqtt-version", version)
    topic = f"plant/{listener}/{version}"
    assert run("pub", topic, "21.5 °C", "--retain", "-q", "1", *url).exit_code == 0
    received = run("sub", topic, "-n", "1", "--timeout", "20", "-q", "1", "-o", "json", *url)
    assert received.exit_code == 0
    message = json.loads(received.stdout)
    assert message == {"topic": topic, "qos": 1, "retain": True, "payload": "21.5 °C"}


def test_properties_travel_with_the_message(serving: Serving) -> None:
    url = ("--url", serving.urls["mqtt"])
    options = (
        "--property",
        "a=1",
        "--property",
        "a=2=3",
        "--content-type",
        "text/plain",
        "--response-topic",
        "r",
    )
    assert run("pub", "props", "x", "--retain", *options, *url).exit_code == 0
    message = json.loads(run("sub", "props", "-n", "1", "--timeout", "20", "-o", "json", *url).stdout)
    assert message["properties"] == [["a", "1"], ["a", "2=3"]]
    assert (message["content_type"], message["response_topic"]) == ("text/plain", "r")


def test_every_line_of_a_pipe_is_a_message(serving: Serving) -> None:
    result = run(
        "pub", "lines", "--lines", "-q", "2", "--url", serving.urls["mqtt"], "-o", "json", text="a\nb\n\nc\n"
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout)["published"] == 4


def test_an_empty_message_clears_what_is_retained(serving: Serving) -> None:
    url = ("--url", serving.urls["mqtt"])
    run("pub", "cleared", "x", "--retain", "-q", "1", *url)
    assert run("pub", "cleared", "--empty", "--retain", "-q", "1", *url).exit_code == 0
    short = run("sub", "cleared", "-n", "1", "--timeout", "0.2", *url)
    assert short.exit_code == 1
    assert "Fewer messages" in short.stderr


def test_sub_without_a_count_ends_well_after_its_time(serving: Serving) -> None:
    assert run("sub", "quiet", "--timeout", "0.1", "--url", serving.urls["mqtt"]).exit_code == 0


def test_a_payload_goes_from_file_to_output_byte_for_byte(serving: Serving, tmp_path: Path) -> None:
    url = ("--url", serving.urls["mqtt"])
    (tmp_path / "payload").write_bytes(bytes(range(256)))
    assert (
        run("pub", "bytes", "--file", str(tmp_path / "payload"), "--retain", "-q", "1", *url).exit_code == 0
    )
    plain = run("sub", "bytes", "-n", "1", "--timeout", "20", "--payload-only", *url)
    assert plain.stdout_bytes == bytes(range(256)) + b"\n"
    fields = json.loads(run("sub", "bytes", "-n", "1", "--timeout", "20", "-o", "json", *url).stdout)
    assert "payload" not in fields
    assert fields["payload_base64"].startswith("AAEC")


def test_a_refused_publish_and_subscription_end_with_code_4_and_how_to_find_out(serving: Serving) -> None:
    url = ("--url", serving.urls["mqtt"])
    published = run("pub", "closed/x", "x", "-q", "1", *url)
    assert published.exit_code == 4
    assert "next: millstream acl check anonymous publish 'closed/x'" in published.stderr
    subscribed = run("sub", "closed/#", *url)
    assert subscribed.exit_code == 4
    assert "next: millstream acl check anonymous subscribe 'closed/#'" in subscribed.stderr


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_bench_counts_what_it_sent_and_received(serving: Serving, qos: str) -> None:
    options = ("-n", "300", "-p", "3", "-s", "2", "-q", qos, "--url", serving.urls["mqtt"], "-o", "json")
    result = run("bench", *options)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["published"], report["received"], report["missing"], report["refused"]) == (300, 600, 0, 0)
    assert 0 < report["latency_p50_ms"] <= report["latency_p99_ms"] <= report["latency_max_ms"]


def test_bench_shows_a_table_to_people(serving: Serving) -> None:
    result = run("bench", "--duration", "0.1", "-q", "1", "--url", serving.urls["mqtt"])
    assert result.exit_code == 0
    assert "latency p99 ms" in result.stdout


def test_sighup_reads_the_configuration_again_and_tells_what_needs_a_restart(serving: Serving) -> None:
    file = serving.directory / "a.yaml"
    before = file.read_text()
    file.write_text(
        before.replace("format: json", "format: json\n  level: debug").replace("port: 0", "port: 7", 1)
    )
    serving.process.send_signal(signal.SIGHUP)
    reloaded = serving.wait_event("config_reloaded")
    assert (reloaded["applied"], reloaded["needs_restart"]) == (["log.level"], ["mqtt.port"])
    file.write_text("nonsense: 1\n")
    serving.process.send_signal(signal.SIGHUP)
    assert "nonsense is not a known key" in str(serving.wait_event("config_not_reloaded")["reason"])
    began = serving.wait_event("condition_began")
    assert (began["condition"], "nonsense" in str(began["cause"])) == ("config_stale", True)
    assert run("pub", "still", "there", "-q", "1", "--url", serving.urls["mqtt"]).exit_code == 0
    file.write_text(before)
    serving.process.send_signal(signal.SIGHUP)
    assert serving.wait_event("condition_ended")["condition"] == "config_stale"
    assert serving.wait_event("config_reloaded")["applied"] == ["log.level"]


def test_nobody_there_ends_with_code_3() -> None:
    result = run("pub", "t", "x", "--url", "mqtt://127.0.0.1:1")
    assert result.exit_code == 3
    assert "127.0.0.1:1" in result.stderr
    assert "next: millstream serve" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["pub", "t"],
        ["pub", "t", "x", "--lines"],
        ["pub", "t", "--file", "/nonexistent"],
        ["pub", "t", "x", "--property", "a"],
        ["pub", "t", "x", "--property", "a=b", "--mqtt-version", "3.1.1"],
        ["pub", "t", "x", "--qos", "3"],
        ["pub", "t", "x", "--url", "http://127.0.0.1"],
        ["pub", "t", "x", "--url", "mqtt://127.0.0.1:99999"],
        ["pub", "t", "x", "--url", "mqtt://alice:secret@127.0.0.1"],
        ["pub", "t", "x", "--ca-file", "/dev/null"],
        ["pub", "t", "x", "--password-file", "/nonexistent", "--user", "alice"],
        ["sub", "t", "--session-expiry", "5"],
        ["sub"],
        ["bench", "--size", "1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_before_anything_is_sent(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "secret" not in result.stderr


@pytest.mark.parametrize(
    ("url", "place", "path"),
    [
        ("mqtt://h", ("mqtt", "h", 1883), None),
        ("h:5", ("mqtt", "h", 5), None),
        ("ws://h", ("ws", "h", 8083), "/mqtt"),
        ("ws://h:1/x/y", ("ws", "h", 1), "/x/y"),
        ("mqtt://[::1]:7", ("mqtt", "::1", 7), None),
    ],
)
def test_an_address_is_read_with_its_usual_port(
    url: str, place: tuple[str, str, int], path: str | None
) -> None:
    target = find_target(url, None, None, MqttVersion.FIVE)
    assert (target.scheme, target.host, target.port) == place
    assert target.path == path
    assert target.tls is None


def test_tls_is_verified() -> None:
    target = find_target("mqtts://h", None, None, MqttVersion.FIVE)
    assert target.tls is not None
    assert target.tls.check_hostname
    assert target.port == 8883


def test_the_password_comes_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MILLSTREAM_PASSWORD", "CANARY")
    (tmp_path / "p").write_text("two\n")
    assert find_target("h", None, None, MqttVersion.FIVE).password is None
    assert find_target("h", "alice", None, MqttVersion.FIVE).password == b"CANARY"
    assert find_target("alice@h", None, None, MqttVersion.FIVE).username == "alice"
    assert find_target("h", "alice", tmp_path / "p", MqttVersion.FIVE).password == b"two"
    assert "CANARY" not in repr(find_target("h", "alice", None, MqttVersion.FIVE))


def test_no_options_make_no_properties() -> None:
    assert make_properties([], None, None, None) is None
    with pytest.raises(CommandFailed):
        make_properties(["novalue"], None, None, None)


def test_a_message_without_properties_has_four_fields() -> None:
    assert as_dict(Publish(b"t", b"\xff", 0)) == {
        "topic": "t",
        "qos": 0,
        "retain": False,
        "payload_base64": "/w==",
    }


@pytest.mark.parametrize(("fraction", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)])
def test_a_percentile_is_a_value_that_was_measured(fraction: float, value: int) -> None:
    assert percentile(list(range(1, 101)), fraction) == value
    assert percentile([7], fraction) == 7


def test_a_run_without_subscribers_has_no_latency() -> None:
    plan = Plan(1, 0, 64, 0, 10, 0, 1, "t")
    report = summarize(plan, Tally(published=10, first_ns=1, published_ns=1_000_000_001))
    assert (report["publish_rate_per_s"], report["receive_rate_per_s"], report["latency_p50_ms"]) == (
        10,
        0,
        None,
    )
