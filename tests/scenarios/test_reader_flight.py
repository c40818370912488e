"""Arrow Flight on a real broker: the rows of HTTP, the users of MQTT, and refusals in one sentence."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from conftest import BrokerProcess, StartBroker
from flight_world import FLIGHT_SETTINGS, command, connected, fetch, flying, shown, ticket, told
from pyarrow import flight
from raw_client import unique
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
    write_rights,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = (*FLIGHT_SETTINGS, "broker.queue_auto_create=stream", "reader.rows_max=5000")
    running = BrokerProcess(tmp_path_factory.mktemp("flight"), settings, ())
    running.wait_ready()
    yield running
    running.kill()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[flight.FlightClient]:
    with connected(broker) as client:
        yield client


# ----------------------------------------------------------------------- rows


def test_a_path_is_the_whole_stream_with_the_newest(
    broker: BrokerProcess, client: flight.FlightClient
) -> None:
    name = fill(broker, 3000)
    info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
    assert (info.total_records, len(info.endpoints), info.ordered) == (3000, 1, True)
    table = fetch(client, info)
    assert table.schema == info.schema
    assert table["payload"].to_pylist() == numbers(3000)
    http = ReaderClient(broker.ports["reader"])
    assert table.equals(http.records(name).table())


def test_a_range_in_parts_is_the_same_range_once(broker: BrokerProcess, client: flight.FlightClient) -> None:
    name = fill(broker, 1000)
    asked = command(queue=name, first=100, end=903, partitions=4, fresh=True, columns=["payload", "offset"])
    info = client.get_flight_info(asked)
    parts = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    assert [part.num_rows for part in parts] == [200, 201, 201, 201]
    whole = pa.concat_tables(parts)
    assert whole.column_names == ["offset", "payload"]
    assert whole["offset"].to_pylist() == list(range(100, 903))
    assert all(endpoint.locations == [] for endpoint in info.endpoints), "the client knows where it asked"
    few = client.get_flight_info(command(queue=name, end=2, partitions=8))
    assert len(few.endpoints) == 2


def test_an_order_chooses_as_http_does(broker: BrokerProcess, client: flight.FlightClient) -> None:
    name = unique("stream")
    with publisher(broker) as raw:
        for place in (b"eu/7", b"us/1", b"eu/9"):
            publish(raw, f"$queue/{name}/".encode() + place, [place])
    europe = command(queue=name, topic=f"$queue/{name}/eu/+", headers="map", layout="view", fresh=True)
    info = client.get_flight_info(europe)
    assert info.total_records == -1, "nobody has counted them"
    table = fetch(client, info)
    assert table["payload"].to_pylist() == [b"eu/7", b"eu/9"]
    assert table.schema.field("payload").type == pa.binary_view()
    assert client.get_schema(europe).schema == info.schema == table.schema
    moment = table["timestamp"].cast(pa.int64()).to_pylist()[1] * 1000
    early = client.do_get(ticket(queue=name, until=moment)).read_all()
    late = client.do_get(ticket(queue=name, since=moment)).read_all()
    assert early["offset"].to_pylist() + late["offset"].to_pylist() == [0, 1, 2]
    batches = client.do_get(ticket(queue=name, rows=1))
    assert [chunk.data.num_rows for chunk in batches] == [1, 1, 1]


def test_a_stream_without_records_is_a_table_without_rows(
    broker: BrokerProcess, client: flight.FlightClient
) -> None:
    name = fill(broker, 1)
    table = fetch(client, client.get_flight_info(command(queue=name, first=0, end=0, fresh=True)))
    assert table.num_rows == 0
    assert "payload" in table.column_names


def test_listed_flights_can_be_taken(broker: BrokerProcess, client: flight.FlightClient) -> None:
    name = fill(broker, 7)
    criteria = b'{"pattern": "%s", "fresh": true}' % name.encode()
    (info,) = client.list_flights(criteria)
    assert info.descriptor.path == [name.encode()]
    assert info.total_records == 7
    assert fetch(client, info)["payload"].to_pylist() == numbers(7)
    assert name in {listed.descriptor.path[0].decode() for listed in client.list_flights()}


# ------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({}, 400, "queue is missing"),
        ({"queue": "none"}, 404, "there is no queue 'none'"),
        ({"queue": "none", "ferst": 1}, 400, "'ferst' is not understood here"),
        ({"queue": "none", "first": {}}, 400, "first must be a text, a whole number"),
        ({"queue": "\ud800"}, 400, "queue holds half a character"),
        ({"queue": "ü" * 100}, 404, "there is no queue 'üüü"),
        ({"queue": "ü" * 5000}, 404, "there is no queue 'üüü"),
        ({"queue": "{name}", "columns": "pay"}, 400, "there is no column 'pay'"),
        ({"queue": "{name}", "rows": 5001}, 400, "rows must be from 1 to 5000"),
        ({"queue": "{name}", "end": 11}, 416, "can be read up to offset 10, not 11"),
        ({"queue": "{name}", "topic": "a/#/b"}, 400, "topic is no filter"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    broker: BrokerProcess, client: flight.FlightClient, fields: dict[str, object], status: int, text: str
) -> None:
    name = fill(broker, 10)
    ReaderClient(broker.ports["reader"]).show(name, fresh="true")
    asked = {key: name if value == "{name}" else value for key, value in fields.items()}
    asks: list[Callable[[], object]] = [
        lambda: client.get_flight_info(command(**asked)),
        lambda: client.do_get(ticket(**asked)).read_all(),
    ]
    for ask in asks:
        with pytest.raises(flight.FlightError) as caught:
            ask()
        assert text in str(caught.value)
        assert "Traceback" not in str(caught.value)
        assert told(caught.value)["status"] == status


def test_what_is_no_order_is_refused(client: flight.FlightClient) -> None:
    for data in (b"", b"\xff", b"[]", b"[" * 10_000, b"x" * 70_000):
        with pytest.raises(flight.FlightError, match="an order") as caught:
            client.do_get(flight.Ticket(data)).read_all()
        assert told(caught.value)["status"] in (400, 413)
    with pytest.raises(flight.FlightError, match="a path has one part"):
        client.get_flight_info(flight.FlightDescriptor.for_path("a", "b"))
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("a"), pa.schema([("a", pa.int64())]))
    with pytest.raises(flight.FlightError, match="POST /v1/stages") as caught:
        writer.close()
    assert "Traceback" not in str(caught.value)


def test_users_and_rules_hold_as_they_do_over_http(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = write_rights(tmp_path, "se:cret")
    broker = start_broker(*FLIGHT_SETTINGS, *settings, "queues.open.kind=stream", "queues.closed.kind=stream")
    closed = flight.FlightDescriptor.for_path("closed")
    with flying(broker.ports["flight"]) as client:
        wait_listening(client)
        for unknown in ([], [shown((b"authorization", b"Bearer a.b.c"))], [shown(basic("alice", "guess"))]):
            with pytest.raises(flight.FlightUnauthenticatedError, match="authenticate_basic_token"):
                client.get_flight_info(closed, *unknown)
        with pytest.raises(flight.FlightUnauthenticatedError, match="were not accepted"):
            client.authenticate_basic_token("alice", "wrong")
        alice = shown(client.authenticate_basic_token("alice", "se:cret"))
        bob = shown(client.authenticate_basic_token("bob", "se:cret"))
        info = client.get_flight_info(closed, alice)
        assert fetch(client, info, alice).num_rows == 0
        assert fetch(client, info, shown(basic("alice", "se:cret"))).num_rows == 0
        assert [listed.descriptor.path for listed in client.list_flights(options=bob)] == [[b"open"]]
        with pytest.raises(flight.FlightUnauthorizedError, match="acl check bob subscribe"):
            client.get_flight_info(closed, bob)
        with pytest.raises(flight.FlightUnauthorizedError, match="'bob' may not subscribe"):
            client.do_get(info.endpoints[0].ticket, bob).read_all()  # a ticket carries no rights
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.do_get(info.endpoints[0].ticket).read_all()


def test_a_token_of_another_reader_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker(*FLIGHT_SETTINGS, "queues.kept.kind=stream")
    with connected(broker) as client:
        token = client.authenticate_basic_token("anyone", "anything")
    (pid,) = reader_pids(broker)
    os.kill(pid, signal.SIGKILL)
    wait_ended(pid)
    with connected(broker) as client:
        assert client.get_flight_info(flight.FlightDescriptor.for_path("kept")).total_records == 0
        with pytest.raises(flight.FlightUnauthenticatedError, match="not one of this reader"):
            client.get_flight_info(flight.FlightDescriptor.for_path("kept"), shown(token))
    assert broker.stop() == 0


def basic(name: str, password: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Basic " + base64.b64encode(f"{name}:{password}".encode())


def wait_listening(client: flight.FlightClient) -> None:
    """Where nobody is anonymous, being refused is the sign."""
    with pytest.raises(flight.FlightUnauthenticatedError):
        client.wait_for_available(timeout=int(WAIT_S))


# -------------------------------------------------------------------- processes


def test_more_calls_than_there_may_be_are_told_to_come_back(start_broker: StartBroker) -> None:
    broker = start_broker(*FLIGHT_SETTINGS, "reader.connections_max=2", "queues.large.kind=stream")
    with publisher(broker) as raw:
        publish(raw, b"$queue/large", [bytes(900_000)] * 40)  # more than gRPC takes ahead of its reader
    with connected(broker) as client:
        (info,) = client.list_flights(b'{"fresh": true}')
        first, second = [client.do_get(ticket(queue="large", rows=1)) for _ in range(2)]
        assert first.read_chunk().data.num_rows == second.read_chunk().data.num_rows == 1
        with pytest.raises(flight.FlightUnavailableError, match="2 calls are being served"):
            client.get_flight_info(info.descriptor)
        assert first.read_all().num_rows == 39
        client.wait_for_available(timeout=int(WAIT_S))  # its place is free when its call is over
        assert client.get_flight_info(info.descriptor).total_records == 40
        second.cancel()


def test_with_a_certificate_it_speaks_tls(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(key)
    tls = (f"reader.tls.cert_file={cert}", f"reader.tls.key_file={key}")
    broker = start_broker(*FLIGHT_SETTINGS, *tls, "queues.kept.kind=stream")
    port = broker.ports["flight"]
    assert f"flight grpc+tls://127.0.0.1:{port}" in broker.log()
    with flying(port, tls_root_certs=authority.cert_pem.bytes()) as client:
        client.wait_for_available(timeout=int(WAIT_S))
        assert [info.descriptor.path for info in client.list_flights()] == [[b"kept"]]


def test_it_is_off_unless_asked_for(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS)
    assert "flight" not in broker.ports
    assert "flight" not in broker.log()
