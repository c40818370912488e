"""Connections that nobody serves: new ones, idle ones, those in the middle of a head, and those that were refused.

They cost a descriptor and the bytes of an unfinished head each, and no thread and no place among those who are served;
so a client that sends its head slowly, or none, keeps nobody out.

Invariants
- At most `guests_max` are here. When one more comes, the address with the most of them loses the one that came first.
- Every stay has an end: `IDLE_S` without a byte, `HEAD_S` from accept through the TLS handshake and from the first byte of a
  head to its last, `LEAVE_S` behind a refusal.
- Who is sent away while it says something is told why.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from millstream.reader.http import HttpFault
from millstream.reader.http_answer import encode_fault
from millstream.runtime.transport.http_head import HEAD_BYTES_MAX, HEAD_END
from millstream.security.rate import address_key

IDLE_S: Final = 60.0  # between two requests
HEAD_S: Final = 10.0  # for a handshake, and from the first byte of a head to its last
LEAVE_S: Final = 2.0  # for a client to read why it was refused
RECEIVE: Final = 64 * 1024
SWEEP_S: Final = 0.25


class Stage(IntEnum):
    SECURING = 0  # its TLS handshake is under way
    IDLE = 1
    IN_HEAD = 2
    LEAVING = 3  # it was refused, and may still be sending


class Guest:
    """One connection; `unread` is what has come of its next request."""

    def __init__(self, link: socket.socket, address: str, unread: bytes = b"") -> None:
        self.socket = link
        self.address = address
        self.key = address_key(address)
        self.unread = unread
        self.stage = Stage.IDLE
        self.due_s = 0.0
        self.is_watched = False


class WaitingRoom:
    """`on_request` gets each connection whose head is whole; it gives a refusal when nobody can serve it now."""

    def __init__(
        self,
        on_request: Callable[[Guest], HttpFault | None],
        guests_max: int,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        self._on_request = on_request
        self._on_refused = on_refused  # gets its address
        self.unfinished: dict[str, int] = {}  # heads under way, by address, as of the last sweep
        self._guests_max = guests_max
        self._tls = tls
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._arriving: deque[Guest] = deque()
        self._guests: dict[str, dict[Guest, None]] = {}  # by address, in the order they came
        self._count = 0
        self._waker, self._bell = socket.socketpair()
        self._waker.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._is_closed = False

    @property
    def arriving(self) -> int:
        return len(self._arriving)

    def put(self, guest: Guest) -> None:
        """From any thread."""
        self._arriving.append(guest)
        self._wake()

    def close(self) -> None:
        """From any thread: `run` ends, and with it every connection that is here."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is awake already
            self._waker.send(b"x")

    def run(self) -> None:
        swept_s = self._clock()
        while not self._is_closed:
            for key, _ in self._selector.select(SWEEP_S):
                if key.data is None:
                    self._take_in()
                elif key.data.is_watched:  # it may have left for another that came in this round
                    self._read(key.data)
            now_s = self._clock()
            if now_s - swept_s >= SWEEP_S:
                swept_s = now_s
                self.sweep(now_s)
        for guests in list(self._guests.values()):
            for guest in list(guests):
                self._close(guest)
        self._selector.close()

    # ---------------------------------------------------------------- arriving

    def _take_in(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.recv(RECEIVE)
        while self._arriving:
            guest = self._arriving.popleft()
            if self._count >= self._guests_max:
                self._make_room()
            try:
                self._admit(guest)
            except OSError:
                guest.socket.close()  # gone already

    def _admit(self, guest: Guest) -> None:
        guest.socket.setblocking(False)
        now_s = self._clock()
        if self._tls is not None and not isinstance(guest.socket, ssl.SSLSocket):
            guest.socket = self._tls.wrap_socket(
                guest.socket, server_side=True, do_handshake_on_connect=False
            )
            guest.stage, guest.due_s = Stage.SECURING, now_s + HEAD_S
        elif guest.unread:
            guest.stage, guest.due_s = Stage.IN_HEAD, now_s + HEAD_S
        else:
            guest.stage, guest.due_s = Stage.IDLE, now_s + IDLE_S
        self._selector.register(guest.socket, selectors.EVENT_READ, guest)
        guest.is_watched = True
        self._guests.setdefault(guest.key, {})[guest] = None
        self._count += 1
        if HEAD_END in guest.unread:
            self._on_head(guest)  # nothing more may come: its thread read the whole head and found no place
        else:
            self._read(guest)  # all of it may be there; and TLS may hold what the kernel does not show

    def _make_room(self) -> None:
        """The address that is here most often gives a place up; those who are leaving anyway go first."""
        most = max(self._guests.values(), key=len)
        oldest = next((guest for guest in most if guest.stage is Stage.LEAVING), next(iter(most)))
        if oldest.stage is Stage.IN_HEAD:
            limit = f"{self._guests_max}: half of the limit on open files, `ulimit -n`, at most"
            text = f"limit of waiting connections reached ({limit})"
            self._tell(oldest, HttpFault(503, text, retry_after_s=1))
        self._close(oldest)

    # ----------------------------------------------------------------- reading

    def _read(self, guest: Guest) -> None:
        try:
            if guest.stage is Stage.SECURING:
                assert isinstance(guest.socket, ssl.SSLSocket)
                guest.socket.do_handshake()
                guest.stage = Stage.IDLE  # the time for its first head has begun with the handshake
            data = guest.socket.recv(RECEIVE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except ssl.SSLWantWriteError:
            return  # a handshake does not fill the buffers of a new connection; the sweep ends it if it does
        except OSError:
            self._close(guest)
            return
        if not data:
            self._close(guest)
        elif guest.stage is not Stage.LEAVING:
            self._on_data(guest, data)

    def _on_data(self, guest: Guest, data: bytes) -> None:
        if guest.stage is Stage.IDLE:
            guest.stage = Stage.IN_HEAD
            guest.due_s = min(guest.due_s, self._clock() + HEAD_S)
        seen = max(0, len(guest.unread) - len(HEAD_END) + 1)
        guest.unread += data
        at = guest.unread.find(HEAD_END, seen)
        if at > HEAD_BYTES_MAX or (at < 0 and len(guest.unread) > HEAD_BYTES_MAX):
            fault = HttpFault(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
            self._refuse(guest, fault)
        elif at >= 0:
            self._on_head(guest)

    def _on_head(self, guest: Guest) -> None:
        self._forget(guest)
        refusal = self._on_request(guest)
        if refusal is not None:
            self._watch_again(guest, refusal)

    def _watch_again(self, guest: Guest, refusal: HttpFault) -> None:
        try:
            guest.socket.setblocking(False)
            self._selector.register(guest.socket, selectors.EVENT_READ, guest)
        except OSError:
            guest.socket.close()
            return
        guest.is_watched = True
        self._guests.setdefault(guest.key, {})[guest] = None
        self._count += 1
        self._refuse(guest, refusal)

    # ----------------------------------------------------------------- leaving

    def sweep(self, now_s: float) -> None:
        self.unfinished = {
            guest.address: sum(each.stage is Stage.IN_HEAD for each in guests)
            for guests in self._guests.values()
            for guest in [next(iter(guests))]
        }
        due = [guest for guests in self._guests.values() for guest in guests if guest.due_s <= now_s]
        for guest in due:
            if guest.stage is Stage.IN_HEAD:
                fault = HttpFault(408, f"the head of the request took longer than {HEAD_S:.0f} seconds")
                self._refuse(guest, fault)
            else:
                self._close(guest)

    def _refuse(self, guest: Guest, fault: HttpFault) -> None:
        """Tell it, and read on for a moment: a connection closed over unread bytes takes its answer with it."""
        guest.stage = Stage.LEAVING
        guest.due_s = self._clock() + LEAVE_S
        guest.unread = b""
        if not self._tell(guest, fault):
            self._close(guest)

    def _tell(self, guest: Guest, fault: HttpFault) -> bool:
        """In one go: whoever leaves no room for some hundred bytes is not told."""
        if self._on_refused is not None:
            self._on_refused(guest.address)
        try:
            guest.socket.send(b"".join(encode_fault(fault, is_last=True)))
            if not isinstance(guest.socket, ssl.SSLSocket):
                guest.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True

    def _close(self, guest: Guest) -> None:
        self._forget(guest)
        with contextlib.suppress(OSError):
            guest.socket.close()

    def _forget(self, guest: Guest) -> None:
        if not guest.is_watched:
            return
        guest.is_watched = False
        self._selector.unregister(guest.socket)
        guests = self._guests[guest.key]
        del guests[guest]
        if not guests:
            del self._guests[guest.key]
        self._count -= 1
