"""The control of `bench queues`: a real process, spoken to by the publishers of the load generator."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from benchmarks.load.queue_mqtt import QUEUE_TOPIC, MqttPublisher, connect_mqtt
from benchmarks.load.queue_parties import read_exactly
from benchmarks.queue_suite.bare_server import BareServer
from benchmarks.suite.brokers import BrokerFault

PAYLOAD_BYTES = 256
ANSWER_BYTES = 4


@pytest.fixture
def server() -> Iterator[BareServer]:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    made = BareServer(min(os.sched_getaffinity(0)))
    with made:
        yield made


def connect(server: BareServer) -> MqttPublisher:
    return MqttPublisher(connect_mqtt("127.0.0.1", server.port, "one", True), QUEUE_TOPIC, PAYLOAD_BYTES)


def take_answers(publisher: MqttPublisher, count: int) -> int:
    """How many bytes the publisher took as confirms in the right order."""
    answer = bytearray(read_exactly(publisher.connection, count * ANSWER_BYTES))
    return publisher.take(answer, len(answer))


def test_every_publish_is_confirmed_by_its_packet_id_and_lies_in_the_file(server: BareServer) -> None:
    publisher = connect(server)
    packets = b""
    for sequence in range(300):
        packets += publisher.encode(sequence)
        publisher.sent += 1
    publisher.connection.sendall(packets)
    assert take_answers(publisher, 300) == 300 * ANSWER_BYTES
    assert publisher.confirmed == 300
    assert (server.folder / "records").read_bytes()[: len(packets)] == packets
    publisher.close()


def test_a_publish_that_comes_in_pieces_is_confirmed_once_and_whole(server: BareServer) -> None:
    first, second = connect(server), connect(server)
    packet = first.encode(0)
    first.connection.sendall(packet[:100])
    second.publish(1, 1)
    assert take_answers(second, 1) == ANSWER_BYTES  # a round went by that had only the first piece
    first.connection.sendall(packet[100:])
    first.sent = 1
    assert take_answers(first, 1) == ANSWER_BYTES
    stored = (server.folder / "records").read_bytes()
    assert stored[len(packet) : 2 * len(packet)] == packet
    first.close()
    second.close()


def test_a_publisher_that_leaves_does_not_end_the_server(server: BareServer) -> None:
    connect(server).close()
    publisher = connect(server)
    publisher.publish(0, 1)
    assert take_answers(publisher, 1) == ANSWER_BYTES
    publisher.close()


def test_without_a_compiler_the_server_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BrokerFault, match="apt-get install gcc"), BareServer(0):
        pass
