"""The waiting room: heads are waited for without a thread, every stay has an end, and no address fills it alone."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from millstream.reader.http import HttpFault
from millstream.reader.waiting_room import HEAD_S, IDLE_S, LEAVE_S, Guest, WaitingRoom

WAIT_S = 20.0
HEAD = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Room:
    """A room that runs, a clock that a test moves, and what it has handed on."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.requests: list[Guest] = []
        self.is_handed_on = threading.Event()
        self.refusal: HttpFault | None = None
        self.room = WaitingRoom(self._take, 3, clock=lambda: self.now_s)
        self.thread = threading.Thread(target=self.room.run, daemon=True)
        self.thread.start()

    def _take(self, guest: Guest) -> HttpFault | None:
        if self.refusal is None:
            self.requests.append(guest)
            self.is_handed_on.set()
        return self.refusal

    def enter(self, address: str = "192.0.2.1", unread: bytes = b"") -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        self.room.put(Guest(theirs, address, unread))
        return ours


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.room.close()
    made.thread.join(WAIT_S)


def read_all(link: socket.socket) -> bytes:
    """What it is told before its end, empty for nothing."""
    parts = b""
    with contextlib.suppress(ConnectionResetError):  # closed over what it had sent
        while part := link.recv(1000):
            parts += part
    return parts


def read_status(link: socket.socket) -> bytes:
    return read_all(link)[9:12]


def test_a_whole_head_is_handed_on_with_what_stands_behind_it(room: Room) -> None:
    link = room.enter()
    link.sendall(HEAD[:10])
    link.sendall(HEAD[10:] + b"body")
    assert room.is_handed_on.wait(WAIT_S)
    assert room.requests[0].unread == HEAD + b"body"


def test_a_head_that_came_with_the_connection_is_finished_by_what_follows(room: Room) -> None:
    link = room.enter(unread=HEAD[:-2])
    link.sendall(HEAD[-2:])
    assert room.is_handed_on.wait(WAIT_S)
    assert room.requests[0].unread == HEAD


def test_a_whole_head_that_came_with_the_connection_waits_for_no_more_bytes(room: Room) -> None:
    link = room.enter(unread=HEAD)
    assert room.is_handed_on.wait(WAIT_S)
    assert room.requests[0].unread == HEAD
    link.close()


@pytest.mark.parametrize(("sent", "moved_s", "status"), [(b"GET", HEAD_S, b"408"), (b"", IDLE_S, b"")])
def test_every_stay_has_an_end(room: Room, sent: bytes, moved_s: float, status: bytes) -> None:
    link = room.enter()
    link.sendall(sent)
    witness = room.enter()  # it enters later: when it is handed on, the other was read
    witness.sendall(HEAD)
    assert room.is_handed_on.wait(WAIT_S)
    room.now_s += moved_s
    assert read_status(link) == status


def test_a_head_that_does_not_end_is_refused(room: Room) -> None:
    link = room.enter()
    link.sendall(HEAD[:-2] + b"X: " + b"y" * 20_000)
    assert read_status(link) == b"431"


def test_who_cannot_be_served_is_told_so_and_may_finish_sending(room: Room) -> None:
    room.refusal = HttpFault(503, "busy", retry_after_s=1)
    link = room.enter()
    link.sendall(HEAD + b"x" * 1000)
    assert read_status(link) == b"503"
    link.sendall(b"more")
    room.now_s += LEAVE_S
    room.refusal = None
    room.enter().sendall(HEAD)
    assert room.is_handed_on.wait(WAIT_S), "the room goes on"


def test_in_a_full_room_the_address_with_the_most_gives_way(room: Room) -> None:
    many = [room.enter("192.0.2.1") for _ in range(2)]
    for link in many:
        link.sendall(b"GET")
    few = room.enter("192.0.2.2")
    few.sendall(b"GET")
    newest = room.enter("192.0.2.2")
    told = read_all(many[0])
    assert told[9:12] in (b"503", b""), "of those, the one that came first"
    assert not told or b"reached (3: half of the limit on open files, `ulimit -n`, at most)" in told
    for link in (many[1], few, newest):
        room.is_handed_on.clear()
        link.sendall(HEAD[3:] if link is not newest else HEAD)
        assert room.is_handed_on.wait(WAIT_S)


def test_ipv6_addresses_of_one_customer_count_as_one(room: Room) -> None:
    first = room.enter("2001:db8::1")
    second = room.enter("2001:db8::2")
    other = room.enter("192.0.2.1")
    newest = room.enter("192.0.2.1")
    assert read_status(first) == b""
    for link in (second, other, newest):
        room.is_handed_on.clear()
        link.sendall(HEAD)
        assert room.is_handed_on.wait(WAIT_S)


def test_heads_under_way_are_counted_by_address_and_refusals_are_told() -> None:
    refused: list[str] = []
    made = WaitingRoom(lambda guest: HttpFault(503, "no place"), 10, on_refused=refused.append)
    links = []
    for unread in (HEAD[:10], HEAD[:20], b"", HEAD):
        ours, theirs = socket.socketpair()
        links.append(ours)
        made.put(Guest(theirs, "192.0.2.1", unread))
    made._take_in()
    made.sweep(0.0)
    assert made.unfinished == {"192.0.2.1": 2}
    assert refused == ["192.0.2.1"]
    for link in links:
        link.close()
