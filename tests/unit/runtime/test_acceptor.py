"""Listening sockets: many connections are accepted in a turn of the loop, and a lack of descriptors is told and waited out."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest
import uvloop
from fake_transport import GateWorld

from millstream.broker.conditions import DESCRIPTORS_EXHAUSTED
from millstream.model.limits import Limits
from millstream.runtime import acceptor as acceptor_module
from millstream.runtime.acceptor import ACCEPTS_AT_ONCE, Acceptor, PlainServer

TURNS = 5  # accept, begin, connect, and two for the loop itself


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as made:  # the loop that a broker runs on
        yield made


def test_many_connections_are_accepted_in_one_turn(runner: asyncio.Runner) -> None:
    made: list[asyncio.Protocol] = []

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(self)

    async def count_served() -> int:
        server = PlainServer(GateWorld(Limits()).gate, asyncio.get_running_loop(), Greeter)
        await server.open("127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        clients = [socket.create_connection(address) for _ in range(ACCEPTS_AT_ONCE)]
        for _ in range(TURNS):
            await asyncio.sleep(0)
        server.close()
        for client in clients:
            client.close()
        return len(made)

    assert runner.run(count_served()) == ACCEPTS_AT_ONCE


class Exhausted(socket.socket):
    """Listens, and finds no descriptor until it is told otherwise."""

    is_exhausted = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.is_exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_without_descriptors_it_says_so_and_goes_on_when_there_are_some(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor_module, "ACCEPT_PAUSE_S", 0.001)

    async def accept_late() -> str:
        loop = asyncio.get_running_loop()
        gate = GateWorld(Limits()).gate
        accepted: asyncio.Future[str] = loop.create_future()
        acceptor = Acceptor(gate, loop, lambda link, address: accepted.set_result(address))
        listening = Exhausted()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        acceptor.sockets.append(listening)
        client = socket.create_connection(listening.getsockname())
        acceptor.start()
        while gate.health.find(DESCRIPTORS_EXHAUSTED) is None:  # noqa: ASYNC110 it tells nobody
            await asyncio.sleep(0)
        listening.is_exhausted = False
        address = await asyncio.wait_for(accepted, 20)
        client.close()
        acceptor.close()
        return address

    assert runner.run(accept_late()) == "127.0.0.1"
