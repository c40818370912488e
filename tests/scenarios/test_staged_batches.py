"""Staged batches through the real reader and broker: nothing before the commit, all of it after, each row once."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerProcess, StartBroker, write_private
from raw_client import RawClient
from stage_writer import Refusal, StageWriter, make_table, payloads, read_queue, stage_files, to_arrow

from millstream.maintenance.backup import make_backup, restore_backup
from millstream.protocols.mqtt.wire.packets import Publish, SubAck, Subscribe, SubscribeEntry
from millstream.runtime.control.client import SOCKET_NAME, ControlClient
from millstream.runtime.disk.failpoints import VARIABLE
from millstream.security.users import User, UserTable, format_users, hash_password

pa = pytest.importorskip("pyarrow")

SETTINGS = ("reader.enabled=true", "reader.port=0", "queues.out.kind=stream", "storage.log_file_size=256KiB")
ROWS = 6000  # 24 slices
Start = Callable[..., BrokerProcess]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def start(start_broker: StartBroker, data_dir: Path) -> Start:
    """A broker with a reader on the same directory each time."""
    return lambda *settings: start_broker(*SETTINGS, f"data_dir={data_dir}", *settings)


def writer_of(broker: BrokerProcess, query: str = "query", authorization: str = "") -> StageWriter:
    return StageWriter(broker.ports["reader"], query, authorization)


def test_rows_are_seen_after_the_commit_and_not_before(start: Start, data_dir: Path) -> None:
    writer = writer_of(start())
    stages = [
        writer.stage(0, make_table(first, 500), partition, queue="out")
        for partition, first in enumerate((0, 500, 1000))
    ]
    assert payloads(data_dir, "out") == []
    assert len(stage_files(data_dir)) == 3
    assert writer.commit(0, stages, queue="out") == {"committed": 1500, "was_committed": False}
    assert payloads(data_dir, "out") == list(range(1500))
    assert stage_files(data_dir) == []


def test_a_batch_that_is_committed_again_adds_nothing(start: Start, data_dir: Path) -> None:
    writer = writer_of(start())
    first = writer.stage(4, make_table(0, 300), queue="out")
    writer.commit(4, [first], queue="out")
    again = writer.stage(4, make_table(0, 300), queue="out")
    older = writer.stage(3, make_table(900, 10), queue="out")
    assert writer.commit(4, [first], queue="out") == {"committed": 300, "was_committed": True}
    assert writer.commit(4, [again], queue="out")["was_committed"]
    assert writer.commit(3, [older], queue="out")["was_committed"]
    assert payloads(data_dir, "out") == list(range(300))
    assert stage_files(data_dir) == []


def test_a_batch_is_known_after_a_restart_and_a_checkpoint(start: Start, data_dir: Path) -> None:
    for life in range(3):
        broker = start()
        writer = writer_of(broker)
        if life:
            assert writer.commit(life - 1, ["0" * 32], queue="out")["was_committed"]
        stage = writer.stage(life, make_table(life * 1000, 1000), queue="out")
        assert not writer.commit(life, [stage], queue="out")["was_committed"]
        broker.stop() if life == 1 else broker.kill()
    start()
    assert payloads(data_dir, "out") == list(range(3000))


@pytest.mark.parametrize(
    "failpoint",
    [
        "stage.before_begin:1",
        "stage.after_begin:1",
        "stage.after_slice:1",
        "stage.after_slice:9",
        "stage.after_slice:24",
        "stage.after_done:1",
        "stage.after_remove:1",
        "log.after_write:3",
        "log.after_sync:4",
        "checkpoint.before_commit:1",
    ],
)
def test_a_broker_killed_while_it_publishes_publishes_each_row_once(
    start: Start, data_dir: Path, failpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start()
    writer = writer_of(broker)
    stages = [writer.stage(0, make_table(0, ROWS // 2), queue="out")]
    stages.append(writer.stage(0, make_table(ROWS // 2, ROWS // 2), 1, queue="out"))
    broker.kill()
    monkeypatch.setenv(VARIABLE, failpoint)
    broker = start()
    try:
        writer_of(broker).commit(0, stages, queue="out")
    except (OSError, Refusal):
        pass  # it died before it could answer
    if not failpoint.startswith("checkpoint"):  # that one is another process, whose work is done again
        broker.process.wait(30)
    broker.kill()
    monkeypatch.delenv(VARIABLE)
    broker = start()
    writer_of(broker).commit(0, stages, queue="out")
    assert payloads(data_dir, "out") == list(range(ROWS))
    assert stage_files(data_dir) == []


def test_a_batch_that_was_decided_is_published_without_its_writer(
    start: Start, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start()
    writer = writer_of(broker)
    stage = writer.stage(0, make_table(0, ROWS), queue="out")
    broker.kill()
    monkeypatch.setenv(VARIABLE, "stage.after_slice:5")
    broker = start()
    with pytest.raises((OSError, Refusal)):
        writer_of(broker).commit(0, [stage], queue="out")
    broker.process.wait(30)
    monkeypatch.delenv(VARIABLE)
    broker = start()
    # a batch behind it waits for it: when that is done, so is this
    writer = writer_of(broker)
    writer.commit(1, [writer.stage(1, make_table(ROWS, 1), queue="out")], queue="out")
    assert payloads(data_dir, "out") == list(range(ROWS + 1))


def test_a_backup_takes_what_a_decided_batch_still_needs(
    start: Start, data_dir: Path, tmp_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start()
    stage = writer_of(broker).stage(0, make_table(0, ROWS), queue="out")
    writer_of(broker, "other").stage(0, make_table(0, 10), queue="out")  # nobody has decided about this one
    broker.kill()
    monkeypatch.setenv(VARIABLE, "stage.after_slice:7")
    broker = start()
    with pytest.raises((OSError, Refusal)):
        writer_of(broker).commit(0, [stage], queue="out")
    broker.process.wait(30)
    monkeypatch.delenv(VARIABLE)
    make_backup(data_dir, tmp_path / "backup.tar", lambda *_: None)
    restored = tmp_path / "restored"
    restore_backup(tmp_path / "backup.tar", restored, lambda *_: None)
    assert stage_files(restored) == [f"{stage}.stage"]
    broker = start_broker(*SETTINGS, f"data_dir={restored}")
    assert writer_of(broker).commit(0, [stage], queue="out")["was_committed"]
    assert payloads(restored, "out") == list(range(ROWS))


def test_what_is_dropped_cannot_be_committed(start: Start, data_dir: Path) -> None:
    writer = writer_of(start())
    stages = [writer.stage(0, make_table(0, 10), queue="out") for _ in range(3)]
    assert writer.drop(0, stages[0]) == 1
    assert writer.drop(1) == 0
    assert writer.drop(0) == 2
    assert stage_files(data_dir) == []
    with pytest.raises(Refusal, match=f"409: the stage {stages[1]} cannot be used: the file is missing"):
        writer.commit(0, stages[1:2], queue="out")
    assert payloads(data_dir, "out") == []


def test_stages_nobody_wants_are_gone_after_a_day(start: Start, data_dir: Path) -> None:
    broker = start()
    writer = writer_of(broker)
    old = writer.stage(0, make_table(0, 10), queue="out")
    young = writer.stage(1, make_table(0, 10), queue="out")
    broker.stop()
    (data_dir / "stages" / "left.part").touch()
    for name in (f"{old}.stage", "left.part"):
        os.utime(data_dir / "stages" / name, (0, 0))
    broker = start()
    writer_of(broker).commit(1, [young], queue="out")
    broker.stop()  # which waits for what it was doing
    assert stage_files(data_dir) == []


def test_topics_from_a_column_reach_subscribers_and_queues(start: Start, data_dir: Path) -> None:
    broker = start("queues.bound.kind=stream", 'queues.bound.bindings=["plant/#"]')
    client = RawClient(broker.mqtt_port)
    client.connect()
    client.send(Subscribe(1, [SubscribeEntry(b"plant/+", 1)]))
    assert isinstance(client.receive(), SubAck)
    topics = [f"plant/{at % 5}" for at in range(20)]
    writer = writer_of(broker)
    table = make_table(0, 20, topic=topics, content_type=["text/plain"] * 20, headers=[[("a", "b")]] * 20)
    schema = table.schema.set(3, pa.field("headers", pa.map_(pa.string(), pa.string())))
    table = pa.table([*table.columns[:3], pa.array([[("a", "b")]] * 20, schema.field(3).type)], schema=schema)
    writer.commit(0, [writer.stage(0, table, topics="true")], topics=True)
    for at in range(20):
        message = client.receive()
        assert isinstance(message, Publish)
        assert (message.topic, message.payload) == (topics[at].encode(), b"%d" % at)
        assert message.properties is not None
        assert message.properties.content_type == b"text/plain"
        assert message.properties.user_properties == [(b"a", b"b")]
    assert payloads(data_dir, "bound") == list(range(20))


def test_retained_rows_wait_for_who_comes_later(start: Start) -> None:
    broker = start()
    writer = writer_of(broker)
    writer.commit(0, [writer.stage(0, make_table(7, 1), topic="state/last", retain="true")], topics=True)
    broker.kill()
    client = RawClient(start().mqtt_port)
    client.connect()
    client.send(Subscribe(1, [SubscribeEntry(b"state/#", 1)]))
    assert isinstance(client.receive(), SubAck)
    message = client.receive()
    assert isinstance(message, Publish)
    assert (message.payload, message.retain) == (b"7", True)


def test_rows_with_keys_go_to_the_queue_under_them(start: Start, data_dir: Path) -> None:
    writer = writer_of(start())
    keys = ["a/b", None, "$queue/other/c"]
    writer.commit(0, [writer.stage(0, make_table(0, 3, key=keys), queue="out")], queue="out")
    assert [record["topic"] for record in read_queue(data_dir, "out")] == [
        "$queue/out/a/b",
        "$queue/out",
        "$queue/out/c",
    ]


def test_a_queue_that_is_full_makes_the_commit_wait_until_it_is_read(start: Start, data_dir: Path) -> None:
    broker = start("queues.small.kind=work", "queues.small.length_max=100", "queues.small.overflow=reject")
    writer = writer_of(broker)
    stage = writer.stage(0, make_table(0, 1500), queue="small")
    consumer = ControlClient(data_dir / SOCKET_NAME)
    taken: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(writer.commit, 0, [stage], queue="small")
        while len(taken) < 1500:
            page: Any = consumer.call("queue.take", {"name": "small", "count": 100, "wait_ms": 5000})
            taken += [int(record["payload"]) for record in page["records"]]
            consumer.call("queue.settle", {"offsets": [record["offset"] for record in page["records"]]})
        assert committed.result(30)["committed"] == 1500
    consumer.close()
    assert taken == list(range(1500))


BAD = [
    (
        {"queue": "out"},
        pa.table({"payload": [1]}),
        400,
        "the column 'payload' is int64, not binary or string",
    ),
    ({"queue": "out"}, pa.table({"value": ["x"]}), 400, "the column 'value' is not one of payload, topic"),
    ({"queue": "out"}, pa.table({"key": ["x"]}), 400, "the column 'payload' is missing"),
    ({"queue": "out"}, pa.table({"payload": ["x", None]}), 400, "row 1: payload is null"),
    (
        {"queue": "out"},
        pa.table({"payload": ["x"], "qos": [3]}),
        400,
        "row 0: qos must be from 0 to 2, not 3",
    ),
    ({"queue": "out"}, pa.table({"payload": ["x"], "key": ["a/#"]}), 400, "must not contain wildcards"),
    ({"queue": "out"}, pa.table({"payload": ["x"], "key": ["a/$ack"]}), 400, "the word for an answer"),
    ({"queue": "out"}, pa.table({"payload": [b"x" * 1048577]}), 413, "not have more than 1048576 bytes"),
    ({"queue": "out"}, b"no arrow at all", 400, "the body is no Arrow stream that can be read"),
    ({"queue": "none"}, pa.table({"payload": ["x"]}), 404, "there is no queue 'none'"),
    ({"topics": "true"}, pa.table({"payload": ["x"]}), 400, "the column 'topic' is missing"),
    (
        {"topics": "true"},
        pa.table({"payload": ["x"], "topic": ["$SYS/x"]}),
        403,
        r"may not publish to '\$SYS/x'",
    ),
    ({}, pa.table({"payload": ["x"]}), 400, "rows go to a queue .* or to topics"),
]


def test_what_cannot_be_published_is_refused_before_anything_is_kept(start: Start, data_dir: Path) -> None:
    writer = writer_of(start())
    for target, table, status, text in BAD:
        with pytest.raises(Refusal, match=text) as refused:
            writer.stage(0, table, **target)
        assert refused.value.status == status, text
        assert "Traceback" not in refused.value.text
    whole = to_arrow(make_table(0, 1000))
    with pytest.raises(Refusal, match=r"400: the body is no Arrow stream|400: a batch"):
        writer.stage(0, whole[: len(whole) // 2], queue="out")
    assert stage_files(data_dir) == []
    with pytest.raises(Refusal, match="400: query is missing"):
        StageWriter(writer._port, "").stage(0, make_table(0, 1), queue="out")


def test_more_than_may_be_staged_is_told_to_come_back(start: Start, data_dir: Path) -> None:
    writer = writer_of(start("reader.stage_bytes_max=1MiB"))
    large = pa.table({"payload": [bytes(1000)] * 600})
    stage = writer.stage(0, large, queue="out")
    with pytest.raises(Refusal, match="503: as many bytes as may be are staged"):
        writer.stage(0, large, 1, queue="out")
    assert stage_files(data_dir) == [f"{stage}.stage"]
    writer.commit(0, [stage], queue="out")
    writer.commit(1, [writer.stage(1, large, queue="out")], queue="out")


RULES = """
rules:
  - {allow: publish, topics: ["$queue/out", "$queue/out/#", "a/#"], users: [alice]}
  - {allow: publish, topics: ["$queue/#"], users: [bob]}
"""


def basic(name: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:secret".encode()).decode()


def test_only_who_may_publish_can_stage_and_commit(start: Start, data_dir: Path, tmp_path: Path) -> None:
    users = UserTable({name: User(name, hash_password("secret"), "default") for name in ("alice", "bob")})
    files = (
        f"auth.password_file={write_private(tmp_path / 'users.txt', format_users(users))}",
        f"auth.acl_file={write_private(tmp_path / 'acl.yaml', RULES)}",
    )
    broker = start(*files, "queues.secret.kind=stream")
    alice, bob = (writer_of(broker, "query", basic(name)) for name in ("alice", "bob"))
    nobody, liar = writer_of(broker), writer_of(broker, "query", basic("alice")[:-4] + "AAA=")
    for stranger in (nobody, liar):
        with pytest.raises(Refusal, match="401"):
            stranger.stage(0, make_table(0, 1), queue="out")
        with pytest.raises(Refusal, match="401"):
            stranger.commit(0, ["0" * 32], queue="out")
        with pytest.raises(Refusal, match="401"):
            stranger.drop(0)
    with pytest.raises(Refusal, match="403: 'alice' may not publish to '\\$queue/secret'"):
        alice.stage(0, make_table(0, 1), queue="secret")
    mixed = make_table(0, 3, topic=["a/1", "b/1", "a/2"])
    with pytest.raises(Refusal, match="403: 'alice' may not publish to 'b/1'"):
        alice.stage(0, mixed, topics="true")
    assert stage_files(data_dir) == []
    stage = alice.stage(0, make_table(0, 5), queue="out")
    with pytest.raises(Refusal, match=f"403: the stage {stage} belongs to another user"):
        bob.commit(0, [stage], queue="out")
    assert bob.drop(0) == 0
    with pytest.raises(Refusal, match=r"409: the stage .* was made for the queue 'out'"):
        alice.commit(0, [stage], topics=True)
    with pytest.raises(Refusal, match=r"409: the stage .* belongs to another batch"):
        alice.commit(1, [stage], queue="out")
    alice.commit(0, [stage], queue="out")
    with pytest.raises(Refusal, match="403: the query 'query' belongs to another user"):
        bob.commit(1, [bob.stage(1, make_table(0, 5), queue="out")], queue="out")
    assert payloads(data_dir, "out") == list(range(5))
