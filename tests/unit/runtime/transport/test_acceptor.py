"""Listening sockets: many connections are accepted in a turn of the loop, and a lack of descriptors is told and waited out."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest
import structlog
import uvloop
from fake_transport import GateWorld

from millstream.broker.conditions import DESCRIPTORS_EXHAUSTED
from millstream.model.limits import Limits
from millstream.runtime.transport import acceptor as acceptor_module
from millstream.runtime.transport.acceptor import (
    ACCEPTS_AT_ONCE,
    UNSENT_BYTES_ALL,
    UNSENT_BYTES_MIN,
    Acceptor,
    PlainServer,
    find_unsent_max,
)
from millstream.runtime.transport.listeners import listen_fault

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


@pytest.mark.parametrize(
    ("connections", "size"),
    [
        (0, 0),
        (32, 0),
        (33, UNSENT_BYTES_ALL // 33),
        (1000, UNSENT_BYTES_ALL // 1000),
        (100_000, UNSENT_BYTES_MIN),
    ],
)
def test_the_kernel_keeps_less_output_for_each_of_many_connections(connections: int, size: int) -> None:
    assert find_unsent_max(connections) == size


@pytest.mark.parametrize("connections", [1, 1000])
def test_a_connection_that_is_accepted_gets_its_share_of_the_output_that_is_kept(
    runner: asyncio.Runner, connections: int
) -> None:
    async def accept() -> int:
        loop = asyncio.get_running_loop()
        gate = GateWorld(Limits()).gate
        gate.connections = connections
        accepted: asyncio.Future[socket.socket] = loop.create_future()
        acceptor = Acceptor(gate, loop, lambda link, address: accepted.set_result(link))
        await acceptor.open("127.0.0.1", 0)
        with socket.create_connection(acceptor.sockets[0].getsockname()), await accepted as link:
            acceptor.close()
            return link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)

    assert runner.run(accept()) == find_unsent_max(connections)


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


class WithoutFamily:
    """Makes sockets as a kernel does that has no addresses of one family; `fails_at` is where it says so."""

    def __init__(self, family: int, fails_at: str) -> None:
        self.family = family
        self.fails_at = fails_at

    def __call__(self, family: int, kind: int, protocol: int) -> socket.socket:
        if family != self.family:
            return socket.socket(family, kind, protocol)
        if self.fails_at == "socket":
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return Unbindable()


class Unbindable(socket.socket):
    def setsockopt(self, *_: object) -> None: ...

    def bind(self, _: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")


Addresses = list[tuple[int, str]]
TWO_FAMILIES: Addresses = [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]


class Resolver(asyncio.SelectorEventLoop):
    """Resolves every name to the addresses of the test."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__()
        self._addresses = addresses

    async def getaddrinfo(self, host: object, port: object, **_: object) -> list[object]:  # type: ignore[override]
        tcp = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(family, *tcp, (address, port)) for family, address in self._addresses]


def served_families(addresses: Addresses, kernel: WithoutFamily) -> list[int]:
    with asyncio.Runner(loop_factory=lambda: Resolver(addresses)) as runner:
        acceptor = Acceptor(GateWorld(Limits()).gate, runner.get_loop(), lambda link, address: None, kernel)
        runner.run(acceptor.open("broker.example", 0))
        families = [int(listening.family) for listening in acceptor.sockets]
        acceptor.close()
    return families


@pytest.mark.parametrize("fails_at", ["socket", "bind"])
def test_a_family_the_machine_does_not_have_is_left_out_and_told(fails_at: str) -> None:
    with structlog.testing.capture_logs() as lines:
        kernel = WithoutFamily(socket.AF_INET6, fails_at)
        assert served_families(TWO_FAMILIES, kernel) == [socket.AF_INET]
    assert [line["event"] for line in lines] == ["address_family_missing"]
    assert lines[0]["text"] == "broker.example port 0 is served over IPv4 only: this machine has no IPv6"


def test_a_listener_without_any_family_fails() -> None:
    class NoFamily(WithoutFamily):
        def __call__(self, family: int, kind: int, protocol: int) -> socket.socket:
            self.family = family
            return super().__call__(family, kind, protocol)

    with pytest.raises(OSError, match="not supported") as caught:
        served_families(TWO_FAMILIES, NoFamily(socket.AF_INET6, "socket"))
    fault = listen_fault("::1", 1883, caught.value, "mqtt", "mqtt.port")
    assert fault.key == "mqtt.host"
    assert fault.is_setting
    assert str(fault) == "::1 port 1883 cannot be listened on: Address family not supported by protocol"


def test_an_address_that_is_not_of_this_machine_fails_though_another_can_be_served() -> None:
    foreign: Addresses = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "192.0.2.1")]
    with pytest.raises(OSError, match="Cannot assign"):
        served_families(foreign, WithoutFamily(socket.AF_INET6, "socket"))
