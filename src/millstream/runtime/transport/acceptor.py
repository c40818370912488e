"""Sockets that are listened on: many connections are accepted in a turn of the loop, and never so many that others wait.

The loop's own servers accept one connection a turn (libuv does, since 1.45): a turn is long when much is to be done, and
newcomers would wait for as many turns as there are connections in front of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from typing import Final

import structlog

from millstream.broker.conditions import DESCRIPTORS_EXHAUSTED, LISTENER_FAILING
from millstream.runtime.transport.gate import Gate

BACKLOG: Final = 4096
ACCEPTS_AT_ONCE: Final = 64
ACCEPT_PAUSE_S: Final = 0.5  # after one that failed, for want of descriptors
# Output that the kernel has taken and not sent yet, of all connections together. For one that is not read it keeps up to
# 4 MiB, and when that is too much for the machine it drops packets of every connection.
UNSENT_BYTES_ALL: Final = 64 * 1024 * 1024
UNSENT_BYTES_MAX: Final = 2 * 1024 * 1024  # of one: a share that is larger needs no bound
UNSENT_BYTES_MIN: Final = 32 * 1024

OnAccepted = Callable[[socket.socket, str], None]  # a connection, and the address of its peer
MakeSocket = Callable[[int, int, int], socket.socket]  # of a family, a type and a protocol

_FAMILY_NAMES: Final = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_MISSING: Final = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL)


class Acceptor:
    """All addresses of one listener; has the face of `asyncio.Server` that a broker uses."""

    def __init__(
        self,
        gate: Gate,
        loop: asyncio.AbstractEventLoop,
        on_accepted: OnAccepted,
        make_socket: MakeSocket = socket.socket,
    ) -> None:
        self._gate = gate
        self._loop = loop
        self._on_accepted = on_accepted
        self._make_socket = make_socket
        self.sockets: list[socket.socket] = []

    async def open(self, host: str, port: int) -> None:
        """OSError: an address cannot be listened on. One of a family that this machine does not have is left out while
        there is another."""
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        missing: dict[socket.AddressFamily, OSError] = {}
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                try:
                    self._listen(family, kind, protocol, address)
                except OSError as error:
                    if error.errno not in _MISSING or self._has_family(family):
                        raise
                    missing[socket.AddressFamily(family)] = error
            for absent, fault in missing.items():
                if not self.sockets:
                    raise fault
                self._tell_missing(host, port, absent)
        except OSError:
            self.close()
            raise
        self.start()

    def _listen(self, family: int, kind: int, protocol: int, address: tuple[object, ...]) -> None:
        listening = self._make_socket(family, kind, protocol)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        self.sockets.append(listening)

    def _has_family(self, family: int) -> bool:
        """Whether this machine has addresses of the family at all: its loopback address can be bound."""
        try:
            with self._make_socket(family, socket.SOCK_STREAM, 0) as probe:
                probe.bind((_LOOPBACK[socket.AddressFamily(family)], 0))
        except OSError as error:
            return error.errno not in _MISSING
        return True

    def _tell_missing(self, host: str, port: int, family: socket.AddressFamily) -> None:
        served = ", ".join(sorted({_FAMILY_NAMES[listening.family] for listening in self.sockets}))
        text = f"{host} port {port} is served over {served} only: this machine has no {_FAMILY_NAMES[family]}"
        structlog.get_logger("millstream").warning("address_family_missing", text=text)

    def start(self) -> None:
        for listening in self.sockets:
            self._loop.add_reader(listening, self._on_acceptable, listening)

    def _on_acceptable(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                link, peer = listening.accept()
            except ConnectionError:
                continue  # gone before it was here
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._tell(listening, error)
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listening)
                return
            link.setblocking(False)
            _bound_unsent(link, self._gate.connections)
            self._on_accepted(link, str(peer[0]))

    def _tell(self, listening: socket.socket, error: OSError) -> None:
        host, port = listening.getsockname()[:2]
        cause = f"{host} port {port}: {error.strerror or error}"
        lacks = error.errno in (errno.EMFILE, errno.ENFILE)
        self._gate.health.report(DESCRIPTORS_EXHAUSTED if lacks else LISTENER_FAILING, cause)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._on_acceptable, listening)

    def close(self) -> None:
        for listening in self.sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)
            listening.close()
        self.sockets = []

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


def find_unsent_max(connections: int) -> int:
    """Bytes of output that the kernel may keep unsent for one of so many connections; 0: as many as it likes."""
    share = UNSENT_BYTES_ALL // max(1, connections)
    return 0 if share >= UNSENT_BYTES_MAX else max(UNSENT_BYTES_MIN, share)


def _bound_unsent(link: socket.socket, connections: int) -> None:
    size = find_unsent_max(connections)
    if size and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        with contextlib.suppress(OSError):  # it has gone already, as the loop will find
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)


class PlainServer(Acceptor):
    """Gives each connection a protocol at once."""

    def __init__(
        self, gate: Gate, loop: asyncio.AbstractEventLoop, make_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        super().__init__(gate, loop, self._begin)
        self._make_protocol = make_protocol
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself would not keep them

    def _begin(self, link: socket.socket, address: str) -> None:
        task = self._loop.create_task(self._connect(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, link: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, link)
        except OSError:  # it went before the loop had it
            link.close()
