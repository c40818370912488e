"""Shared subscriptions: what a member that goes away has not settled is handed to another one."""

from __future__ import annotations

import pytest
from fakes import FakeLine, World

from millstream.broker.session import Session
from millstream.broker.tasks import STEPS_PER_SLICE
from millstream.model.limits import NEVER_EXPIRES
from millstream.routing.router import LONG, NODES_PER_STEP

SHARED = b"$share/g/t"


def member(
    world: World, name: str, expiry_s: int = NEVER_EXPIRES, window: int = 65_535
) -> tuple[Session, FakeLine]:
    session, line = world.connect(name, expiry_s=expiry_s, window=window)
    world.subscribe(session, SHARED)
    return session, line


@pytest.mark.parametrize("expiry_s", [0, 100])
def test_unsettled_and_queued_deliveries_go_to_another_member_in_order(expiry_s: int) -> None:
    world = World()
    first, line = member(world, "first", expiry_s, window=2)
    for number in range(4):
        world.publish(b"t", b"%d" % number)
    assert line.payloads() == [b"0", b"1"]
    _, other = member(world, "other")
    world.drop(first)
    assert other.payloads() == [b"0", b"1", b"2", b"3"]
    assert not any(is_repeat for _, _, is_repeat in other.sent)
    assert world.account.counters.deliveries_handed_over == 4
    if expiry_s:
        _, again = world.connect("first", expiry_s=100)
        assert again.sent == []
        stored = {one.key.client_id: one for one in world.store.load().sessions}
        assert stored["first"].deliveries == {}
        assert len(stored["other"].deliveries) == 4


def test_exactly_once_that_has_begun_stays_with_its_receiver_and_what_waits_does_not() -> None:
    world = World()
    first, _line = member(world, "first", window=1)
    world.publish(b"t", b"begun", guarantee=2)
    world.publish(b"t", b"waits", guarantee=2)
    _, other = member(world, "other")
    world.drop(first)
    assert other.payloads() == [b"waits"]
    _, again = world.connect("first")
    assert again.sent == [(1, b"begun", True)]


def test_exactly_once_half_way_is_released_to_the_same_receiver() -> None:
    world = World()
    first, line = member(world, "first")
    world.publish(b"t", b"half", guarantee=2)
    first.on_received(line.ids()[0], False)
    _, other = member(world, "other")
    world.drop(first)
    assert other.sent == []
    _, again = world.connect("first")
    assert again.released == line.ids()


def test_a_lasting_session_keeps_its_share_while_no_other_member_is_there() -> None:
    world = World()
    first, _ = member(world, "first")
    absent, _ = member(world, "absent")
    world.drop(absent)
    world.publish(b"t", b"mine")
    world.drop(first)
    _, again = world.connect("first")
    assert again.sent == [(1, b"mine", True)]
    assert absent.queued_count() == 0


def test_a_session_that_ends_leaves_its_share_even_to_a_member_that_is_absent() -> None:
    world = World()
    first, _ = member(world, "first", expiry_s=10)
    world.publish(b"t", b"heritage")
    absent, _ = member(world, "absent")
    world.drop(absent)
    world.drop(first)
    assert absent.queued_count() == 0
    world.move(10)
    assert absent.queued_count() == 1
    _, line = world.connect("absent")
    assert line.payloads() == [b"heritage"]


def test_the_last_member_takes_its_share_with_it() -> None:
    world = World()
    first, _ = member(world, "first", expiry_s=0)
    world.publish(b"t")
    world.drop(first)
    assert world.account.counters.deliveries_handed_over == 0
    assert world.broker.session_count == 0


def test_ordinary_deliveries_are_nobody_elses() -> None:
    world = World()
    first, _ = member(world, "first")
    world.subscribe(first, b"own")
    world.publish(b"own", b"private")
    other, line = member(world, "other")
    world.subscribe(other, b"own")
    world.drop(first)
    assert line.sent == []
    _, again = world.connect("first")
    assert again.payloads() == [b"private"]


@pytest.mark.parametrize(
    ("own", "others"),
    [(b"$share/g/t", b"$share/g/+"), (b"$share/g/+", b"$share/g/t"), (b"$share/g/t", b"$share/h/t")],
)
def test_groups_and_filters_do_not_inherit_from_each_other(own: bytes, others: bytes) -> None:
    world = World()
    for name in (own, others):
        first, _ = world.connect("first", clean_start=True)
        world.subscribe(first, own)
        world.publish(b"t", b"mine")
        stranger, line = world.connect("stranger", clean_start=True)
        world.subscribe(stranger, others)
        if name is others:  # the order in which they came must not matter
            world.broker.unsubscribe(first, own)
            world.subscribe(first, own)
        world.drop(first)
        assert line.sent == []
        world.drop(stranger)


def test_what_has_expired_in_the_queue_is_not_handed_over() -> None:
    world = World()
    first, _line = member(world, "first", window=1)
    world.publish(b"t", b"sent")
    world.publish(b"t", b"short", expiry_s=5)
    _, other = member(world, "other")
    world.move(6)
    world.drop(first)
    assert other.payloads() == [b"sent"]
    assert world.account.counters.dropped_expired == 1


def test_a_message_goes_to_one_member_of_each_group_in_turn() -> None:
    world = World()
    lines = [member(world, name)[1] for name in ("a", "b", "c")]
    outsider, outside_line = world.connect("outsider")
    world.subscribe(outsider, b"$share/other/t")
    for number in range(9):
        world.publish(b"t", b"%d" % number)
    assert [len(line.sent) for line in lines] == [3, 3, 3]
    assert len(outside_line.sent) == 9


def test_absent_members_get_nothing_while_one_is_there() -> None:
    world = World()
    absent, _ = member(world, "absent")
    world.drop(absent)
    _, line = member(world, "there")
    for _ in range(4):
        world.publish(b"t")
    assert len(line.sent) == 4
    assert absent.queued_count() == 0


def crowd(world: World, count: int) -> tuple[Session, Session, FakeLine]:
    """One with so many deliveries that nobody has settled, and another of its group."""
    first, _ = member(world, "first", window=1)
    for number in range(count):
        world.publish(b"t", b"%d" % number)
    other, line = member(world, "other")
    return first, other, line


def test_very_many_deliveries_are_handed_over_in_slices() -> None:
    world = World()
    first, _other, line = crowd(world, 900)
    world.drop(first)
    assert 0 < len(line.sent) < STEPS_PER_SLICE // 2
    assert world.broker.tasks.count() == 1
    while world.broker.tasks.count():
        world.broker.tasks.work_off()
    assert first.queued_count() == 0
    assert world.account.counters.deliveries_handed_over == 900
    assert line.payloads() == [b"%d" % number for number in range(len(line.sent))]


def test_a_session_that_comes_back_keeps_what_was_not_handed_over_yet() -> None:
    world = World()
    first, other, line = crowd(world, 900)
    world.drop(first)
    taken = len(line.sent) + int(other.queued_count())
    _, again = world.connect("first", window=1)
    world.broker.tasks.work_off()
    assert world.broker.tasks.count() == 0
    assert world.account.counters.deliveries_handed_over == taken
    assert again.payloads() == [b"%d" % taken]
    assert first.queued_count() == 900 - taken - 1


def test_a_session_that_ends_before_all_was_handed_over_leaves_the_rest_to_others() -> None:
    world = World()
    first, _other, _line = crowd(world, 900)
    world.drop(first)
    world.broker.end_session(first)
    while world.broker.tasks.count():
        world.broker.tasks.work_off()
    assert world.account.counters.deliveries_handed_over == 900


@pytest.mark.parametrize("topic", [b"t", b"t" * (LONG + 1)], ids=["known", "long"])
def test_handing_over_does_not_look_at_other_groups(topic: bytes) -> None:
    world = World()
    first, _ = world.connect("first")
    for number in range(300):
        world.subscribe(first, b"$share/%d/%s" % (number, topic))
    world.publish(topic)
    before = int(world.account.router.visited)
    world.drop(first)
    while world.broker.tasks.count():
        world.broker.tasks.work_off()
    assert first.window.count + first.queued_count() == 300
    assert world.account.router.visited - before <= 300


def test_a_large_group_that_is_looked_through_for_each_delivery_takes_its_time() -> None:
    world = World()
    topic = b"t" * (LONG + 1)
    first, _ = world.connect("first")
    world.subscribe(first, b"$share/g/" + topic)
    for _ in range(20):
        world.publish(topic)
    for number in range(500):
        absent, _ = world.connect(f"absent{number}")
        world.subscribe(absent, b"$share/g/" + topic)
        world.drop(absent)
    before = int(world.account.router.visited)
    world.drop(first)
    looked = int(world.account.router.visited) - before
    assert 0 < looked <= STEPS_PER_SLICE * NODES_PER_STEP + 501
    assert world.broker.tasks.count() == 1
    while world.broker.tasks.count():
        world.broker.tasks.work_off()
    assert int(world.account.router.visited) - before == 20 * 501
