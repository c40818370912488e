"""A stream that lacks offsets is noticed, whichever file is gone; what was trimmed, or told of before, is not."""

from __future__ import annotations

import pytest
from folded_stream import COUNT, QUEUE, SEGMENT_SIZE, Stream, make_body
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.offset_gaps import GAP, load_gaps, note_gap
from millstream.storage.records import queue_records
from millstream.storage.segments.stream_gaps import find_all_gaps
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.table.checkpoint import find_removed


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    assert len(made.firsts()) > 3
    assert made.gaps() == []
    return made


def test_each_segment_that_is_gone_is_a_gap_of_exactly_its_offsets(stream: Stream) -> None:
    firsts = [*stream.firsts(), COUNT]
    for at in range(len(firsts) - 1):
        one = Stream()
        one.lose(firsts[at])
        assert one.gaps() == [(firsts[at], firsts[at + 1] - 1)]


def test_two_that_follow_each_other_are_one_gap(stream: Stream) -> None:
    firsts = stream.firsts()
    stream.lose(firsts[1])
    stream.lose(firsts[2])
    assert stream.gaps() == [(firsts[1], firsts[3] - 1)]


def test_a_stream_without_any_segment_lacks_everything(stream: Stream) -> None:
    for first in stream.firsts():
        stream.lose(first)
    assert stream.gaps() == [(0, COUNT - 1)]


def test_a_gap_is_still_noticed_when_records_came_behind_it(stream: Stream) -> None:
    """The next record goes behind what is left, so that the gap is inside a segment then."""
    last = stream.firsts()[-1]
    stream.lose(last)
    stream.append(range(COUNT, COUNT + 2))
    stream.fold()
    assert stream.gaps() == [(last, COUNT - 1)]


def test_records_that_never_came_out_of_a_damaged_log_are_a_gap(stream: Stream) -> None:
    stream.append(range(COUNT + 3, COUNT + 5))
    stream.fold()
    assert stream.gaps() == [(COUNT, COUNT + 2)]


def test_what_was_trimmed_is_no_gap(stream: Stream) -> None:
    _, lost, end = stream.firsts()[:3]
    stream.lose(lost)
    stream.tell(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, lost + 1))
    stream.fold()
    assert stream.gaps() == [(lost + 1, end - 1)]
    stream.tell(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, end))
    stream.fold()
    assert stream.gaps() == []


def test_records_trimmed_before_they_got_to_a_segment_are_no_gap(stream: Stream) -> None:
    stream.append(range(COUNT, COUNT + 10))
    stream.tell(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, COUNT + 5))
    stream.fold()
    assert stream.gaps() == []


def test_what_a_checkpoint_that_died_left_behind_the_end_is_no_gap(stream: Stream) -> None:
    writer = SegmentWriter(stream.disk, NoFailpoints(), SEGMENT_SIZE)
    writer.append(QUEUE, make_body(COUNT + 5))
    writer.finish()
    assert stream.gaps() == []


def test_a_work_queue_may_lack_what_was_settled() -> None:
    work = Stream("work")
    work.lose(work.firsts()[1])
    assert work.gaps() == []


def test_a_gap_that_was_noted_is_not_told_again_but_a_wider_one_is(stream: Stream) -> None:
    firsts = stream.firsts()
    stream.lose(firsts[2])
    for gap in find_all_gaps(stream.disk, stream.table):
        assert gap.sentence() == f"the offsets {gap.first} to {gap.last} of the queue 'history'"
        note_gap(stream.table, QUEUE, gap.first, gap.last)
    assert stream.gaps() == []
    stream.lose(firsts[1])
    stream.lose(firsts[3])
    end = firsts[4] if len(firsts) > 4 else COUNT
    assert stream.gaps() == [(firsts[1], firsts[2] - 1), (firsts[3], end - 1)]


@given(known=st.sets(st.integers(0, COUNT - 1)), lost=st.sets(st.integers(0, 9)))
def test_of_any_gaps_exactly_what_was_not_noted_is_told(known: set[int], lost: set[int]) -> None:
    stream = Stream()
    firsts = [*stream.firsts(), COUNT]
    missing: set[int] = set()
    for at in [at for at in lost if at < len(firsts) - 1]:
        stream.lose(firsts[at])
        missing |= set(range(firsts[at], firsts[at + 1]))
    for offset in known:
        if offset - 1 not in known:
            last = next(end for end in range(offset, COUNT) if end + 1 not in known)
            note_gap(stream.table, QUEUE, offset, last)
    told = [offset for first, last in stream.gaps() for offset in range(first, last + 1)]
    assert told == sorted(missing - known)


def test_what_was_noted_goes_with_its_queue(stream: Stream) -> None:
    stream.lose(stream.firsts()[1])
    for gap in find_all_gaps(stream.disk, stream.table):
        note_gap(stream.table, QUEUE, gap.first, gap.last)
    assert load_gaps(stream.table, QUEUE)
    stream.tell(queue_records.QUEUE_REMOVED, queue_records.encode_number(QUEUE))
    stream.fold()
    assert stream.table.items(GAP) == []


def test_nothing_in_the_table_tells_of_a_queue_once_its_files_are_gone(stream: Stream) -> None:
    stream.tell(queue_records.QUEUE_REMOVED, queue_records.encode_number(QUEUE))
    stream.fold()
    assert stream.firsts() == []
    assert find_removed(stream.table.crash()) == []
