"""The reader on a real broker: what was published by MQTT comes back as Arrow rows over HTTP, all of it, to whoever may."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from conftest import BrokerProcess, StartBroker
from raw_client import RawClient, props, unique
from reader_world import (
    SETTINGS,
    WAIT_S,
    ReaderClient,
    fill,
    numbers,
    publish,
    publisher,
    reader_pids,
    wait_ended,
    wait_refused,
    write_rights,
)
from typer.testing import CliRunner

from millstream.commands.tree import app
from millstream.runtime.control.client import SOCKET_NAME, ControlClient

COLUMNS = [
    "queue",
    "partition",
    "offset",
    "timestamp",
    "event_time",
    "topic",
    "payload",
    "content_type",
    "client_id",
    "qos",
    "producer_sequence",
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(
        tmp_path_factory.mktemp("reader"), (*SETTINGS, "broker.queue_auto_create=stream"), ()
    )
    running.wait_ready()
    yield running
    running.kill()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ReaderClient]:
    client = ReaderClient(broker.ports["reader"])
    yield client
    client.close()


# ----------------------------------------------------------------------- rows


def test_every_row_comes_back_once_and_in_order(broker: BrokerProcess, client: ReaderClient) -> None:
    name = fill(broker, 3000)
    assert client.show(name, fresh="true")["end"] == 3000
    table = client.records(name, first=0, end=3000, rows=700).table()
    assert table.column_names == COLUMNS
    assert table["offset"].to_pylist() == list(range(3000))
    assert table["payload"].to_pylist() == numbers(3000)
    assert set(table["topic"].to_pylist()) == {f"$queue/{name}/k"}
    assert set(table["queue"].to_pylist()) == {name}
    part = client.records(name, first=1234, end=1300).table()
    assert part["payload"].to_pylist() == numbers(66, 1234)


def test_both_layouts_hold_the_same(broker: BrokerProcess, client: ReaderClient) -> None:
    name = fill(broker, 500)
    client.show(name, fresh="true")
    plain = client.records(name, layout="plain").table()
    view = client.records(name, layout="view").table()
    assert view.schema.field("payload").type == pa.binary_view()
    assert view.cast(plain.schema).equals(plain)


def test_fresh_sees_what_was_confirmed_a_moment_ago(broker: BrokerProcess, client: ReaderClient) -> None:
    name = fill(broker, 1)
    topic = f"$queue/{name}/k".encode()
    with publisher(broker) as raw:
        for number in range(1, 6):
            publish(raw, topic, numbers(1, number))
            listed = client.get("/v1/queues", fresh="true", pattern=name).json()["queues"]
            assert [(queue["name"], queue["end"]) for queue in listed] == [(name, number + 1)]
    assert client.records(name, first=0, end=6).table()["payload"].to_pylist() == numbers(6)


def test_only_the_columns_that_were_asked_for_are_sent(broker: BrokerProcess, client: ReaderClient) -> None:
    name = fill(broker, 10)
    table = client.records(name, fresh="true", columns="payload,offset").table()
    assert table.column_names == ["offset", "payload"]
    wrong = client.records(name, columns="offset,pay")
    assert wrong.status == 400
    assert "'pay'" in wrong.json()["error"]


def test_headers_and_times_of_the_publisher_are_columns(broker: BrokerProcess, client: ReaderClient) -> None:
    name = unique("stream")
    said = props(
        content_type=b"text/plain",
        user_properties=[
            (b"event-time", b"1700000000123"),
            (b"producer-id", b"p"),
            (b"sequence", b"7"),
            (b"a", b"1"),
            (b"a", b"2"),
        ],
    )
    with publisher(broker) as raw:
        publish(raw, f"$queue/{name}".encode(), [b"x"], said)
    row = client.records(name, fresh="true", headers="map").table().to_pylist()[0]
    assert row["event_time"].timestamp() == 1_700_000_000.123
    assert row["content_type"] == "text/plain"
    assert dict(row["headers"])["a"] == "2"
    row = client.records(name, headers="array").table().to_pylist()[0]
    assert [pair["value"] for pair in row["headers"] if pair["key"] == "a"] == ["1", "2"]


def test_rows_are_chosen_by_topic_and_by_time(broker: BrokerProcess, client: ReaderClient) -> None:
    name = unique("stream")
    with publisher(broker) as raw:
        for place in (b"eu/7", b"us/1", b"eu/9"):
            publish(raw, f"$queue/{name}/".encode() + place, [place])
    every = client.records(name, fresh="true").table()
    chosen = client.records(name, topic=f"$queue/{name}/eu/+").table()
    assert chosen["payload"].to_pylist() == [b"eu/7", b"eu/9"]
    assert chosen["offset"].to_pylist() == [0, 2]
    moment = every["timestamp"].cast(pa.int64()).to_pylist()[1] * 1000 + 999
    late = client.records(name, since=moment).table()
    early = client.records(name, until=moment).table()
    assert early["offset"].to_pylist() + late["offset"].to_pylist() == [0, 1, 2]
    offset = client.get(f"/v1/queues/{name}/offset", timestamp=moment).json()["offset"]
    assert late["offset"].to_pylist()[:1] in ([], [offset])
    assert client.get(f"/v1/queues/{name}/offset", timestamp=0).json() == {"offset": 0}
    assert client.get(f"/v1/queues/{name}/offset", timestamp=4 * 10**18).json() == {"offset": 3}
    assert client.records(name, topic="a/#/b").status == 400


def test_large_payloads_come_whole(broker: BrokerProcess, client: ReaderClient) -> None:
    name = unique("stream")
    payloads = [os.urandom(700_000), b"", os.urandom(1), os.urandom(1_000_000)]
    with publisher(broker) as raw:
        publish(raw, f"$queue/{name}".encode(), payloads)
    assert client.records(name, fresh="true").table()["payload"].to_pylist() == payloads


def test_two_readers_at_once_get_the_same(broker: BrokerProcess) -> None:
    name = fill(broker, 2000)
    clients = [ReaderClient(broker.ports["reader"]) for _ in range(4)]
    clients[0].show(name, fresh="true")
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda one: one.records(name, rows=100).table(), clients))
    assert all(table.equals(tables[0]) for table in tables)
    assert tables[0].num_rows == 2000


# ------------------------------------------------------------------- refusals


def test_a_range_that_is_not_there_is_refused_with_the_one_that_is(
    broker: BrokerProcess, client: ReaderClient
) -> None:
    name = fill(broker, 100)
    client.show(name, fresh="true")
    behind = client.records(name, first=0, end=101)
    assert (behind.status, behind.json()["end"]) == (416, 100)
    with ControlClient(broker.log_file.parent / "data" / SOCKET_NAME) as control:
        control.call("queue.update", {"name": name, "definition": {"retention_count": 40}})
    wait_first(client, name, 60)
    gone = client.records(name, first=10, end=100)
    assert (gone.status, gone.json()["first"]) == (410, 60)
    assert "gap=skip" in gone.json()["hint"]
    rest = client.records(name, first=10, end=100, gap="skip").table()
    assert rest["offset"].to_pylist() == list(range(60, 100))


def wait_first(client: ReaderClient, name: str, first: int) -> None:
    """Retention runs by the clock of the broker."""
    deadline = time.monotonic() + WAIT_S
    while client.show(name)["first"] < first:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_cannot_be_read_says_why(broker: BrokerProcess, client: ReaderClient) -> None:
    missing = client.get(f"/v1/queues/{unique('none')}")
    assert missing.status == 404
    assert missing.json()["hint"] == "millstream queue list"
    work = unique("work")
    with ControlClient(broker.log_file.parent / "data" / SOCKET_NAME) as control:
        control.call("queue.create", {"name": work, "definition": {"kind": "work"}})
    refused = client.records(work)
    assert (refused.status, refused.json()["error"]) == (
        404,
        f"{work!r} is a work queue; only streams can be read",
    )
    assert client.get("/v1/nothing").status == 404
    assert client.ask("DELETE", "/v1/queues").status == 405
    assert client.get("/v1/queues", pattern="((").status == 400
    assert client.get("/v1/queues", ferst=1).status == 400


def test_users_and_rules_hold_as_they_do_for_mqtt(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = write_rights(tmp_path, "secret")
    broker = start_broker(*SETTINGS, *settings, "queues.open.kind=stream", "queues.closed.kind=stream")
    port = broker.ports["reader"]
    assert ReaderClient(port).get("/v1/queues").status == 401
    wrong = ReaderClient(port, "alice:guess").get("/v1/queues")
    assert wrong.status == 401
    assert wrong.headers["www-authenticate"].startswith("Basic")
    assert ReaderClient(port, token="a.b.c").get("/v1/queues").status == 401
    alice, bob = ReaderClient(port, "alice:secret"), ReaderClient(port, "bob:secret")
    assert [queue["name"] for queue in alice.get("/v1/queues").json()["queues"]] == ["closed", "open"]
    assert [queue["name"] for queue in bob.get("/v1/queues").json()["queues"]] == ["open"]
    assert alice.records("closed").status == 200
    refused = bob.records("closed")
    assert refused.status == 403
    assert refused.json()["hint"] == "millstream acl check bob subscribe '$queue/closed'"
    assert bob.post("/v1/queues/closed/groups/g", {"offset": 0}).status == 403
    assert alice.get("/v1/health").json()["status"] == "ok"


# ------------------------------------------------------------------ committing


def test_a_group_that_was_committed_shows_in_the_commands(
    broker: BrokerProcess, client: ReaderClient
) -> None:
    name = fill(broker, 50)
    path = f"/v1/queues/{name}/groups/spark"
    assert client.post(path, {"offset": 30}).json() == {"committed": 30}
    assert client.post(path, {"offset": 10}).json() == {"committed": 30}, "it never goes back"
    data_dir = broker.log_file.parent / "data"
    shown = CliRunner().invoke(app, ["queue", "groups", name, "--set", f"data_dir={data_dir}"])
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:]] == [["spark", "30", "20"]]
    assert client.post(path, {"offset": 51}).status == 400
    assert client.post(path, {"offset": "x"}).status == 400
    assert client.ask("POST", path, b"no json").status == 400


# -------------------------------------------------------------------- processes


def wait_condition(broker: BrokerProcess, event: str) -> dict[str, str]:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for line in broker.log().splitlines():
            if f'"{event}"' in line and '"reader_down"' in line:
                found: dict[str, str] = json.loads(line)
                return found
        time.sleep(0.05)  # another process: there is no event to wait for
    pytest.fail(f"no {event} of reader_down\n{broker.log()}")


def test_a_reader_that_is_killed_comes_back_at_the_same_address(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS, "queues.kept.kind=stream")
    port = broker.ports["reader"]
    assert ReaderClient(port).get("/v1/health").status == 200
    (pid,) = reader_pids(broker)
    os.kill(pid, signal.SIGKILL)
    wait_ended(pid)
    assert ReaderClient(port).show("kept")["end"] == 0
    assert reader_pids(broker) != [pid]
    began = wait_condition(broker, "condition_began")
    assert began["cause"] == "it was ended by signal 9"
    assert wait_condition(broker, "condition_ended")["counted"] == "1 ends"
    assert broker.stop() == 0


def test_the_reader_steps_back_behind_the_broker_as_far_as_it_is_told(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS, "reader.nice=7")
    assert ReaderClient(broker.ports["reader"]).get("/v1/health").status == 200
    (pid,) = reader_pids(broker)
    steps = os.getpriority(os.PRIO_PROCESS, pid) - os.getpriority(os.PRIO_PROCESS, os.getpid())
    assert steps == 7
    assert os.getsid(pid) != os.getsid(broker.process.pid)  # the share of the one is not the other's
    assert broker.stop() == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_reader_ends_with_its_broker(start_broker: StartBroker, is_killed: bool) -> None:
    broker = start_broker(*SETTINGS)
    assert ReaderClient(broker.ports["reader"]).get("/v1/health").status == 200
    (pid,) = reader_pids(broker)
    if is_killed:
        broker.kill()
    else:
        assert broker.stop() == 0
    wait_ended(pid)
    wait_refused(broker.ports["reader"])


def test_a_reader_that_stands_still_leaves_its_port_to_the_next_broker(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS)
    port = broker.ports["reader"]
    assert ReaderClient(port).get("/v1/health").status == 200
    (pid,) = reader_pids(broker)
    os.kill(pid, signal.SIGSTOP)
    broker.kill()
    wait_ended(pid)
    wait_refused(port)
    following = start_broker(*SETTINGS, f"reader.port={port}")
    assert ReaderClient(port).get("/v1/health").status == 200
    assert following.stop() == 0


def hold_place(port: int) -> socket.socket:
    """A request that is being served until it is closed: the rest of its body does not come."""
    held = socket.create_connection(("127.0.0.1", port), WAIT_S)
    head = "POST /v1/commits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    held.sendall(head.encode())
    assert held.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the body, and the caller is known"
    return held


def test_more_connections_than_there_may_be_are_told_to_come_back(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS, "reader.connections_max=2")
    port = broker.ports["reader"]
    held = [hold_place(port) for _ in range(2)]
    refused = ReaderClient(port).get("/v1/health")
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    held[0].close()
    deadline = time.monotonic() + WAIT_S
    while ReaderClient(port).get("/v1/health").status != 200:
        assert time.monotonic() < deadline, "the place was not given to another"


def test_sealing_under_load_loses_nothing(start_broker: StartBroker) -> None:
    small = ("storage.log_file_size=256KiB", "storage.segment_size=256KiB")
    broker = start_broker(*SETTINGS, *small, "queues.load.kind=stream")
    count, publishers = 1500, 3
    threads = []
    for number in range(publishers):
        raw = RawClient(broker.mqtt_port)
        raw.connect()
        topic = f"$queue/load/{number}".encode()
        threads.append(threading.Thread(target=publish, args=(raw, topic, numbers(count))))
    for thread in threads:
        thread.start()
    reader = ReaderClient(broker.ports["reader"])
    seen: list[tuple[str, bytes]] = []
    while len(seen) < count * publishers:
        end = reader.show("load", fresh="true")["end"]
        table = reader.records("load", first=len(seen), end=end).table()
        assert table["offset"].to_pylist() == list(range(len(seen), end))
        seen += zip(table["topic"].to_pylist(), table["payload"].to_pylist(), strict=True)
    for thread in threads:
        thread.join()
    for number in range(publishers):
        mine = [payload for topic, payload in seen if topic == f"$queue/load/{number}"]
        assert mine == numbers(count)
    broker.kill()
    again = start_broker(*SETTINGS, *small, f"data_dir={broker.log_file.parent / 'data'}")
    reader = ReaderClient(again.ports["reader"])
    assert reader.show("load", fresh="true")["end"] == count * publishers
    assert "storage_damaged" not in again.log()


def test_with_a_certificate_it_speaks_https(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(key)
    broker = start_broker(*SETTINGS, f"reader.tls.cert_file={cert}", f"reader.tls.key_file={key}")
    port = broker.ports["reader"]
    assert f"reader https://127.0.0.1:{port}" in broker.log()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    client = ReaderClient(port)
    client.connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=trusting)
    assert client.get("/v1/health").status == 200
    assert client.get("/v1/queues").json() == {"queues": []}


def test_what_a_start_needs_and_has_not_is_said(tmp_path: Path) -> None:
    arguments = ["serve", "--set", "reader.enabled=true", "--set", "storage.durability=memory"]
    refused = CliRunner().invoke(app, [*arguments, "--set", f"data_dir={tmp_path}"])
    assert refused.exit_code == 2
    assert "reader.enabled" in refused.stderr
    assert "storage.durability" in refused.stderr
