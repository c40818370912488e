"""What a stream lets go, and where a time lies in it."""

from __future__ import annotations

import pytest
from queue_world import WALL_OFFSET_NS, QueueWorld

from millstream.model.message import NANOSECONDS
from millstream.model.outcome import Outcome
from millstream.queues.definition import NUMBER_MAX
from millstream.queues.memtable import Memtable
from millstream.queues.queue import Queue
from millstream.queues.retention import find_young

START_WALL_NS = WALL_OFFSET_NS + 1000 * NANOSECONDS


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def fill_by_seconds(world: QueueWorld, queue: Queue, count: int) -> None:
    """One record a second, the first at the start of the world."""
    for number in range(count):
        world.publish(queue, b"%d" % number)
        world.loop()
        world.move(1000)


def test_a_stream_without_a_bound_is_kept(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    world.fill(queue, 100)
    world.move(10 * 365 * 86_400_000)
    assert (queue.first, queue.depth()) == (0, 100)


def test_an_age_beyond_all_time_keeps_everything(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", retention_age_s=NUMBER_MAX)
    world.fill(queue, 5)
    world.move(2000)
    assert (queue.first, queue.depth()) == (0, 5)


def test_by_count(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", retention_count=10)
    world.fill(queue, 25)
    world.move(1000)
    assert (queue.first, queue.depth()) == (15, 10)


def test_by_age(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", retention_age_s=5)
    fill_by_seconds(world, queue, 10)
    assert queue.first == 5
    world.move(100_000)
    assert queue.depth() == 0


@pytest.mark.parametrize("sizes", [[100] * 50, [10] * 100 + [1000] * 10, [1000] * 10 + [10] * 100])
def test_by_bytes_the_bound_holds_whatever_the_sizes(world: QueueWorld, sizes: list[int]) -> None:
    queue = world.declare(kind="stream", retention_bytes=5000)
    for size in sizes:
        world.publish(queue, b"x" * size)
    world.loop()
    world.move(1000)
    kept = sum(len(queue.find_record(offset)) for offset in range(int(queue.first), int(queue.next)))
    before = len(queue.memtable.get(queue.first - 1))
    assert queue.size.bytes == kept
    assert 5000 - before < kept <= 5000


def test_a_work_queue_has_no_retention(world: QueueWorld) -> None:
    queue = world.declare(retention_count=1)
    world.fill(queue, 5)
    world.move(5000)
    assert queue.depth() == 5


def test_groups_move_up_with_the_begin(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", retention_count=3)
    consumer = world.join(queue, credit=2)
    world.fill(queue, 10)
    old = consumer.got[0]
    world.move(1000)
    assert (world.group().committed, consumer.offsets()) == (7, [0, 1, 7, 8])
    old.group.settle(old, Outcome.ACCEPTED, "")
    assert world.group().committed == 7


def test_what_was_trimmed_is_gone_after_a_restart(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", retention_count=3)
    world.fill(queue, 10)
    world.move(1000)
    world.restart()
    assert world.join(world.queue()).offsets() == [7, 8, 9]


@pytest.mark.parametrize("folded", [0.0, 0.4, 1.0])
def test_a_time_is_found_in_memory_and_in_segments(world: QueueWorld, folded: float) -> None:
    queue = world.declare(kind="stream")
    fill_by_seconds(world, queue, 10)
    world.restart(folded)
    queue = world.queue()
    for second in range(10):
        wall_ns = START_WALL_NS + second * NANOSECONDS
        assert find_young(queue, wall_ns) == second
        assert find_young(queue, wall_ns + 1) == second + 1
    assert find_young(queue, 0) == 0


def test_segments_that_hold_more_than_is_kept_take_nothing_away(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", retention_age_s=1000)
    fill_by_seconds(world, queue, 10)
    world.restart(0.6)
    queue = world.queue()
    queue.trim(2)
    world.move(5000)
    assert queue.first == 2
    assert find_young(queue, START_WALL_NS) == 2


# ---------------------------------------------------------------------- tail


def test_the_tail_gives_back_whole_blocks() -> None:
    memtable = Memtable(10)
    for offset in range(10, 1000):
        memtable.add(offset, offset, b"%d" % offset)
    memtable.forget_below(300)
    assert memtable.first == 256
    assert memtable.get(256) == b"256"
    assert memtable.forget_folded(600, 256) == sum(len(b"%d" % offset) for offset in range(256, 512))
    assert (memtable.first, memtable.end) == (512, 1000)
    assert memtable.get(999) == b"999"


def test_the_last_block_stays_even_if_nobody_needs_it() -> None:
    memtable = Memtable(0)
    for offset in range(20):
        memtable.add(offset, offset, b"x")
    memtable.forget_below(20)
    memtable.forget_folded(1000, 0)
    memtable.add(20, 20, b"y")
    assert (memtable.first, memtable.get(20)) == (0, b"y")


def test_a_gap_in_the_tail_is_nothing() -> None:
    memtable = Memtable(5)
    memtable.add(5, 1, b"a")
    memtable.add(300, 2, b"b")
    assert (memtable.get(5), memtable.get(6), memtable.get(299), memtable.get(300)) == (b"a", b"", b"", b"b")
    assert memtable.size_between(5, 301) == 2
