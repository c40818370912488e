"""Offsets that were skipped after facts of the log were lost: they are no messages, and no limit counts them."""

from __future__ import annotations

import pytest
from queue_world import QueueWorld, purge

from millstream.broker.queue_access import find_start
from millstream.model.errors import Reason
from millstream.queues.queue import Queue

SKIPPED = 10_000
COUNT = 50


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def skip(world: QueueWorld, **fields: object) -> Queue:
    """A queue with COUNT records in segments and a gap behind them."""
    world.fill(world.declare(**fields), COUNT)
    world.restart(folded=1.0, skip=SKIPPED)
    return world.queue()


def offsets(queue: Queue) -> list[int]:
    """Of the records it keeps."""
    return [offset for offset in range(int(queue.first), int(queue.next)) if queue.find_record(offset)]


BEHIND = COUNT + SKIPPED


def test_retention_by_count_keeps_the_records_before_a_gap(world: QueueWorld) -> None:
    queue = skip(world, kind="stream", retention_count=60)
    world.fill(queue, 5)
    world.move(1000)
    assert offsets(queue) == [*range(COUNT), *range(BEHIND, BEHIND + 5)]
    world.fill(queue, 10)
    world.move(1000)
    assert offsets(queue) == [*range(5, COUNT), *range(BEHIND, BEHIND + 15)]
    assert queue.depth() == 60


def test_retention_by_size_lets_go_as_much_as_there_is_too_much(world: QueueWorld) -> None:
    queue = skip(world, kind="stream", retention_bytes=1 << 30)
    size = queue.size.bytes
    queue.definition.retention_bytes = int(size)
    world.fill(queue, 5)
    world.move(1000)
    assert len(offsets(queue)) in range(COUNT - 2, COUNT + 1)
    assert size * 0.9 < queue.size.bytes <= size


def test_a_gap_is_forgotten_once_the_head_has_passed_it(world: QueueWorld) -> None:
    queue = skip(world, kind="stream", retention_count=5)
    assert queue.gaps.count == SKIPPED
    world.fill(queue, 5)
    world.move(1000)
    assert (queue.first, queue.gaps.count, queue.depth()) == (BEHIND, 0, 5)


@pytest.mark.parametrize("overflow", ["drop_head", "reject"])
def test_a_limit_by_number_of_a_queue_without_groups_does_not_count_a_gap(
    world: QueueWorld, overflow: str
) -> None:
    queue = skip(world, length_max=52, overflow=overflow)
    assert (queue.depth(), queue.ready()) == (COUNT, COUNT)
    for _ in range(2):
        assert queue.find_refusal(world.message(queue, b"x")) is Reason.SUCCESS
        world.publish(queue, b"x")
    world.loop()
    assert offsets(queue) == [*range(COUNT), BEHIND, BEHIND + 1]
    if overflow == "reject":
        assert queue.find_refusal(world.message(queue, b"x")) is Reason.QUOTA_EXCEEDED
        return
    world.publish(queue, b"x")
    assert offsets(queue) == [*range(1, COUNT), BEHIND, BEHIND + 1, BEHIND + 2]
    assert queue.counters.dropped == 1


def test_the_head_moves_over_a_gap_in_one_step(world: QueueWorld) -> None:
    queue = skip(world, length_max=COUNT, overflow="drop_head")
    for _ in range(COUNT + 1):
        world.publish(queue, b"x")
    assert queue.first == BEHIND + 1
    assert queue.counters.dropped == COUNT + 1


@pytest.mark.parametrize("kind", ["work", "stream"])
def test_a_group_that_comes_later_does_not_count_a_gap(world: QueueWorld, kind: str) -> None:
    queue = skip(world, kind=kind)
    world.fill(queue, 3, COUNT)
    group = queue.get_group("late", b"")
    assert (group.lag(), group.ready()) == (COUNT + 3, COUNT + 3)
    consumer = world.join(queue, "late")
    assert consumer.payloads() == [b"%d" % number for number in range(COUNT + 3)]
    consumer.settle_all()
    assert (group.lag(), group.committed) == (0, BEHIND + 3)


def test_a_group_that_is_moved_back_does_not_count_a_gap(world: QueueWorld) -> None:
    queue = skip(world, kind="stream")
    group = queue.get_group("g", b"")
    group.commit(queue.next - 1)
    group.seek(40)
    assert group.lag() == 10
    group.seek(COUNT + 7)
    assert (group.lag(), group.committed) == (0, BEHIND)


def test_what_groups_and_counts_know_of_a_gap_is_the_same_after_another_start(world: QueueWorld) -> None:
    queue = skip(world)
    world.fill(queue, 3, COUNT)
    queue.get_group("late", b"")
    for folded in (0.0, 0.5, 1.0):
        world.restart(folded=folded)
        assert (world.group("late").lag(), world.queue().depth()) == (COUNT + 3, COUNT + 3)


def test_the_last_record_before_a_gap_is_the_last_one(world: QueueWorld) -> None:
    queue = skip(world, kind="stream")
    assert find_start(queue, b"last") == COUNT - 1


def test_a_purge_tells_how_many_messages_went(world: QueueWorld) -> None:
    queue = skip(world)
    assert purge(queue) == COUNT
    assert (queue.first, queue.depth()) == (BEHIND, 0)


def test_a_gap_in_what_is_in_memory_takes_no_room_and_no_young_record_with_it(world: QueueWorld) -> None:
    world.fill(world.declare(kind="stream", retention_age_s=10), COUNT)
    world.restart(skip=SKIPPED)  # all of it is in the log only
    queue = world.queue()
    world.fill(queue, 1)
    world.move(1000)
    assert offsets(queue) == [*range(COUNT), BEHIND]
    assert len(queue.memtable._blocks) == 2
    world.move(20_000)
    assert (queue.first, queue.depth()) == (BEHIND + 1, 0)
