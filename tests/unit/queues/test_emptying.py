"""What was settled out of order in a queue that lives in memory: it goes, however long those before it stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queue_world import QueueWorld

from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.queues.limits import drop_head, has_room
from millstream.queues.memtable import Memtable
from millstream.queues.queue import Queue


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def make_queue(world: QueueWorld, count: int, **fields: object) -> Queue:
    queue = world.declare(kind="ephemeral", **fields)
    for number in range(count):
        world.publish(queue, b"%d" % number * 100)
    return queue


def test_dropping_behind_an_open_delivery_makes_room(world: QueueWorld) -> None:
    queue = make_queue(world, 1000)
    consumer = world.join(queue, credit=1)
    world.loop()
    before = int(queue.size.bytes)
    for _ in range(500):
        assert drop_head(queue, False)
    assert len(consumer.got) == 1
    assert queue.depth() == 500
    assert int(queue.size.bytes) < before * 3 // 5
    consumer.settle(0)
    consumer.credit = 1000
    queue.reschedule()
    world.loop()
    assert consumer.offsets() == [0, *range(501, 1000)]
    consumer.settle_all()
    world.loop()
    assert int(queue.size.bytes) == 0


def test_what_was_answered_behind_an_open_delivery_needs_no_room(world: QueueWorld) -> None:
    queue = make_queue(world, 600)
    consumer = world.join(queue, credit=1000)
    world.loop()
    one = int(queue.size.bytes) // 500
    for pending in consumer.got[1:]:
        pending.group.settle(pending, Outcome.ACCEPTED, "")
    world.loop()
    assert queue.depth() == 1
    assert int(queue.size.bytes) < 2 * one


def test_what_all_groups_have_answered_needs_no_room_where_bytes_that_wait_are_bounded(
    world: QueueWorld,
) -> None:
    queue = make_queue(world, 600, overflow="reject", bytes_max=1_000_000, bounds_ready=True)
    one, other = world.join(queue, "one", credit=1000), world.join(queue, "other", credit=1000)
    world.loop()
    full = int(queue.size.bytes)
    for pending in one.got[1:]:
        pending.group.settle(pending, Outcome.ACCEPTED, "")
    assert int(queue.size.bytes) == full
    for pending in other.got[1:500]:
        pending.group.settle(pending, Outcome.ACCEPTED, "")
    rest = len(b"".join([b"%d" % number * 100 for number in (0, *range(500, 600))]))
    assert int(queue.size.bytes) == rest
    groups = list(queue.groups.values())
    assert [int(group.settled_bytes.bytes) for group in groups] == [rest - 100, 0], "of what is kept"
    assert has_room(queue, 1, 1_000_000)
    assert not has_room(queue, 1, 1_000_001), "all of it is with consumers"
    for consumer in (one, other):
        consumer.got[0].group.settle(consumer.got[0], Outcome.ACCEPTED, "")
        world.loop()
    assert [int(group.settled_bytes.bytes) for group in groups] == [0, 0]
    for pending in other.got[500:]:
        pending.group.settle(pending, Outcome.ACCEPTED, "")
    world.loop()
    assert int(queue.size.bytes) == 0


def test_a_group_that_comes_later_gets_nothing_that_has_gone(world: QueueWorld) -> None:
    queue = make_queue(world, 6)
    consumer = world.join(queue, credit=10)
    world.loop()
    for at in (1, 2, 4):
        consumer.settle(at)
    later = world.join(queue, "later", credit=10)
    world.loop()
    assert later.offsets() == [0, 3, 5]
    assert queue.find_record(2) == b""
    assert queue.find_record(3) != b""


def test_what_another_group_needs_stays(world: QueueWorld) -> None:
    queue = make_queue(world, 6)
    consumer = world.join(queue, credit=10)
    other = world.join(queue, "other", credit=2)
    world.loop()
    for at in (1, 2, 4):
        consumer.settle(at)
    other.credit = 10
    queue.reschedule()
    world.loop()
    assert other.offsets() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("has_other", [False, True])
def test_the_oldest_that_waits_is_dropped_also_when_it_came_back(world: QueueWorld, has_other: bool) -> None:
    queue = make_queue(world, 6)
    if has_other:
        world.join(queue, "other", credit=0)
    consumer = world.join(queue, credit=4)
    world.loop()
    assert drop_head(queue, False)  # 4: all before it are with the consumer
    consumer.credit = 0
    consumer.settle(1, Outcome.RELEASED)
    assert drop_head(queue, False)  # 1
    assert drop_head(queue, False)  # 5
    assert not drop_head(queue, False)
    assert [offset for offset in range(6) if queue.find_record(offset)] == [0, 2, 3]


def test_what_one_group_has_settled_and_another_waits_for_can_be_dropped(world: QueueWorld) -> None:
    queue = make_queue(world, 3)
    world.join(queue, "other", credit=0)
    consumer = world.join(queue, credit=3)
    world.loop()
    assert not drop_head(queue, False)  # all of them are with a consumer
    consumer.settle(1)
    assert drop_head(queue, False)
    assert [offset for offset in range(3) if queue.find_record(offset)] == [0, 2]


@given(st.lists(st.tuples(st.integers(0, 1200), st.integers(1, 400)), max_size=12), st.integers(0, 1200))
def test_a_tail_holds_what_was_not_taken_out_and_knows_its_size(
    gone: list[tuple[int, int]], below: int
) -> None:
    memtable = Memtable(0)
    for offset in range(1200):
        memtable.add_message(offset, Message(b"t", b"x" * (offset % 7), 1, False, b"", 0, ""), offset)
    left = dict.fromkeys(range(1200))
    for first, count in gone:
        last = min(1199, first + count - 1)
        sizes = [int(memtable.size_of(offset)) for offset in range(first, last + 1)]
        assert [size > 0 for size in sizes] == [offset in left for offset in range(first, last + 1)]
        assert int(memtable.empty(first, last)) == sum(sizes)
        for offset in range(first, last + 1):
            left.pop(offset, None)
    memtable.forget_below(below)
    for offset in range(below, 1200):
        assert memtable.is_emptied(offset) == (offset not in left)
        if offset in left:
            assert memtable.get_message(offset).payload == b"x" * (offset % 7)
    memtable.add_message(1200, Message(b"t", b"new", 1, False, b"", 0, ""), 1200)
    assert memtable.get_message(1200).payload == b"new"
    memtable.forget_below(1201)
    assert memtable.first <= memtable.end == 1201
