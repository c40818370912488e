"""Very many records that go at once are freed a few at a time."""

from __future__ import annotations

from queue_world import QueueWorld, purge

from millstream.queues.memtable import BLOCKS_PER_TURN, SHIFT

RECORDS_PER_BLOCK = 1 << int(SHIFT)
BLOCKS = 3 * BLOCKS_PER_TURN


def fill(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    message = world.message(queue, b"x")
    for _ in range(BLOCKS * RECORDS_PER_BLOCK + 1):
        queue.append(message)
    world.loop()


def turns_to_free(world: QueueWorld) -> int:
    turns = 0
    while world.scheduler.garbage.count():
        before = world.scheduler.garbage.count()
        assert world.scheduler.work_off() == (before > BLOCKS_PER_TURN)
        assert before - world.scheduler.garbage.count() <= BLOCKS_PER_TURN
        turns += 1
    return turns


def test_the_records_of_a_purged_queue_are_freed_over_several_turns() -> None:
    world = QueueWorld()
    fill(world)
    assert purge(world.queue()) == BLOCKS * RECORDS_PER_BLOCK + 1
    assert world.queue().depth() == 0
    assert world.scheduler.garbage.count() == BLOCKS
    assert turns_to_free(world) == 3
