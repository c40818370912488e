"""Offsets of a queue that no record has or will have: skipped where facts of the log were lost, or lost from a stream.

A queue counts its records by its offsets, so whoever counts takes the gaps off: limits by number, the number of messages that is
shown, sizes that are known by their average. For groups a gap is settled. The table notes them, and forgets those that the head of
their queue has passed.
"""

from __future__ import annotations

import struct
from typing import Final, final

from mypy_extensions import i64

from millstream.storage.intervals import Intervals
from millstream.storage.table.port import Table

GAP: Final = b"\0gap"
_KEY: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct(">QQ")
_LAST: Final = struct.Struct("<Q")


@final
class OffsetGaps:
    """`count` is 0 for nearly every queue: then nothing is looked up."""

    def __init__(self) -> None:
        self.count: i64 = 0  # offsets in all of them
        self._ranges: Intervals | None = None

    def add(self, first: i64, last: i64) -> None:
        if self._ranges is None:
            self._ranges = Intervals()
        self._ranges.add(first, last)
        self.count = self._ranges.count

    def forget_below(self, offset: i64) -> None:
        if self._ranges is not None:
            self._ranges.remove_below(offset)
            self.count = self._ranges.count

    def ranges(self) -> list[tuple[int, int]]:
        return [] if self._ranges is None else self._ranges.ranges()

    def records_between(self, first: i64, end: i64) -> i64:
        """How many offsets from `first` on and below `end` are in no gap."""
        records: i64 = end - first
        if self.count:
            for gap_first, gap_last in self.ranges():
                covered: i64 = min(end, gap_last + 1) - max(first, gap_first)
                if covered > 0:
                    records -= covered
        return records

    def go_on(self, offset: i64, records: i64) -> i64:
        """The offset that lies so many records behind another one; never one in a gap."""
        place: i64 = offset + records
        if self.count:
            for gap_first, gap_last in self.ranges():
                if offset <= gap_last and gap_first <= place:
                    place += gap_last + 1 - max(offset, gap_first)
        return place

    def last_below(self, end: i64) -> i64:
        """The last offset below `end` that is in no gap."""
        last: i64 = end - 1
        if self.count:
            for gap_first, gap_last in reversed(self.ranges()):
                if gap_first <= last <= gap_last:
                    last = gap_first - 1
        return last

    def settled_from(self, offset: i64) -> Intervals:
        """What a group has settled that stands at `offset`, which is in no gap."""
        settled = Intervals()
        if self.count:
            for first, last in self.ranges():
                if first > offset:
                    settled.add(first, last)
        return settled


# ------------------------------------------------------------------------ in the table


def load_gaps(table: Table, queue: int) -> list[tuple[int, int]]:
    """Those of a queue, in order."""
    return [(first, last) for _, first, last in _load(table, GAP + _KEY.pack(queue))]


def load_all_gaps(table: Table) -> list[tuple[int, int, int]]:
    """(queue, first, last), in order."""
    return _load(table, GAP)


def _load(table: Table, prefix: bytes) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for key, last in table.items(prefix):
        if len(key) == len(GAP) + _PAIR.size and len(last) == _LAST.size:
            queue, first = _PAIR.unpack(key[len(GAP) :])
            found.append((queue, first, _LAST.unpack(last)[0]))
    return found


def note_gap(table: Table, queue: int, first: int, last: int) -> None:
    table.put(GAP + _PAIR.pack(queue, first), _LAST.pack(last))


def forget_gaps(table: Table, queue: int, low: int) -> None:
    """The queue begins at `low` now."""
    for first, last in load_gaps(table, queue):
        if last < low:
            table.delete(GAP + _PAIR.pack(queue, first))


def remove_gaps(table: Table, queue: int) -> None:
    """The queue is gone."""
    for key, _ in table.items(GAP + _KEY.pack(queue)):
        table.delete(key)
