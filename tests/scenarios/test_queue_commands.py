"""`millstream queue …` against a real broker, as an operator types it; and that what it answered survives a kill."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import RawClient, props, unique
from typer.testing import CliRunner, Result

from millstream.commands.tree import app
from millstream.protocols.mqtt.wire.packets import PubAck, Publish, SubscribeEntry
from millstream.runtime.control.client import SOCKET_NAME, ControlClient, ControlEnd, ControlError

COMMANDS = [
    "list",
    "show",
    "create",
    "update",
    "delete",
    "purge",
    "peek",
    "move",
    "publish",
    "consume",
    "groups",
    "seek",
    "remove-group",
    "bind",
    "unbind",
]
MOVED = 3000  # records in a queue that is moved while its broker is killed
KILLED_AFTER = 2  # lines of progress
SMALL_LOG = "storage.log_file_size=64KiB"  # so that records are folded into segments meanwhile


class Operator:
    """Types commands for the broker on one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def type(self, *arguments: str, text: str | None = None) -> Result:
        command = ["queue", arguments[0], "--set", f"data_dir={self.data_dir}", *arguments[1:]]
        return CliRunner().invoke(app, command, input=text)

    def do(self, *arguments: str, text: str | None = None) -> str:
        result = self.type(*arguments, text=text)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def ask(self, *arguments: str, text: str | None = None) -> Any:
        return json.loads(self.do(*arguments, "-o", "json", text=text))

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.do(*arguments, "-o", "json").splitlines()]

    def payloads(self, name: str) -> list[str]:
        return [record["payload"] for record in self.lines("peek", name, "--count", "100000")]


def operator_of(broker: BrokerProcess) -> Operator:
    return Operator(broker.log_file.parent / "data")


@pytest.fixture
def operator(shared_broker: BrokerProcess) -> Operator:
    return operator_of(shared_broker)


def start_again(start_broker: StartBroker, operator: Operator) -> BrokerProcess:
    return start_broker(f"data_dir={operator.data_dir}", SMALL_LOG)


# -------------------------------------------------------------- what is there


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command: str) -> None:
    result = CliRunner().invoke(app, ["queue", command, "--help"])
    assert result.exit_code == 0
    assert f"millstream queue {command}" in result.stdout
    assert "Examples:" in result.stdout


def test_a_queue_is_made_listed_shown_changed_and_deleted(operator: Operator) -> None:
    name = unique("orders")
    assert operator.do("create", name, "max_deliveries=3", "visibility_ms=2m") == f"{name} is made (work).\n"
    assert "was there" in operator.do("create", name, "max_deliveries=3", "visibility_ms=120000")
    assert name in [row["name"] for row in operator.ask("list")]
    assert name in operator.do("list")
    shown = operator.ask("show", name)
    assert shown["definition"]["visibility_ms"] == 120_000
    assert operator.ask("update", name, "bytes_max=1MiB")["definition"]["bytes_max"] == 1 << 20
    assert "max_deliveries" in operator.do("show", name)
    assert operator.ask("delete", name, "--yes") == {"deleted": name, "records": 0}
    assert name not in [row["name"] for row in operator.ask("list")]


def test_messages_are_published_looked_at_and_consumed_once(operator: Operator) -> None:
    name = unique("jobs")
    operator.do("create", name)
    lines = "".join(f"{number}\n" for number in range(600))
    assert operator.ask("publish", name, "--lines", text=lines)["published"] == 600
    assert operator.payloads(name) == [str(number) for number in range(600)]
    first = operator.lines("consume", name, "--count", "2")
    assert [record["payload"] for record in first] == ["0", "1"]
    rest = operator.lines("consume", name, "--count", "598")
    assert [record["payload"] for record in rest] == [str(number) for number in range(2, 600)]
    assert operator.ask("show", name)["records"] == 0


def test_looking_through_consume_without_settling_changes_nothing(operator: Operator) -> None:
    name = unique("jobs")
    operator.do("create", name, "max_deliveries=1")
    operator.do("publish", name, "x")
    for _ in range(3):
        seen = operator.lines("consume", name, "--count", "1", "--no-settle")
        assert [(record["payload"], record["attempts"]) for record in seen] == [("x", 1)]
    assert operator.ask("show", name)["records"] == 1


def test_too_few_records_end_consume_with_code_1(operator: Operator) -> None:
    name = unique("jobs")
    operator.do("create", name)
    operator.do("publish", name, "x")
    result = operator.type("consume", name, "--count", "2", "--timeout", "0.05")
    assert result.exit_code == 1
    assert "Only 1 records came" in result.stderr
    assert operator.do("consume", name, "--timeout", "0.05") == ""


def test_bytes_files_and_properties_arrive_as_they_were_given(operator: Operator, tmp_path: Path) -> None:
    name = unique("jobs")
    operator.do("create", name)
    (tmp_path / "picture").write_bytes(b"\xff\x00\n")
    operator.do("publish", name, "--file", str(tmp_path / "picture"), "--key", "eu/1")
    operator.do("publish", name, "later", "--property", "priority=5", "--content-type", "text/plain")
    plain, special = operator.lines("peek", name)
    assert (plain["payload"], plain["payload_base64"], plain["key"]) == (None, "/wAK", "eu/1")
    assert (special["payload"], special["priority"]) == ("later", 5)
    assert special["content_type"] == "text/plain"
    assert "    priority: 5\n" in operator.do("peek", name, "--properties", "--offset", "1")


def test_a_message_of_the_largest_size_passes_and_a_larger_one_is_refused(
    operator: Operator, tmp_path: Path
) -> None:
    name = unique("jobs")
    operator.do("create", name)
    file = tmp_path / "large"
    file.write_bytes(b"\xff" * 1024 * 1024)
    operator.do("publish", name, "--file", str(file))
    assert operator.lines("consume", name, "--count", "1")[0]["offset"] == 0
    file.write_bytes(b"\xff" * (1024 * 1024 + 1))
    result = operator.type("publish", name, "--file", str(file))
    assert result.exit_code == 4
    assert "must not have more than 1048576 bytes" in result.stderr


def test_a_bound_queue_takes_what_devices_publish(operator: Operator, shared_broker: BrokerProcess) -> None:
    name, area = unique("readings"), unique("plant")
    operator.do("create", name, "--kind", "stream")
    operator.do("bind", name, f"{area}/+")
    with RawClient(shared_broker.mqtt_port) as device:
        device.connect()
        device.publish(f"{area}/1".encode(), b"21.5", 1)
        assert operator.ask("unbind", name, f"{area}/+")["bindings"] == []
        device.publish(f"{area}/2".encode(), b"22.5", 1)
    assert [(record["topic"], record["payload"]) for record in operator.lines("peek", name)] == [
        (f"{area}/1", "21.5")
    ]


def test_groups_of_a_stream_read_on_their_own_and_go_where_they_are_told(operator: Operator) -> None:
    name = unique("readings")
    operator.do("create", name, "--kind", "stream")
    operator.do("publish", name, "--lines", text="a\nb\nc\n")
    for group in ("billing", "audit"):
        assert len(operator.lines("consume", name, "--group", group, "--count", "3")) == 3
    assert [(row["group"], row["lag"]) for row in operator.ask("groups", name)] == [
        ("audit", 0),
        ("billing", 0),
    ]
    assert operator.ask("seek", name, "billing", "1")["lag"] == 2
    again = operator.lines("consume", name, "--group", "billing", "--count", "2")
    assert [record["payload"] for record in again] == ["b", "c"]
    assert "audit" in operator.do("groups", name)
    newest = operator.lines("consume", name, "--group", "new", "--from", "last", "--count", "1")
    assert [record["payload"] for record in newest] == ["c"]


def answer_one(broker: BrokerProcess, name: str, word: str, publish: Callable[[], object]) -> list[Publish]:
    """Be a consumer of a queue that answers its first delivery with a word; gives all that it was handed."""
    with RawClient(broker.mqtt_port) as worker:
        worker.connect()
        wanted = SubscribeEntry(f"$queue/{name}".encode(), 1)
        worker.subscribe_all([wanted], props(user_properties=[(b"consumer-group", b"w")]))
        publish()
        deliveries = [worker.expect_publish()]
        worker.answer(deliveries[0])
        assert deliveries[0].properties is not None
        pairs = deliveries[0].properties.user_properties
        words = [pair for pair in pairs if pair[0] in (b"message-id", b"group-id")]
        topic = f"$queue/{name}/{word}".encode()
        worker.send(Publish(topic, b"", 1, packet_id=1, properties=props(user_properties=words)))
        answers = [worker.receive() for _ in range(2 if word == "$nack" else 1)]
        assert [answer.reason for answer in answers if isinstance(answer, PubAck)] == [0]
        deliveries += [answer for answer in answers if isinstance(answer, Publish)]
    return deliveries


def test_what_a_consumer_accepted_is_gone(operator: Operator, shared_broker: BrokerProcess) -> None:
    name = unique("jobs")
    operator.do("create", name)
    answer_one(shared_broker, name, "$ack", lambda: operator.do("publish", name, "x"))
    assert operator.payloads(name) == []


def test_what_a_consumer_gave_back_is_tried_again(operator: Operator, shared_broker: BrokerProcess) -> None:
    name = unique("jobs")
    operator.do("create", name, "backoff_ms=0")
    _, again = answer_one(shared_broker, name, "$nack", lambda: operator.do("publish", name, "x"))
    assert again.properties is not None
    assert (b"delivery-count", b"2") in again.properties.user_properties
    assert operator.payloads(name) == ["x"]


def test_dead_letters_say_why_and_go_back_to_where_they_came_from(
    operator: Operator, shared_broker: BrokerProcess
) -> None:
    name = unique("orders")
    operator.do("create", name)
    publish = functools.partial(operator.do, "publish", name, "spoilt", "--key", "eu/1")
    answer_one(shared_broker, name, "$reject", publish)
    dead = operator.lines("peek", f"$dlq/{name}")[0]
    assert ["_dlq_reason", "rejected"] in dead["properties"]
    assert ["_dlq_original_queue", name] in dead["properties"]
    assert operator.ask("move", f"$dlq/{name}", name)["moved"] == 1
    assert operator.payloads(f"$dlq/{name}") == []
    back = operator.lines("peek", name)[0]
    assert (back["payload"], back["topic"]) == ("spoilt", f"$queue/{name}/eu/1")


def test_what_failed_too_often_is_a_dead_letter(operator: Operator, shared_broker: BrokerProcess) -> None:
    name = unique("jobs")
    operator.do("create", name, "max_deliveries=2", "backoff_ms=0")
    answer_one(shared_broker, name, "$nack", lambda: operator.do("publish", name, "x"))
    assert operator.lines("consume", name, "--timeout", "0.05") == []
    assert ["_dlq_reason", "max_deliveries"] in operator.lines("peek", f"$dlq/{name}")[0]["properties"]


def test_what_a_publisher_asks_for_is_followed(operator: Operator) -> None:
    name = unique("jobs")
    operator.do("create", name)
    operator.do("publish", name, "plain")
    operator.do("publish", name, "tomorrow", "--property", "delay-ms=86400000")
    operator.do("publish", name, "urgent", "--property", "priority=9")
    repeat = ("publish", name, "once", "--property", "producer-id=p", "--property", "sequence=1")
    assert [operator.ask(*repeat)["offsets"] for _ in range(2)] == [[3], [None]]
    came = operator.lines("consume", name, "--timeout", "0.05")
    assert [record["payload"] for record in came] == ["urgent", "plain", "once"]
    assert operator.payloads(name) == ["tomorrow"]


@pytest.mark.parametrize(("overflow", "dead"), [("drop_head", []), ("dead_letter", ["a"])])
def test_a_full_queue_makes_room_by_its_policy(operator: Operator, overflow: str, dead: list[str]) -> None:
    name = unique("small")
    operator.do("create", name, "length_max=2", f"overflow={overflow}")
    operator.do("publish", name, "--lines", text="a\nb\nc\n")
    assert operator.payloads(name) == ["b", "c"]
    if dead:
        assert operator.payloads(f"$dlq/{name}") == dead


def test_a_purged_queue_is_empty(operator: Operator) -> None:
    name = unique("jobs")
    operator.do("create", name)
    operator.do("publish", name, "--lines", text="a\nb\n")
    assert operator.do("purge", name, "--yes") == f"2 records of {name} are gone.\n"
    assert operator.payloads(name) == []


def test_a_full_queue_refuses_in_words(operator: Operator) -> None:
    name = unique("small")
    operator.do("create", name, "length_max=1")
    operator.do("publish", name, "x")
    result = operator.type("publish", name, "y")
    assert result.exit_code == 4
    assert "holds as much as it may" in result.stderr
    assert f"next: millstream queue show '{name}'" in result.stderr


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "absent"), 4, "There is no queue 'absent'."),
        (("move", "absent", "absent"), 4, "There is no queue 'absent'."),
        (("list", "--account", "absent"), 4, "There is no account 'absent'"),
        (("create", "a\nb"), 4, "must not contain"),
        (("create", "x", "colour=red"), 2, "A queue has no setting colour"),
        (("create", "x", "length_max=many"), 2, "length_max=many: must be a whole number."),
        (("create", "x", "length_max"), 2, "write SETTING=VALUE"),
        (("create", "x", "--kind", "heap"), 2, "kind=heap"),
        (("update", "absent"), 2, "Name what to change."),
        (("publish", "absent"), 2, "Give one of MESSAGE, --file and --lines."),
        (("publish", "absent", "x", "--property", "novalue"), 2, "write NAME=VALUE"),
        (("delete", "absent"), 4, "There is no queue 'absent'."),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_code(
    operator: Operator, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = operator.type(*arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["delete", "purge"])
def test_without_a_terminal_to_ask_on_nothing_is_removed(operator: Operator, command: str) -> None:
    name = unique("kept")
    operator.do("create", name)
    operator.do("publish", name, "x")
    result = operator.type(command, name)
    assert result.exit_code == 2
    assert "add --yes" in result.stderr
    assert operator.payloads(name) == ["x"]


def test_without_a_broker_the_next_command_is_named(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    result = subprocess.run(
        [sys.executable, "-m", "millstream", "queue", "list", "--set", f"data_dir={tmp_path}"],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3
    assert result.stderr == (
        f"error: No broker answers at {tmp_path / SOCKET_NAME}.\n"
        f"next: millstream serve --set data_dir={tmp_path}\n"
    )


def test_a_broker_that_takes_no_commands_opens_no_socket(start_broker: StartBroker) -> None:
    operator = operator_of(start_broker("control.enabled=false"))
    assert not (operator.data_dir / SOCKET_NAME).exists()
    result = operator.type("list", "--set", "control.enabled=false")
    assert result.exit_code == 3
    assert "control.enabled is false" in result.stderr


# -------------------------------------------------------------------- restarts


def test_queues_in_memory_are_commanded_too(start_broker: StartBroker) -> None:
    operator = operator_of(start_broker("storage.durability=memory"))
    operator.do("create", "jobs")
    operator.do("publish", "jobs", "x")
    assert [record["payload"] for record in operator.lines("consume", "jobs", "--count", "1")] == ["x"]


def test_a_data_directory_may_lie_deep(start_broker: StartBroker, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    broker = start_broker(f"data_dir={folder}")
    operator = Operator(folder)
    operator.do("create", "jobs")
    broker.kill()
    start_again(start_broker, operator)
    assert [row["name"] for row in operator.ask("list")] == ["jobs"]


def test_what_was_answered_survives_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    operator = operator_of(broker)
    operator.do("create", "jobs", "max_deliveries=7", "--bind", "plant/#")
    operator.do("create", "gone")
    operator.do("create", "readings", "--kind", "stream")
    operator.do("delete", "gone", "--yes")
    operator.do("publish", "jobs", "--lines", text="a\nb\nc\n")
    operator.do("publish", "readings", "--lines", text="a\nb\nc\n")
    operator.do("consume", "jobs", "--count", "1")
    operator.do("consume", "readings", "--group", "g", "--count", "3")
    operator.do("seek", "readings", "g", "2")
    broker.kill()
    start_again(start_broker, operator)
    assert [row["name"] for row in operator.ask("list")] == ["jobs", "readings"]
    jobs = operator.ask("show", "jobs")
    assert (jobs["definition"]["max_deliveries"], jobs["definition"]["bindings"]) == (7, ["plant/#"])
    assert operator.payloads("jobs") == ["b", "c"]
    assert operator.ask("groups", "readings")[0]["committed"] == 2


def test_a_purge_survives_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    operator = operator_of(broker)
    operator.do("create", "jobs")
    operator.do("publish", "jobs", "--lines", text="a\nb\n")
    operator.do("purge", "jobs", "--yes")
    operator.do("publish", "jobs", "new")
    broker.kill()
    start_again(start_broker, operator)
    assert operator.payloads("jobs") == ["new"]


@pytest.mark.parametrize("with_group", [False, True])
def test_a_move_that_is_killed_in_the_middle_loses_nothing_and_doubles_nothing(
    start_broker: StartBroker, with_group: bool
) -> None:
    broker = start_broker(SMALL_LOG)
    operator = operator_of(broker)
    expected = [str(number) for number in range(MOVED)]
    for name in ("here", "there"):
        operator.do("create", name)
    operator.do("publish", "here", "--lines", text="\n".join(expected))
    if with_group:
        operator.do("consume", "here", "--group", "g", "--count", "1", "--no-settle")
    told: list[object] = []

    def on_progress(progress: dict[str, object]) -> None:
        told.append(progress["done"])
        if len(told) == KILLED_AFTER:
            broker.kill()

    with ControlClient(operator.data_dir / SOCKET_NAME) as client, pytest.raises(ControlError) as lost:
        client.call("queue.move", {"source": "here", "target": "there"}, on_progress)
    assert lost.value.end is ControlEnd.LOST
    start_again(start_broker, operator)
    there = operator.payloads("there")
    assert len(there) >= int(str(told[KILLED_AFTER - 1])), "progress is told when it is safe"
    assert there + operator.payloads("here") == expected
    operator.do("move", "here", "there")
    assert operator.payloads("there") == expected


def test_a_move_whose_command_is_interrupted_stops_between_two_records(start_broker: StartBroker) -> None:
    operator = operator_of(start_broker())
    expected = [str(number) for number in range(MOVED)]
    for name in ("here", "there"):
        operator.do("create", name)
    operator.do("publish", "here", "--lines", text="\n".join(expected))

    def interrupt(progress: dict[str, object]) -> None:
        raise KeyboardInterrupt

    with ControlClient(operator.data_dir / SOCKET_NAME) as client, pytest.raises(KeyboardInterrupt):
        client.call("queue.move", {"source": "here", "target": "there"}, interrupt)
    operator.do("move", "here", "there")
    assert sorted(operator.payloads("there"), key=int) == expected
    assert operator.payloads("here") == []


def test_two_brokers_never_share_a_socket(start_broker: StartBroker, tmp_path: Path) -> None:
    """With nothing on disk they may share a directory; the first keeps its socket, the second says that it has none."""
    settings = ("storage.durability=memory", f"data_dir={tmp_path}")
    start_broker(*settings)
    operator = Operator(tmp_path)
    operator.do("create", "mine")
    second = start_broker(*settings)
    assert "control_down" in second.log()
    assert second.stop() == 0
    assert [row["name"] for row in operator.ask("list")] == ["mine"]
