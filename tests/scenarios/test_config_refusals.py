"""A broken configuration stops the start: exit code 2, one sentence per fault with file, line, key, value and the
nearest valid key, and nothing opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FORKS

# name, text of the file, line of the fault, what the sentence must say
BAD_FILES: list[tuple[str, str, int | None, list[str]]] = [
    ("misspelt key", "mqtt:\n  prot: 1884\n", 2, ["mqtt.prot", "1884", "did you mean mqtt.port?"]),
    ("misspelt section", "mqqt:\n  port: 1884\n", 1, ["mqqt", "not a known key", "mqtt"]),
    ("key at the wrong place", "port: 1884\n", 1, ["port", "1884", "mqtt.port"]),
    ("key with a dash", "mqtt:\n  max-packet-size: 5000\n", 2, ["did you mean mqtt.max_packet_size?"]),
    (
        "misspelt nested key",
        "\nmqtt:\n  tls:\n    certfile: a\n",
        4,
        ["mqtt.tls.certfile", "mqtt.tls.cert_file?"],
    ),
    (
        "misspelt key of an account",
        "accounts:\n  plant:\n    max_conections: 1\n",
        3,
        ["accounts.plant.max_connections?"],
    ),
    ("text for a number", "mqtt:\n  port: many\n", 2, ["mqtt.port", "whole number", "many"]),
    ("switch for a number", "mqtt:\n  port: true\n", 2, ["mqtt.port", "whole number", "true"]),
    ("fraction for a number", "mqtt:\n  receive_maximum: 1.5\n", 2, ["mqtt.receive_maximum", "1.5"]),
    ("number for a switch", "mqtt:\n  enabled: 2\n", 2, ["mqtt.enabled", "true or false", "2"]),
    ("number for a text", "websocket:\n  path: 5\n", 2, ["websocket.path", "must be text", "5"]),
    ("port too high", "mqtt:\n  port: 65536\n", 2, ["mqtt.port", "at most 65535", "65536"]),
    ("port below zero", "mqtt:\n  port: -1\n", 2, ["mqtt.port", "at least 0", "-1"]),
    ("QoS 3", "broker:\n  max_qos: 3\n", 2, ["broker.max_qos", "0, 1, 2", "3"]),
    (
        "bad size",
        "broker:\n  max_message_size: 5 parsecs\n",
        2,
        ["broker.max_message_size", "64 KiB", "5 parsecs"],
    ),
    (
        "size too large",
        "broker:\n  max_message_size: 1 GiB\n",
        2,
        ["broker.max_message_size", "at most", "1 GiB"],
    ),
    (
        "bad duration",
        "session:\n  max_expiry_interval: soon\n",
        2,
        ["session.max_expiry_interval", "5m", "soon"],
    ),
    (
        "part of a second",
        "session:\n  max_expiry_interval: 1500ms\n",
        2,
        ["whole number of seconds", "1500ms"],
    ),
    (
        "unknown choice",
        "session:\n  offline_queue_policy: evic\n",
        2,
        ["evict, reject", "did you mean evict?"],
    ),
    ("unknown overflow", "session:\n  inflight_overflow: 2\n", 2, ["session.inflight_overflow"]),
    ("unknown level", "log:\n  level: wanring\n", 2, ["log.level", "did you mean warning?"]),
    ("value for a section", "mqtt: 1883\n", 1, ["mqtt", "is a section", "1883"]),
    ("list for a section", "session: [1]\n", 1, ["session", "is a section"]),
    (
        "key twice",
        "mqtt:\n  port: 1\n  host: localhost\n  port: 2\n",
        4,
        ["mqtt.port", "second time", "line 2"],
    ),
    ("not YAML", "mqtt:\n  port: [1\n", 3, ["not YAML"]),
    ("tab in YAML", "mqtt:\n\tport: 1\n", 2, ["not YAML"]),
    ("not a mapping", "- mqtt\n", 1, ["must hold keys"]),
    ("YAML object", "mqtt:\n  host: !!python/object:os.system x\n", 2, ["mqtt.host", "not supported"]),
    (
        "missing certificate",
        "mqtt:\n  tls:\n    cert_file: none.pem\n",
        3,
        ["mqtt.tls.cert_file", "does not exist"],
    ),
    (
        "missing password file",
        "auth:\n  password_file: u.txt\n",
        2,
        ["auth.password_file", "millstream user add"],
    ),
    ("missing access list", "auth:\n  acl_file: acl.yaml\n", 2, ["auth.acl_file", "does not exist"]),
    ("empty path", 'auth:\n  acl_file: ""\n', 2, ["auth.acl_file", "not be empty"]),
    ("unknown algorithm", "auth:\n  jwt:\n    algorithm: none\n", 3, ["auth.jwt.algorithm", "HS256", "none"]),
    ("algorithm without key", "auth:\n  jwt:\n    algorithm: HS256\n", 3, ["auth.jwt.secret_file"]),
    (
        "issuer without algorithm",
        "auth:\n  jwt:\n    issuer: me\n",
        3,
        ["auth.jwt.issuer", "auth.jwt.algorithm"],
    ),
    (
        "open to the world",
        "mqtt:\n  host: 0.0.0.0\n",
        2,
        ["mqtt.host", "without authentication", "millstream user add"],
    ),
    (
        "WebSocket open to the world",
        'websocket:\n  host: "::"\n',
        2,
        ["websocket.host", "auth.allow_anonymous"],
    ),
    ("one port twice", "mqtt:\n  port: 8083\n", None, ["127.0.0.1:8083", "mqtt.port"]),
    (
        "nothing to open",
        "mqtt:\n  enabled: no\nwebsocket:\n  enabled: no\namqp:\n  enabled: no\n",
        2,
        ["no listener"],
    ),
    ("unknown account", "auth:\n  anonymous_account: plant\n", 2, ["auth.anonymous_account", "plant"]),
    ("account name", "accounts:\n  a.b: {}\n", 2, ["accounts.a.b", "letters"]),
    ("marks out of order", "session:\n  send_queue_low_bytes: 2 MiB\n", 2, ["session.send_queue_high_bytes"]),
    (
        "default above maximum",
        "session:\n  default_expiry_interval: 2h\n  max_expiry_interval: 1h\n",
        2,
        ["max_expiry"],
    ),
    ("path without slash", "websocket:\n  path: mqtt\n", 2, ["websocket.path", "must begin with /"]),
    ("origin without scheme", "websocket:\n  allowed_origins: [plant.example]\n", 2, ["scheme://host"]),
    ("certificates without TLS", "auth:\n  certificates_as_users: true\n", 2, ["mqtt.tls.ca_file"]),
    (
        "mutual TLS without TLS",
        "mqtt:\n  tls:\n    require_client_certificate: true\n",
        3,
        ["mqtt.tls.cert_file"],
    ),
]


def serve(
    arguments: list[str], cwd: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    return FORKS.run(["serve", "--ready-file", "ready.json", *arguments], cwd, {**clean, **(variables or {})})


def assert_refused(result: subprocess.CompletedProcess[str], cwd: Path, words: list[str]) -> None:
    assert result.returncode == 2, result.stderr
    for word in words:
        assert word in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (cwd / "ready.json").exists()


@pytest.mark.parametrize(
    ("text", "line", "words"), [entry[1:] for entry in BAD_FILES], ids=[e[0] for e in BAD_FILES]
)
def test_a_bad_file_stops_the_start_and_is_told_with_file_line_and_key(
    tmp_path: Path, text: str, line: int | None, words: list[str]
) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    place = "bad.yaml:" if line is None else f"bad.yaml:{line}: "
    result = serve(["--config", "bad.yaml"], tmp_path)
    assert_refused(result, tmp_path, [place, *words, "next: millstream config check --config bad.yaml"])


def test_there_are_at_least_25_bad_files() -> None:
    assert len(BAD_FILES) >= 25


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    result = serve(["--config", "absent.yaml"], tmp_path)
    assert_refused(result, tmp_path, ["absent.yaml: there is no such file", "millstream config init"])


def test_an_unknown_variable_stops_the_start(tmp_path: Path) -> None:
    result = serve([], tmp_path, {"MILLSTREAM_MQTT__PROT": "1884"})
    assert_refused(result, tmp_path, ["MILLSTREAM_MQTT__PROT", "1884", "did you mean MILLSTREAM_MQTT__PORT?"])


def test_an_unknown_flag_setting_stops_the_start(tmp_path: Path) -> None:
    result = serve(["--set", "mqtt.prot=1884"], tmp_path)
    assert_refused(result, tmp_path, ["--set mqtt.prot=1884", "did you mean mqtt.port?"])


def test_a_private_file_that_everyone_may_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("")
    (tmp_path / "users.txt").chmod(0o644)
    (tmp_path / "bad.yaml").write_text("auth:\n  password_file: users.txt\n")
    result = serve(["--config", "bad.yaml"], tmp_path)
    assert_refused(
        result, tmp_path, ["bad.yaml:2: auth.password_file", "everyone may read", "chmod 600 users.txt"]
    )


def test_a_bad_line_of_the_password_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text("# comment\nalice:not-a-hash\n")
    (tmp_path / "users.txt").chmod(0o600)
    (tmp_path / "bad.yaml").write_text("auth:\n  password_file: users.txt\n")
    result = serve(["--config", "bad.yaml"], tmp_path)
    assert_refused(result, tmp_path, ["bad.yaml:2: auth.password_file", "users.txt:2: "])


def test_all_faults_are_told_at_once_and_a_program_can_read_them(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "mqtt:\n  prot: 1\n  port: x\nlog:\n  level: loud\nbroker:\n  max_qos: 9\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "millstream", "config", "check", "--config", "bad.yaml", "-o", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    faults = json.loads(result.stdout)["faults"]
    assert result.returncode == 2
    assert [(fault["line"], fault["key"]) for fault in faults] == [
        (2, "mqtt.prot"),
        (3, "mqtt.port"),
        (5, "log.level"),
        (7, "broker.max_qos"),
    ]
