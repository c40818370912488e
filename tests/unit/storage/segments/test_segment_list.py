"""The table names the segments of every queue: one that is missing, cut short or not its own is found without reading records."""

from __future__ import annotations

import pytest
from counting_disk import CountingDisk
from google_crc32c import value
from test_stream_gaps import COUNT, QUEUE, Stream

from millstream.storage.directory import check_queues
from millstream.storage.manifest import DAMAGED, FOREIGN, MISSING, NEWER
from millstream.storage.records import queue_records
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.segments.format import (
    HEADER_SIZE,
    RECORD_PREFIX,
    VERSION,
    index_name,
    segment_name,
)
from millstream.storage.segments.index import load_index
from millstream.storage.segments.inventory import LISTED, SegmentInventory, list_all, load_lists
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.table.checkpoint import load_queues


def make_stream(kind: str = "stream", word: bytes = b".") -> Stream:
    made = Stream(kind, word)
    made.table.put(LISTED, b"\1")
    assert len(made.firsts()) > 3
    return made


@pytest.fixture(params=["stream", "work"])
def queue(request: pytest.FixtureRequest) -> Stream:
    return make_stream(request.param)


def check(queue: Stream) -> SegmentInventory:
    return check_queues(queue.disk, queue.table)


def kinds(queue: Stream) -> list[tuple[int, str]]:
    return [(found.first, found.fault.kind) for found in check(queue).faults]


def test_nothing_is_wrong_with_what_checkpoints_leave(queue: Stream) -> None:
    for first in range(COUNT, COUNT + 20, 5):
        queue.append(range(first, first + 5))
        queue.fold()
        found = check(queue)
        assert (found.faults, found.damage) == ([], [])
    assert list(load_lists(queue.table)[QUEUE]) == queue.firsts()


@pytest.mark.parametrize("kind", ["stream", "work"])
def test_each_segment_that_is_gone_is_missed_whatever_its_queue_is(kind: str) -> None:
    firsts = make_stream(kind).firsts()
    for at, first in enumerate(firsts):
        one = make_stream(kind)
        one.lose(first)
        (found,) = check(one).faults
        end = firsts[at + 1] if at + 1 < len(firsts) else COUNT
        assert (found.first, found.end, found.fault.kind) == (first, end, MISSING)


def test_a_segment_that_is_cut_short_or_empty_is_named(queue: Stream) -> None:
    first = queue.firsts()[-1]
    name = segment_name(QUEUE, first)
    whole = queue.disk.content(name)
    for size in (0, 31, 32, len(whole) // 2, len(whole) - 1):
        queue.disk.replace(name, whole[:size])
        assert kinds(queue) == [(first, DAMAGED)]
    queue.disk.replace(name, whole + b"what a checkpoint that died has written")
    assert kinds(queue) == []


def test_a_segment_of_another_directory_is_told_by_its_first_record(queue: Stream) -> None:
    other = make_stream("stream", b"-")
    for first in queue.firsts():
        name = segment_name(QUEUE, first)
        own = queue.disk.content(name)
        queue.disk.replace(name, other.disk.content(name))
        assert kinds(queue) == [(first, FOREIGN)]
        queue.disk.replace(name, other.disk.content(name)[: len(own) - 1])  # and shorter than it must be
        assert kinds(queue) == [(first, FOREIGN)]
        queue.disk.replace(name, own)


def test_a_segment_in_the_place_of_another_is_told_by_its_header(queue: Stream) -> None:
    first, second = queue.firsts()[:2]
    queue.disk.replace(segment_name(QUEUE, first), queue.disk.content(segment_name(QUEUE, second)))
    assert kinds(queue) == [(first, FOREIGN)]


def test_a_file_that_the_table_does_not_name_is_not_ours(queue: Stream) -> None:
    content = queue.disk.content(segment_name(QUEUE, queue.firsts()[0]))
    for first in (1, COUNT):  # the second is behind all that was committed: a checkpoint may have died
        queue.disk.create(segment_name(QUEUE, first), 0)
        queue.disk.replace(segment_name(QUEUE, first), content)
    assert kinds(queue) == [(1, FOREIGN)]


def test_damage_that_leaves_the_other_records_readable_is_no_fault(queue: Stream) -> None:
    first = queue.firsts()[0]
    for offset in (3, 50):
        queue.disk.flip_bit(segment_name(QUEUE, first), offset, 1)
        found = check(queue)
        assert not found.faults
        assert [damage.name for damage in found.damage] == [segment_name(QUEUE, first)]
        queue.disk.flip_bit(segment_name(QUEUE, first), offset, 1)


def test_a_segment_of_a_newer_release_is_named_and_the_others_are_looked_at(queue: Stream) -> None:
    first, second = queue.firsts()[:2]
    make_newer(queue, first)
    queue.lose(second)
    assert kinds(queue) == [(first, NEWER), (second, MISSING)]


def make_newer(queue: Stream, first: int) -> None:
    content = queue.disk.content(segment_name(QUEUE, first))
    head = content[:4] + (VERSION + 1).to_bytes(4, "little") + content[8:24]
    queue.disk.replace(
        segment_name(QUEUE, first), head + value(head).to_bytes(8, "little") + content[HEADER_SIZE:]
    )


@pytest.mark.parametrize("is_packed", [False, True])
def test_of_a_good_segment_only_headers_and_the_head_of_its_first_record_are_read(is_packed: bool) -> None:
    """However large the record is: a start looks at every segment."""
    large = 200_000
    queue = Stream("stream", b"." * (large // 30), is_packed)
    queue.table.put(LISTED, b"\1")
    counting = CountingDisk(queue.disk)
    found = check_queues(counting, queue.table)
    assert (found.faults, found.damage) == ([], [])
    assert counting.bytes_read <= len(queue.firsts()) * (
        3 * HEADER_SIZE + (2000 if is_packed else RECORD_PREFIX.size)
    )
    assert counting.listed == 1


def test_an_index_that_is_missing_or_damaged_is_named(queue: Stream) -> None:
    first, second = queue.firsts()[:2]
    queue.disk.remove(index_name(QUEUE, first))
    queue.disk.flip_bit(index_name(QUEUE, second), 9, 1)
    found = check(queue)
    assert not found.faults
    assert [damage.name for damage in found.damage] == [index_name(QUEUE, first), index_name(QUEUE, second)]


def test_an_index_of_another_directory_is_not_believed() -> None:
    queue, other = make_stream(), make_stream("stream", b"longer")
    first = queue.firsts()[0]
    assert other.firsts()[0] == first
    queue.disk.replace(index_name(QUEUE, first), other.disk.content(index_name(QUEUE, first)))
    assert load_index(queue.disk, QUEUE, first).positions
    reader = SegmentReader(queue.disk)
    found = reader.read(QUEUE, 0, COUNT, COUNT, 1 << 20)
    assert (len(found.bodies), found.damage) == (COUNT, [])
    reader.close()


def test_what_is_trimmed_or_removed_is_taken_off_the_list() -> None:
    queue = make_stream()
    queue.tell(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, queue.firsts()[2]))
    queue.fold()
    assert kinds(queue) == []
    assert list(load_lists(queue.table)[QUEUE]) == queue.firsts()
    queue.tell(queue_records.QUEUE_REMOVED, queue_records.encode_number(QUEUE))
    queue.fold()
    assert load_lists(queue.table) == {}
    assert kinds(queue) == []


def test_a_directory_of_an_earlier_release_is_listed_as_it_is(queue: Stream) -> None:
    expected = {first: (listed.size, listed.mark) for first, listed in load_lists(queue.table)[QUEUE].items()}
    last = segment_name(QUEUE, queue.firsts()[-1])
    queue.disk.replace(last, queue.disk.content(last) + b"never committed")
    queues = QueueFold()
    load_queues(queue.table, queues)
    list_all(queue.disk, queue.table, queues.queues)
    assert {f: (s.size, s.mark) for f, s in load_lists(queue.table)[QUEUE].items()} == expected
