"""Sockets that are listened on: many connections are accepted in a turn of the loop, and never so many that others wait.

The loop's own servers accept one connection a turn (libuv does, since 1.45): a turn is long when much is to be done, and
newcomers would wait for as many turns as there are connections in front of them.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from millstream.broker.conditions import DESCRIPTORS_EXHAUSTED, LISTENER_FAILING
from millstream.runtime.gate import Gate

BACKLOG: Final = 4096
ACCEPTS_AT_ONCE: Final = 64
ACCEPT_PAUSE_S: Final = 0.5  # after one that failed, for want of descriptors

OnAccepted = Callable[[socket.socket, str], None]  # a connection, and the address of its peer


class Acceptor:
    """All addresses of one listener; has the face of `asyncio.Server` that a broker uses."""

    def __init__(self, gate: Gate, loop: asyncio.AbstractEventLoop, on_accepted: OnAccepted) -> None:
        self._gate = gate
        self._loop = loop
        self._on_accepted = on_accepted
        self.sockets: list[socket.socket] = []

    async def open(self, host: str, port: int) -> None:
        """OSError: an address cannot be listened on."""
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(infos):
                listening = socket.socket(family, kind, protocol)
                self.sockets.append(listening)
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
                listening.listen(BACKLOG)
        except OSError:
            self.close()
            raise
        self.start()

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
