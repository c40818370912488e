"""The mark of a clean stop: it counts for the log it was written behind, once, and only whole."""

from __future__ import annotations

import pytest

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.marks.stop_mark import (
    FILE,
    NAME,
    StopMark,
    find_mark,
    remove_mark,
    write_mark,
)
from millstream.storage.records import queue_records
from millstream.storage.records.queue_records import QueueRecord
from simulation.disk import Mood, PowerCut, SimulatedDisk
from simulation.node import Node
from simulation.table import SimulatedTable
from simulation.workload import make_message

QUEUE = 7


class Bench:
    """Runs of a storage that holds one queue."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1)
        self.table = SimulatedTable()
        self.node = self.start()
        definition = queue_records.encode_queue(QUEUE, "default", "q", b'{"kind":"work"}')
        self.node.store.queue_fact(queue_records.QUEUE_SAVED, definition)

    def start(self) -> Node:
        self.node = Node(self.disk, self.table, NoFailpoints(), 1 << 16)
        return self.node

    def append(self, offset: int) -> None:
        self.node.store.queue_fact(queue_records.RECORD_APPENDED, make_body(offset))
        self.node.log.flush()
        self.node.writer.work()

    def crash(self, mood: Mood = Mood.NOTHING) -> None:
        self.disk = self.disk.crash(mood)

    def maybe_delivered_below(self) -> int:
        """As the next start sees it."""
        return self.start().state.queues[0].maybe_delivered_below


def make_body(offset: int) -> bytes:
    record = QueueRecord(offset, 1, 0, 0, b"", 0)
    return queue_records.encode_record(QUEUE, record, make_message(1), 0)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.append(0)
    bench.append(1)
    return bench


def test_a_mark_comes_back_as_it_was_written() -> None:
    disk = SimulatedDisk(1)
    write_mark(disk, StopMark(12345, {1: 10, 9: 2}))
    mark = find_mark(disk)
    assert mark is not None
    assert (mark.last_sequence, mark.maybe_delivered_below) == (12345, {1: 10, 9: 2})


@pytest.mark.parametrize("body", [b"", bytes(15), (1).to_bytes(8, "little") * 2 + bytes(15), bytes(17)])
def test_a_mark_that_says_too_little_or_too_much_is_none(body: bytes) -> None:
    disk = SimulatedDisk(1)
    disk.replace(NAME, FILE.encode(body))
    assert find_mark(disk) is None


def test_after_a_crash_everything_there_was_is_in_doubt(bench: Bench) -> None:
    bench.crash()
    assert bench.maybe_delivered_below() == 2


def test_after_a_clean_stop_nothing_is_in_doubt(bench: Bench) -> None:
    assert bench.node.stop()
    bench.crash()
    assert bench.maybe_delivered_below() == 0


def test_the_mark_is_gone_before_a_start_has_ended_even_if_nothing_is_written_after_it(bench: Bench) -> None:
    assert bench.node.stop()
    bench.start()
    bench.crash()
    assert bench.maybe_delivered_below() == 2


def test_doubt_outlives_a_clean_stop_and_does_not_grow(bench: Bench) -> None:
    bench.crash()
    assert bench.maybe_delivered_below() == 2
    bench.append(2)
    assert bench.node.stop()
    assert bench.maybe_delivered_below() == 2


def test_doubt_ends_with_the_records_it_was_about(bench: Bench) -> None:
    bench.crash()
    bench.start()
    bench.append(2)
    bench.node.store.queue_fact(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, 2))
    assert bench.node.stop()
    assert bench.maybe_delivered_below() == 0
    assert bench.node.maybe_delivered_below == {}


def test_a_mark_of_a_log_that_went_on_is_ignored(bench: Bench) -> None:
    assert bench.node.stop()
    mark = bench.disk.content(NAME)
    bench.start()
    bench.append(2)
    bench.disk.replace(NAME, mark)
    assert bench.maybe_delivered_below() == 3


def test_a_mark_of_a_log_that_has_lost_its_end_is_ignored(bench: Bench) -> None:
    bench.node.stop()
    write_mark(bench.disk, StopMark(int(bench.node.log.position) + 1, {}))
    assert bench.maybe_delivered_below() == 2


def test_a_mark_beside_a_damaged_log_is_ignored(bench: Bench) -> None:
    bench.append(2)
    assert bench.node.stop()
    name = bench.disk.names("log")[0]
    bench.disk.flip_bit(name, bench.disk.content(name).index(make_body(1)))
    assert bench.maybe_delivered_below() == 3
    assert bench.node.recovered.damage


@pytest.mark.parametrize("mood", list(Mood))
def test_power_that_goes_while_the_mark_is_written_leaves_doubt_or_a_whole_mark(mood: Mood) -> None:
    seen: set[int] = set()
    for step in range(1, 12):
        bench = Bench()
        bench.append(0)
        bench.append(1)
        bench.disk.cut_power_at = bench.disk.steps + step
        try:
            is_clean = bench.node.stop()
        except PowerCut:
            is_clean = False
        bench.crash(mood)
        maybe_delivered_below = bench.maybe_delivered_below()
        assert maybe_delivered_below == 0 or not is_clean
        seen.add(maybe_delivered_below)
    assert seen == {0, 2}


def test_a_mark_that_cannot_be_read_is_none() -> None:
    disk = SimulatedDisk(1)
    write_mark(disk, StopMark(1, {}))
    disk.fail_next("read")
    assert find_mark(disk) is None
    assert find_mark(disk) is not None


def test_a_mark_is_removed_for_good_and_may_be_missing() -> None:
    disk = SimulatedDisk(1)
    remove_mark(disk)
    write_mark(disk, StopMark(1, {}))
    write_mark(disk, StopMark(2, {}))
    found = find_mark(disk.crash(Mood.NOTHING))
    assert found is not None
    assert found.last_sequence == 2
    remove_mark(disk)
    assert find_mark(disk.crash(Mood.NOTHING)) is None
