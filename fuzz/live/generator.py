"""One process that makes connections as fast as the broker takes them: plain sockets and one epoll, no thread.

`python -m fuzz.live.generator` with its orders as JSON on standard input; a line of JSON with its counts on standard
output now and then. Connection number N comes from an address of its own, so that a line of the broker's log names it.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from typing import Any

from fuzz.live.conversations import make_numbered
from fuzz.live.script import Ending, Script

FIRST_ADDRESS = 0x7F010000  # 127.1.0.0: loopback takes all of 127.0.0.0/8
ADDRESSES = 0xFE0000
HOLD_S = 0.02  # after an answer, or beyond the usual time for one: what else the broker says, and does
PATIENCE = 3.0  # times the usual time until the first answer: who has none then will get none
PATIENCE_MAX_S = 2.0
SEND_S = 4.0  # a broker that does not read is not waited for longer
PROGRESS_S = 1.0
RESET = struct.pack("ii", 1, 0)
NO_PORT_YET = 24  # IP_BIND_ADDRESS_NO_PORT: the port is chosen when it connects, so that ports do not run out


def address_of(number: int) -> str:
    return socket.inet_ntoa(struct.pack(">I", FIRST_ADDRESS + number % ADDRESSES))


def number_of(address: str) -> int | None:
    """The connection that came from there, modulo ADDRESSES; None for an address of nobody here."""
    try:
        offset = int(struct.unpack(">I", socket.inet_aton(address))[0]) - FIRST_ADDRESS
    except OSError:
        return None
    return offset if 0 <= offset < ADDRESSES else None


def is_grant(data: bytes) -> bool:
    """Whether the broker let it in: a CONNACK, an Open-Ok, or a status that says so."""
    if data[:5] == b"HTTP/":
        return data[9:12] in (b"101", b"200")
    return (data[:1] == b"\x20" and data[3:4] == b"\x00") or b"\x00\x0a\x00\x29" in data


class Connection:
    def __init__(self, link: socket.socket, script: Script, now: float) -> None:
        self.socket = link
        self.script = script
        self.unsent = list(script.pieces)
        self.began = now
        self.give_up_at = now + SEND_S
        self.is_open = True
        self.has_answer = False
        self.is_granted = False
        self.is_handshaking = script.is_inside_tls


class Generator:
    def __init__(self, orders: dict[str, Any]) -> None:
        self._ports: dict[str, int] = orders["ports"]
        self._seed: int = orders["seed"]
        self._numbers = iter(range(orders["first"], orders["end"], orders["step"]))
        self._protocols: list[str] = orders["protocols"]
        self._open_max: int = orders["open_max"]
        self._poll = select.epoll()
        self._open: dict[int, Connection] = {}
        self._held: list[tuple[float, int, Connection]] = []  # a heap: until when
        self._answer_s = 0.05  # the usual time from the start of a connection to its first answer
        self._sending: deque[Connection] = deque()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._is_exhausted = False
        self.counts = {"made": 0, "answered": 0, "refused": 0, "given_up": 0, "granted": 0}

    def run(self) -> None:
        told = time.monotonic()
        while self._fill() or self._open:
            for descriptor, events in self._poll.poll(0.005, 256):
                connection = self._open.get(descriptor)
                if connection is not None:
                    self._on_events(connection, events)
            now = time.monotonic()
            self._end_due(now)
            if now - told >= PROGRESS_S:
                told = now
                self._tell()
        self._tell()

    def _tell(self) -> None:
        sys.stdout.write(json.dumps(self.counts) + "\n")
        sys.stdout.flush()

    # ---------------------------------------------------------------- beginning

    def _fill(self) -> bool:
        """Whether there are more to come."""
        begun = 0
        while not self._is_exhausted and len(self._open) < self._open_max and begun < 32:
            number = next(self._numbers, None)
            if number is None:
                self._is_exhausted = True
                break
            self._begin(number)
            begun += 1
        return not self._is_exhausted

    def _begin(self, number: int) -> None:
        script = make_numbered(self._seed, number, self._protocols)
        link = socket.socket()
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_IP, NO_PORT_YET, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.bind((address_of(number), 0))
        try:
            link.connect(("127.0.0.1", self._ports[script.listener]))
        except BlockingIOError:
            pass
        except OSError:
            self.counts["refused"] += 1
            link.close()
            return
        if script.is_inside_tls:
            link = self._tls.wrap_socket(link, do_handshake_on_connect=False)
        connection = Connection(link, script, time.monotonic())
        self._open[link.fileno()] = connection
        self._sending.append(connection)
        self._poll.register(link.fileno(), select.EPOLLIN | select.EPOLLOUT)

    # ------------------------------------------------------------------ serving

    def _on_events(self, connection: Connection, events: int) -> None:
        try:
            if connection.is_handshaking:
                assert isinstance(connection.socket, ssl.SSLSocket)
                connection.socket.do_handshake()
                connection.is_handshaking = False
            if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                data = connection.socket.recv(65536)
                if not data:
                    self._close(connection)
                    return
                self._note_answer(connection, data)
        except (BlockingIOError, ssl.SSLWantReadError):
            if connection.is_handshaking:
                self._poll.modify(connection.socket.fileno(), select.EPOLLIN)
                return
        except ssl.SSLWantWriteError:
            return
        except OSError:
            self._close(connection)
            return
        if connection.unsent:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        """One piece a turn: the broker may read what came before it."""
        piece = connection.unsent[0]
        try:
            sent = connection.socket.send(piece) if piece else 0
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self._close(connection)
            return
        if sent < len(piece):
            connection.unsent[0] = piece[sent:]
            return
        del connection.unsent[0]
        if not connection.unsent:
            self._on_sent(connection)
        elif connection.script.is_inside_tls:
            self._poll.modify(connection.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _on_sent(self, connection: Connection) -> None:
        ending = connection.script.ending
        self.counts["made"] += 1
        if ending in (Ending.CLOSE, Ending.RESET):
            self._close(connection)
            return
        if ending is Ending.HALF_CLOSE:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection.socket, socket.SHUT_WR)
        self._poll.modify(connection.socket.fileno(), select.EPOLLIN)
        self._hold(connection, 0.0 if connection.has_answer else PATIENCE * self._answer_s)

    def _hold(self, connection: Connection, more_s: float) -> None:
        due = time.monotonic() + HOLD_S + min(more_s, PATIENCE_MAX_S)
        heapq.heappush(self._held, (due, id(connection), connection))

    def _note_answer(self, connection: Connection, data: bytes) -> None:
        if not connection.has_answer:
            connection.has_answer = True
            self.counts["answered"] += 1
            self._answer_s += (time.monotonic() - connection.began - self._answer_s) / 50
            if not connection.unsent:
                self._hold(connection, 0.0)
        if not connection.is_granted and is_grant(data):
            connection.is_granted = True
            self.counts["granted"] += 1

    # ------------------------------------------------------------------- ending

    def _end_due(self, now: float) -> None:
        while self._held and self._held[0][0] <= now:
            connection = heapq.heappop(self._held)[2]
            if connection.is_open and not connection.has_answer:
                self._answer_s = min(self._answer_s * 1.04, PATIENCE_MAX_S)  # or it was too early to end it
            self._close(connection)
        while self._sending and (self._sending[0].give_up_at <= now or not self._sending[0].is_open):
            connection = self._sending.popleft()
            if connection.is_open and connection.unsent:
                self.counts["given_up"] += 1
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        if not connection.is_open:
            return
        connection.is_open = False
        if connection.unsent:
            self.counts["made"] += 1  # the broker ended it first
        del self._open[connection.socket.fileno()]
        if connection.script.ending in (Ending.RESET, Ending.WAIT_RESET):
            with contextlib.suppress(OSError):
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.socket.close()


if __name__ == "__main__":
    Generator(json.loads(sys.stdin.read())).run()
