"""Bytes into many sockets as fast as the broker takes them, each at its own speed; what comes back is thrown away."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from typing import Final

from benchmarks.attack_suite.target import Target

WAIT_S: Final = 0.2
READ_BYTES: Final = 1 << 18


def pump(
    target: Target,
    sockets: Sequence[socket.socket],
    chunks: Sequence[bytes],
    *,
    rounds: int = 1 << 40,
    must_read: bool = True,
) -> dict[str, float]:
    """Socket n sends chunk n again and again (the last chunk serves the rest), until the end or so many rounds."""
    poll = select.epoll()
    streams: dict[int, _Stream] = {}
    mask = select.EPOLLOUT | (select.EPOLLIN if must_read else 0)
    for index, connection in enumerate(sockets):
        connection.setblocking(False)
        streams[connection.fileno()] = _Stream(connection, chunks[min(index, len(chunks) - 1)], rounds)
        poll.register(connection.fileno(), mask)
    sent = closed = 0
    while streams and not target.is_over():
        for descriptor, events in poll.poll(WAIT_S):
            stream = streams[descriptor]
            try:
                if events & ~select.EPOLLOUT and not stream.connection.recv(READ_BYTES):
                    raise ConnectionResetError
                if events & select.EPOLLOUT:
                    sent += stream.send()
            except BlockingIOError:
                continue
            except OSError:
                closed += 1
                stream.rounds = 0
            if stream.rounds <= 0:
                poll.unregister(descriptor)
                del streams[descriptor]
    poll.close()
    return {"sent_bytes": float(sent), "closed": float(closed)}


class _Stream:
    def __init__(self, connection: socket.socket, chunk: bytes, rounds: int) -> None:
        self.connection = connection
        self.rounds = rounds
        self._chunk = memoryview(chunk)
        self._rest = self._chunk

    def send(self) -> int:
        count = self.connection.send(self._rest)
        self._rest = self._rest[count:]
        if not self._rest:
            self._rest = self._chunk
            self.rounds -= 1
        return count
