"""Ranges of offsets against a plain set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.storage.intervals import Intervals

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30)


def build(ranges: list[tuple[int, int]]) -> tuple[Intervals, set[int]]:
    intervals = Intervals()
    plain: set[int] = set()
    for first, size in ranges:
        intervals.add(first, first + size - 1)
        plain.update(range(first, first + size))
    return intervals, plain


def check(intervals: Intervals, plain: set[int]) -> None:
    assert intervals.count == len(plain)
    found: set[int] = set()
    ranges = intervals.ranges()
    for first, last in ranges:
        assert first <= last
        found.update(range(first, last + 1))
    assert found == plain
    for (_, last), (first, _) in pairwise(ranges):
        assert last + 1 < first, "ranges that touch are one"


@settings(max_examples=200)
@given(RANGES)
def test_it_holds_what_was_added(ranges: list[tuple[int, int]]) -> None:
    intervals, plain = build(ranges)
    check(intervals, plain)
    for offset in range(80):
        assert intervals.contains(offset) == (offset in plain)
        missing = offset
        while missing in plain:
            missing += 1
        assert intervals.next_missing(offset) == missing


@settings(max_examples=200)
@given(RANGES, st.integers(0, 80))
def test_what_is_below_can_be_let_go(ranges: list[tuple[int, int]], bound: int) -> None:
    intervals, plain = build(ranges)
    intervals.remove_below(bound)
    check(intervals, {offset for offset in plain if offset >= bound})


def test_an_empty_range_adds_nothing() -> None:
    intervals = Intervals()
    intervals.add(5, 4)
    assert (intervals.count, intervals.ranges()) == (0, [])
