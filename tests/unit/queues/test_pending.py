"""How long a consumer may keep a delivery: as the queue says, as it said itself, or for ever."""

from __future__ import annotations

import pytest
from queue_world import QueueWorld

from millstream.queues.queue import Queue


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


@pytest.fixture
def queue(world: QueueWorld) -> Queue:
    return world.declare(visibility_ms=1000)


def test_one_that_holds_for_ever_is_never_taken_back_from(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, hold_ms=-1)
    world.fill(queue, 2)
    world.move(10_000_000)
    assert (consumer.payloads(), consumer.open) == ([b"0", b"1"], 2)
    assert queue.counters.timed_out == 0


def test_what_is_held_for_ever_does_not_stop_the_time_of_others(world: QueueWorld, queue: Queue) -> None:
    keeper = world.join(queue, credit=1, hold_ms=-1)
    world.fill(queue, 1)
    other = world.join(queue, credit=1)
    world.fill(queue, 1, 1)
    world.move(1000)
    assert queue.counters.timed_out == 1
    assert (keeper.payloads(), other.payloads()) == ([b"0"], [b"1", b"1"])


@pytest.mark.parametrize("is_first", [True, False])
def test_each_has_its_own_time(world: QueueWorld, queue: Queue, is_first: bool) -> None:
    holds = [(5000, 5000), (0, 1000)]
    for hold_ms, _ in holds if is_first else holds[::-1]:
        world.join(queue, credit=1, hold_ms=hold_ms)
    world.fill(queue, 2)
    for consumer in world.group().consumers:
        consumer.credit = 0  # type: ignore[attr-defined]
    world.move(999)
    assert queue.unsettled() == 2
    world.move(1)
    assert queue.unsettled() == 1
    world.move(3999)
    assert queue.unsettled() == 1
    world.move(1)
    assert queue.unsettled() == 0
    assert queue.ready() == 2


def test_a_shorter_visibility_time_counts_at_once_but_not_for_who_said_otherwise(
    world: QueueWorld, queue: Queue
) -> None:
    for hold_ms in (0, 60_000, -1):
        world.join(queue, credit=1, hold_ms=hold_ms)
    world.fill(queue, 3)
    world.declare(visibility_ms=100)
    for consumer in world.group().consumers:
        consumer.credit = 0  # type: ignore[attr-defined]
    world.move(100)
    assert queue.unsettled() == 2
    world.move(60_000)
    assert queue.unsettled() == 1


def test_handed_over_is_accepted_where_the_consumer_says_so(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, credit=0)
    consumer.accepts_at_once = True
    consumer.credit = 1
    world.fill(queue, 5)
    assert len(consumer.got) == 5
    assert (consumer.open, queue.unsettled(), queue.depth()) == (0, 0, 0)
    consumer.settle_all()
    world.leave(queue, consumer)
    assert queue.depth() == 0


def test_what_was_accepted_by_being_handed_over_does_not_come_again_after_a_restart(
    world: QueueWorld, queue: Queue
) -> None:
    consumer = world.join(queue, credit=0)
    consumer.accepts_at_once = True
    consumer.credit = 1
    world.fill(queue, 3)
    world.restart()
    assert world.join(world.queue()).got == []
