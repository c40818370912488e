from __future__ import annotations

from random import Random

from fakes import World

from millstream.broker.schedule import Schedule
from millstream.broker.session import Session
from millstream.broker.will import Will
from millstream.model.message import Message


def absent_sessions(count: int) -> list[Session]:
    world = World()
    sessions = []
    for number in range(count):
        session, _ = world.connect(f"client-{number}")
        session.line = None
        sessions.append(session)
    return sessions


def test_deadlines_come_in_their_order_and_never_early() -> None:
    one, two, three = absent_sessions(3)
    one.expires_ns, two.expires_ns, three.expires_ns = 100, 200, 100
    schedule = Schedule()
    assert schedule.next_ns() == 0
    for session in (two, one, three):
        schedule.update(session)
    assert schedule.next_ns() == 100
    assert schedule.take_due(99, 10) == []
    assert schedule.take_due(100, 10) == [one, three]
    assert schedule.next_ns() == 200
    assert schedule.take_due(10_000, 10) == [two]
    assert schedule.take_due(10_000, 10) == []


def test_a_will_that_is_due_before_its_session_expires_comes_first() -> None:
    (one,) = absent_sessions(1)
    one.expires_ns = 300
    one.will = Will(Message(b"t", b"", 0, False, b"", 0, ""), 1, 0)
    schedule = Schedule()
    schedule.update(one)
    assert schedule.next_ns() == 300, "its owner has not left: the will has no time yet"
    one.will.due_ns = 200
    schedule.update(one)
    assert schedule.next_ns() == 200
    one.will = None
    schedule.update(one)
    assert schedule.next_ns() == 300


def test_a_session_that_comes_and_goes_is_there_once() -> None:
    (one,) = absent_sessions(1)
    schedule = Schedule()
    for number in range(1, 1000):
        one.expires_ns = number * 1000
        schedule.update(one)
        assert schedule.count() == 1
        one.expires_ns = 0
        schedule.update(one)
        assert schedule.count() == 0


def test_a_session_that_has_ended_waits_for_nothing() -> None:
    one, two = absent_sessions(2)
    one.expires_ns, two.expires_ns = 100, 200
    schedule = Schedule()
    schedule.update(one)
    schedule.update(two)
    one.is_ended = True
    schedule.update(one)
    assert schedule.take_due(1000, 10) == [two]


def test_any_order_of_changes_leaves_the_deadlines_in_order() -> None:
    random = Random(7)
    sessions = absent_sessions(50)
    schedule = Schedule()
    for _ in range(2000):
        session = random.choice(sessions)
        session.expires_ns = random.choice([0, random.randrange(1, 10_000)])
        schedule.update(session)
    wanted = sorted(session.expires_ns for session in sessions if session.expires_ns)
    assert schedule.count() == len(wanted)
    assert [session.expires_ns for session in schedule.take_due(10_000, 100)] == wanted
    assert schedule.count() == 0
