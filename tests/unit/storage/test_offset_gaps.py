"""Gaps against a set of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.offset_gaps import OffsetGaps
from millstream.storage.records.stored_queue import StoredQueue

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=6)


def make(ranges: list[tuple[int, int]]) -> tuple[OffsetGaps, set[int]]:
    gaps = OffsetGaps()
    model: set[int] = set()
    for first, length in ranges:
        gaps.add(first, first + length)
        model.update(range(first, first + length + 1))
    return gaps, model


@given(RANGES, st.integers(0, 80), st.integers(0, 80))
def test_records_are_the_offsets_in_no_gap(ranges: list[tuple[int, int]], first: int, length: int) -> None:
    gaps, model = make(ranges)
    found = gaps.records_between(first, first + length)
    assert found == len([offset for offset in range(first, first + length) if offset not in model])


@given(RANGES, st.integers(0, 80), st.integers(0, 30))
def test_going_on_counts_records_and_ends_at_one(
    ranges: list[tuple[int, int]], offset: int, records: int
) -> None:
    gaps, model = make(ranges)
    kept = [place for place in range(offset, 300) if place not in model]
    assert gaps.go_on(offset, records) == kept[records]


@given(RANGES, st.integers(0, 80))
def test_what_is_forgotten_counts_no_more(ranges: list[tuple[int, int]], low: int) -> None:
    gaps, model = make(ranges)
    gaps.forget_below(low)
    assert gaps.count == len([offset for offset in model if offset >= low])


@given(RANGES, st.integers(1, 80))
def test_the_last_below_an_end_is_in_no_gap(ranges: list[tuple[int, int]], end: int) -> None:
    gaps, model = make(ranges)
    kept = [offset for offset in range(end) if offset not in model]
    assert gaps.last_below(end) == (kept[-1] if kept else -1)


def test_a_stored_queue_keeps_its_bytes_by_its_records_and_not_by_its_offsets() -> None:
    queue = StoredQueue(1, "default", "q", b'{"kind":"stream"}')
    queue.next = 100
    queue.bytes = 10_000
    queue.skip_to(100_000)
    queue.trim(50)
    assert queue.bytes == 5_000
