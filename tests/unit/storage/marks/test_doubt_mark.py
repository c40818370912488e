"""The mark of doubt: it names sessions, all of them when it is unclear itself, and it goes for good."""

from __future__ import annotations

import pytest

from millstream.storage.marks.doubt_mark import (
    EVERY_SESSION,
    FILE,
    NAME,
    NO_SESSION,
    doubt_sessions,
    find_last_doubted,
    remove_mark,
    write_mark,
)
from millstream.storage.store import SessionKey, StoredSession, StoredState
from simulation.disk import Mood, SimulatedDisk


def make_state(*clients: str) -> StoredState:
    return StoredState([StoredSession(SessionKey("default", name), "", 60, 0) for name in clients], [], [])


NUMBERS = {("default", "a"): 3, ("default", "b"): 5, ("default", "c"): 4}


def doubted(state: StoredState) -> list[str]:
    return [session.key.client_id for session in state.sessions if session.may_lack_end]


def test_without_a_mark_no_session_is_named() -> None:
    assert find_last_doubted(SimulatedDisk(1)) == NO_SESSION


def test_a_mark_that_cannot_be_read_speaks_of_every_session() -> None:
    disk = SimulatedDisk(1)
    write_mark(disk, 7)
    disk.fail_next("read")
    assert find_last_doubted(disk) == EVERY_SESSION
    assert find_last_doubted(disk) == 7


@pytest.mark.parametrize("body", [b"", bytes(7)])
def test_a_mark_that_says_too_little_speaks_of_every_session(body: bytes) -> None:
    disk = SimulatedDisk(1)
    disk.replace(NAME, FILE.encode(body))
    assert find_last_doubted(disk) == EVERY_SESSION


@pytest.mark.parametrize("data", [b"", b"torn", FILE.encode(bytes(8))[:-1], FILE.encode(bytes(8)) + b"more"])
def test_a_mark_that_is_not_whole_speaks_of_every_session(data: bytes) -> None:
    disk = SimulatedDisk(1)
    disk.replace(NAME, data)
    assert find_last_doubted(disk) == EVERY_SESSION


@pytest.mark.parametrize("mood", list(Mood))
def test_a_mark_is_there_for_good_and_gone_for_good(mood: Mood) -> None:
    disk = SimulatedDisk(1)
    write_mark(disk, 7)
    disk = disk.crash(mood)
    assert find_last_doubted(disk) == 7
    write_mark(disk, 9)  # in its place
    disk = disk.crash(mood)
    assert find_last_doubted(disk) == 9
    remove_mark(disk)
    assert find_last_doubted(disk.crash(mood)) == NO_SESSION


def test_sessions_up_to_the_last_of_the_backup_are_in_doubt_and_later_ones_are_not() -> None:
    state = make_state("a", "b", "c")
    assert doubt_sessions(state, NUMBERS, 4)
    assert doubted(state) == ["a", "c"]


def test_without_a_session_of_the_backup_there_is_nothing_to_doubt() -> None:
    state = make_state("b")
    assert not doubt_sessions(state, NUMBERS, 4)
    assert not doubt_sessions(state, NUMBERS, NO_SESSION)
    assert doubted(state) == []


def test_every_session_is_in_doubt_where_the_mark_does_not_say_which() -> None:
    state = make_state("a", "b", "c")
    assert doubt_sessions(state, NUMBERS, EVERY_SESSION)
    assert doubted(state) == ["a", "b", "c"]
