"""A start that goes on past damage in the middle of the log gives no offset again that was given there."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, make_directory
from queue_world import QueueWorld

from millstream.storage.records import queue_records

COUNT = 50


@pytest.fixture
def made(tmp_path: Path) -> DataDirectory:
    """In its log ten records of the stream come before ten of the work queue."""
    return make_directory(tmp_path / "data")


def harm(made: DataDirectory, payload: bytes) -> None:
    path = sorted((made.folder / "log").glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    data[data.index(payload)] ^= 0xFF
    path.write_bytes(data)


def next_offsets(made: DataDirectory) -> list[int]:
    queues = made.read().queues.queues
    return [queues[number].next for number in (STREAM, WORK)]


def depths(made: DataDirectory) -> list[int]:
    world = QueueWorld()
    for queue in made.read().queues.queues.values():
        world.catalog.restore(queue)
    return [int(queue.depth()) for queue in world.catalog.queues.values()]


def test_a_queue_whose_last_record_is_damaged_goes_on_behind_it(made: DataDirectory) -> None:
    harm(made, b"49 of %d" % STREAM)
    made.start()
    assert made._next == {STREAM: COUNT, WORK: COUNT}  # that one appended behind the damage
    made.append(STREAM, 1)
    made.fold()
    made.stop()
    assert sorted(made.records(STREAM)) == [*range(49), COUNT]
    assert depths(made) == [COUNT, COUNT]
    assert made.damaged() == []


def test_a_queue_that_appends_nothing_more_goes_on_behind_it_after_the_log_is_folded(
    made: DataDirectory,
) -> None:
    harm(made, b"49 of %d" % STREAM)
    made.start()
    made.fold()
    made.stop()
    made.start()
    made.append(WORK, 1)
    made.stop()
    assert next_offsets(made) == [COUNT, COUNT + 1]
    assert depths(made) == [49, COUNT + 1]


def test_a_queue_of_which_no_record_is_lost_skips_as_many_as_may_be(made: DataDirectory) -> None:
    made.start()
    made.append(STREAM, 1)
    made.append(WORK, 3)
    made.settle(WORK, 5)
    made.stop()
    for offset in (50, 51, 52):
        harm(made, b"%d of %d" % (offset, WORK))
    made.start()
    assert made._next == {STREAM: COUNT + 1 + 3, WORK: COUNT + 3}


def test_what_groups_have_settled_behind_skipped_offsets_lets_segments_go(made: DataDirectory) -> None:
    made.start()
    made.append(WORK, 1)
    made.settle(WORK, 5)
    made.stop()
    harm(made, b"50 of %d" % WORK)
    made.start()
    made.append(WORK, 30)
    made.settle(WORK, 50)
    made.tell((queue_records.RECORDS_SETTLED, queue_records.encode_settled(WORK, 1, 51, 80)))
    made.fold()
    made.stop()
    assert made.damaged() == []
    table = made.read().queues.queues[WORK]
    assert (table.low_mark(), table.next) == (81, 81)
    assert len(made.segments(WORK)) <= 1


def test_the_end_of_a_file_that_another_one_follows_counts_as_lost(made: DataDirectory) -> None:
    made.start()
    made.append(STREAM, 2)
    made.append(WORK, 1)  # this and the last one are in the file that is damaged
    made.stop()
    path = sorted((made.folder / "log").glob("*.log"))[-1]
    made.start()
    made.tell()
    made.stop(is_clean=False)
    data = bytearray(path.read_bytes())
    data[data.index(b"50 of %d" % WORK)] ^= 0xFF
    path.write_bytes(data)
    made.start()
    assert made._next[WORK] == COUNT + 1
