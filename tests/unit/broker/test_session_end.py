"""A session that ends with very much: nobody waits until all of it is gone."""

from __future__ import annotations

from fakes import World

from millstream.broker.broker import DUE_PER_TICK
from millstream.broker.session import Session
from millstream.broker.tasks import STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.model.message import NANOSECONDS

FILTERS = 5000


def make_session(world: World, name: str, filters: int = FILTERS, expiry_s: int = 0) -> Session:
    session, _ = world.connect(name, expiry_s=expiry_s)
    for number in range(filters):
        world.subscribe(session, b"%s/%d" % (name.encode(), number))
    return session


def count(world: World) -> int:
    return int(world.account.router.tree.count)


def finish(world: World) -> int:
    """Turns until nothing is left, each of which removes no more than it may."""
    turns = 0
    while world.broker.tasks.count():
        before = count(world)
        world.broker.tasks.work_off()
        assert before - count(world) <= STEPS_PER_TURN + STEPS_PER_SLICE
        turns += 1
    return turns


def test_subscriptions_of_an_ended_session_are_removed_in_slices() -> None:
    world = World()
    session = make_session(world, "c")
    world.drop(session)
    assert FILTERS - STEPS_PER_SLICE <= count(world) < FILTERS
    assert "c" not in world.account.sessions
    assert finish(world) >= 1
    assert count(world) == 0


def test_many_sessions_that_end_in_one_turn_share_its_time() -> None:
    world = World()
    sessions = [make_session(world, f"c{number}", 1500) for number in range(20)]
    for session in sessions:
        world.drop(session)
    assert 20 * 1500 - count(world) <= STEPS_PER_TURN + STEPS_PER_SLICE
    assert finish(world) >= 2
    assert count(world) == 0


def test_a_session_that_has_ended_takes_nothing_while_its_subscriptions_go() -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=0)
    for number in range(FILTERS):
        world.subscribe(session, b"t/%d" % number)
    world.drop(session)
    world.publish(b"t/%d" % (FILTERS - 1), b"x", 1)
    world.publish(b"t/%d" % (FILTERS - 1), b"x", 0)
    assert session.queued_count() == 0
    again, line = world.connect("c", expiry_s=0)
    world.subscribe(again, b"t/0")
    finish(world)
    world.publish(b"t/0", b"new", 1)
    assert [payload for _, payload, _ in line.sent] == [b"new"]


def test_a_share_does_not_leave_messages_to_a_member_that_has_ended() -> None:
    world = World()
    ended, _ = world.connect("a", expiry_s=0)
    for number in range(FILTERS):
        world.subscribe(ended, b"own/%d" % number)
    world.subscribe(ended, b"$share/g/t")
    absent, _ = world.connect("b", expiry_s=60)
    world.subscribe(absent, b"$share/g/t")
    world.drop(absent)
    world.drop(ended)
    assert world.broker.tasks.count() == 1
    for number in range(4):
        world.publish(b"t", b"%d" % number, 1)
    assert absent.queued_count() == 4


def test_very_many_sessions_that_expire_at_once_end_over_several_ticks() -> None:
    world = World()
    for number in range(DUE_PER_TICK + 100):
        session, _ = world.connect(f"c{number}", expiry_s=5)
        world.drop(session)
    later = world.now_ns + 10 * NANOSECONDS
    world.broker.on_tick(later, 0)
    assert world.broker.session_count == 100
    world.broker.on_tick(later, 0)
    assert world.broker.session_count == 0


def make_heir(world: World) -> tuple[Session, Session]:
    """A session with 900 deliveries of a share group, and an absent one that is to get them when it ends."""
    first, _ = world.connect("first", window=1)
    world.subscribe(first, b"$share/g/t")
    for _ in range(900):
        world.publish(b"t")
    absent, _ = world.connect("absent")
    world.subscribe(absent, b"$share/g/t")
    world.drop(absent)
    return first, absent


def test_deliveries_of_an_ended_session_go_to_others_in_slices_although_the_store_has_forgotten_it() -> None:
    world = World()
    first, absent = make_heir(world)
    world.drop(first)
    world.broker.end_session(first)
    assert 0 < absent.queued_count() < 900
    assert world.broker.tasks.count() > 0
    while world.broker.tasks.count():
        world.broker.tasks.work_off()
    assert absent.queued_count() == 900
    assert count(world) == 1


def test_a_session_that_takes_the_place_of_an_ended_one_keeps_its_own_deliveries() -> None:
    world = World()
    _, absent = make_heir(world)
    again, _ = world.connect("first", clean_start=True)
    assert world.broker.tasks.count() > 0, "what its predecessor had is still being handed over"
    world.subscribe(again, b"own")
    for _ in range(900):
        world.publish(b"own")
    while world.broker.tasks.count():
        world.broker.tasks.work_off()
    assert absent.queued_count() == 900
    stored = {one.key.client_id: one for one in world.store.load().sessions}
    assert len(stored["first"].deliveries) == 900
