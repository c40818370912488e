"""Clients that close a connection while it is not read are found, and reach their end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest
from fake_transport import FakeTransport, GateWorld
from fakes import MEMORY_LIMIT

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, Publish, Subscribe, SubscribeEntry
from millstream.runtime.transport.closed_peers import TICKS
from millstream.runtime.transport.tcp import TcpConnection


class SocketTransport(FakeTransport):
    """One that has a real socket, which nobody reads."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        self._extra["socket"] = end  # type: ignore[attr-defined]


class Peers:
    def __init__(self) -> None:
        self.world = GateWorld()
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            self.client = socket.create_connection(listener.getsockname())
            self.end = listener.accept()[0]
        self.transport = SocketTransport(self.end)
        self.link = TcpConnection(self.world.gate)
        self.link.connection_made(self.transport)
        self.receive(encode_packet(Connect(4, "c", True, 0), 4))
        self.receive(encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4))

    def receive(self, data: bytes) -> None:
        self.link.data_received(data)
        self.world.settle_down()

    def wait_for_memory(self) -> None:
        self.world.use_memory(75)
        self.publish_much()
        assert not self.transport.is_reading_now

    def publish_much(self) -> None:
        self.receive(encode_packet(Publish(b"t", bytes(100_000)), 4))

    def look(self) -> None:
        for _ in range(TICKS + 1):
            self.world.gate.closed_peers.on_tick()
        self.world.settle_down()

    def reset(self) -> None:
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.close()


@pytest.fixture
def peers() -> Iterator[Peers]:
    found = Peers()
    yield found
    found.client.close()
    found.end.close()


def test_a_client_that_is_there_waits_on(peers: Peers) -> None:
    peers.wait_for_memory()
    peers.look()
    assert not peers.transport.is_reading_now


def test_one_that_has_closed_its_side_is_read_to_the_end_though_memory_is_short(peers: Peers) -> None:
    peers.wait_for_memory()
    peers.client.close()
    peers.look()
    assert peers.transport.is_reading_now
    assert peers.world.gate.memory_waiters == {}
    peers.publish_much()
    assert peers.transport.is_reading_now


def test_one_that_has_closed_its_side_is_ended_at_once_when_memory_is_critical(peers: Peers) -> None:
    peers.wait_for_memory()
    peers.client.close()
    peers.world.use_memory(95)
    peers.look()
    assert peers.transport.is_aborted


def test_one_that_is_being_read_to_the_end_is_ended_when_memory_becomes_critical(peers: Peers) -> None:
    peers.wait_for_memory()
    peers.client.close()
    peers.look()
    peers.world.meter.resident = MEMORY_LIMIT * 95 // 100
    peers.world.broker.memory.look()
    peers.publish_much()
    assert peers.transport.is_aborted


@pytest.mark.parametrize("waits_for", ["memory", "an outlet"])
def test_one_that_has_reset_its_connection_is_ended_whatever_it_waits_for(
    peers: Peers, waits_for: str
) -> None:
    if waits_for == "memory":
        peers.wait_for_memory()
    else:
        peers.link.pause_reading()
    peers.reset()
    peers.look()
    assert peers.transport.is_aborted


def test_one_that_has_closed_its_side_and_waits_for_an_outlet_waits_on(peers: Peers) -> None:
    peers.link.pause_reading()
    peers.client.close()
    peers.look()
    assert not peers.transport.is_reading_now
    assert not peers.transport.is_aborted
