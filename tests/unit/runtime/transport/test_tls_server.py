"""The door of TLS listeners: who has sent a whole ClientHello may wait for a place, and nobody else."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import cast

from fake_transport import GateWorld

from millstream.broker.conditions import HANDSHAKES_FULL
from millstream.model.limits import Limits
from millstream.runtime.transport.tcp import TcpConnection
from millstream.runtime.transport.tls_server import (
    HELLO_MAX,
    HELLO_MIN,
    READS_NS,
    READS_PER_LOOK,
    Arrival,
    TlsDoor,
    TlsServer,
    has_peer_closed,
    hello_length,
)

HELLO = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252]) + bytes(508)


class Visit:
    """A connection at a door that has no place to give: who may have one waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handshake_timeout_ms: int = 10_000) -> None:
        world = GateWorld(Limits(tls_handshakes_max=0, handshake_timeout_ms=handshake_timeout_ms))
        self.gate = world.gate
        self.time_ns = 0  # 0: as it is
        self.door = TlsDoor(world.gate, loop, lambda: self.time_ns or time.monotonic_ns())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server = TlsServer(self.door, context, lambda: TcpConnection(world.gate))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.theirs = socket.create_connection(listening.getsockname())
            self.ours, _ = listening.accept()
        self.ours.setblocking(False)
        self.door.take_in(self.server, self.ours, "192.0.2.1")

    @property
    def wanted(self) -> int:
        """Bytes that the kernel waits for before it tells the loop."""
        return self.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    @property
    def waits_for_place(self) -> bool:
        return self.door.admission.has_waiting

    @property
    def arrival(self) -> Arrival:
        return next(iter(self.door._arrivals))

    async def has_come(self) -> None:
        """What was sent has reached our socket; nobody has looked at it."""
        while not select.select([self.ours], [], [], 1)[0]:  # noqa: ASYNC110 the loop must not see it
            await asyncio.sleep(0)

    @property
    def told(self) -> str:
        found = self.gate.health.find(HANDSHAKES_FULL)
        return "" if found is None else found.cause

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 the loop tells nobody
            await asyncio.sleep(0)

    def close(self) -> None:
        self.server.close()
        self.theirs.close()


def test_only_a_whole_hello_may_wait_for_a_place() -> None:
    async def visit() -> None:
        guest = Visit(asyncio.get_running_loop())
        assert guest.wanted == HELLO_MIN
        guest.theirs.sendall(HELLO[:100])
        await guest.wait_until(lambda: guest.wanted > HELLO_MIN or guest.waits_for_place)
        assert guest.wanted == len(HELLO)
        assert not guest.waits_for_place
        guest.theirs.sendall(HELLO[100:])
        await guest.wait_until(lambda: guest.waits_for_place)
        guest.close()

    asyncio.run(visit())


def test_a_connection_that_ends_while_it_waits_for_a_place_is_forgotten() -> None:
    async def visit() -> None:
        guest = Visit(asyncio.get_running_loop())
        guest.theirs.sendall(HELLO)
        await guest.wait_until(lambda: guest.waits_for_place)
        guest.close()  # as a time-out does
        assert not guest.waits_for_place
        assert guest.gate.strangers == 0
        assert guest.gate.connections == 0

    asyncio.run(visit())


def test_one_that_stalls_and_is_closed_for_others_is_told() -> None:
    async def visit() -> None:
        guest = Visit(asyncio.get_running_loop())
        stalled = Arrival(guest.server, socket.socket(), "192.0.2.9", 0)
        guest.door.admission.restore(stalled, 0)
        guest.theirs.sendall(HELLO)
        await guest.wait_until(lambda: guest.door.admission.held == 0)
        assert guest.told == (
            "TLS handshakes wait for a place (mqtt.max_tls_handshakes = 0, half of it for one address); "
            "the first that stalled came from 192.0.2.9"
        )
        stalled.socket.close()
        guest.close()

    asyncio.run(visit())


def test_one_whose_time_is_over_before_it_has_a_place_is_told_and_counted() -> None:
    async def visit() -> None:
        guest = Visit(asyncio.get_running_loop(), handshake_timeout_ms=0)
        guest.theirs.sendall(HELLO)
        await guest.wait_until(lambda: guest.waits_for_place)
        guest.door._on_sweep()
        assert guest.told.endswith("the first that found none in time came from 192.0.2.1")
        assert not guest.waits_for_place
        assert guest.gate.abandoned.take() == {"192.0.2.1": 1}
        guest.close()

    asyncio.run(visit())


def test_the_length_of_a_hello_is_known_from_its_first_bytes() -> None:
    head = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252])
    assert hello_length(head) == 5 + 512
    assert hello_length(head[:1]) == HELLO_MIN
    assert hello_length(head[:8]) == HELLO_MIN
    largest = bytes([22, 3, 1]) + (HELLO_MAX - 5).to_bytes(2, "big") + bytes([1, 0, 0, 0])
    assert hello_length(largest) == HELLO_MAX
    for other in (
        b"",
        b"\x10\x20\x00\x04MQTT\x04",
        b"GET / HTTP/1.1",
        bytes([22, 2, 1, 2, 0, 1, 0, 1, 252]),  # no version of TLS
        bytes([22, 3, 1, 2, 0, 2, 0, 1, 252]),  # no ClientHello
        bytes([22, 3, 1, 0, 0, 1, 0, 0, 0]),
        bytes([22, 3, 1, 255, 255, 1, 0, 0, 0]),
    ):
        assert hello_length(other) == 0, other


def test_those_for_whom_a_turn_has_no_time_wait_for_the_next_one() -> None:
    async def visit() -> None:
        guest = Visit(asyncio.get_running_loop())
        guest.theirs.sendall(HELLO)
        await guest.has_come()
        guest.time_ns = int(guest.gate.clock.read_ns()) + READS_NS
        for _ in range(READS_PER_LOOK):
            guest.door._has_time()
        guest.door._on_readable(guest.arrival)
        assert guest.wanted == HELLO_MIN
        await guest.wait_until(lambda: guest.wanted == len(HELLO))
        await guest.wait_until(lambda: guest.waits_for_place)
        guest.close()

    asyncio.run(visit())


class DeafLoop:
    """The one that runs, but for a socket that the system does not let it watch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.unwatched: socket.socket | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)

    def add_reader(self, link: socket.socket, call: Callable[[Arrival], None], arrival: Arrival) -> None:
        if link is self.unwatched:
            raise OSError(errno.ENOMEM, "no memory")
        self._loop.add_reader(link, call, arrival)


def test_one_that_cannot_be_watched_again_keeps_nobody_waiting_behind_it() -> None:
    async def visit() -> None:
        loop = DeafLoop(asyncio.get_running_loop())
        guest = Visit(cast("asyncio.AbstractEventLoop", loop))
        first = guest.arrival
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
        ours.setblocking(False)
        guest.door.take_in(guest.server, ours, "192.0.2.2")
        second = list(guest.door._arrivals)[1]
        theirs.sendall(HELLO)
        guest.time_ns = int(guest.gate.clock.read_ns()) + READS_NS
        for _ in range(READS_PER_LOOK):
            guest.door._has_time()
        for arrival in (first, second):
            guest.door._on_readable(arrival)
        loop.unwatched = guest.ours
        async with asyncio.timeout(5):
            await guest.wait_until(lambda: guest.waits_for_place)
        assert list(guest.door._arrivals) == [second]
        assert guest.gate.strangers == 1
        guest.close()
        theirs.close()

    asyncio.run(visit())


def test_who_closes_in_the_middle_of_a_hello_is_forgotten_at_the_first_look() -> None:
    async def visit() -> None:
        guest = Visit(asyncio.get_running_loop())
        guest.theirs.sendall(HELLO[:100])
        guest.theirs.close()
        while not has_peer_closed(guest.ours):  # noqa: ASYNC110 the loop must not see it
            await asyncio.sleep(0)
        guest.door._look(guest.arrival)
        assert guest.gate.strangers == 0

    asyncio.run(visit())
