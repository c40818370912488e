"""A set of offsets kept as ranges: what was settled out of order, in little memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from mypy_extensions import i64


@final
class Intervals:
    """Ranges are disjoint, sorted and never touch: neighbours are joined."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.count: i64 = 0  # offsets in all ranges

    def add(self, first: i64, last: i64) -> None:
        if first > last:
            return
        firsts = self._firsts
        lasts = self._lasts
        low = bisect_right(lasts, int(first) - 2)  # the first range that overlaps or touches
        high = bisect_right(firsts, int(last) + 1)
        start: i64 = first
        end: i64 = last
        for at in range(low, high):
            self.count -= lasts[at] - firsts[at] + 1
            if firsts[at] < start:
                start = firsts[at]
            if lasts[at] > end:
                end = lasts[at]
        firsts[low:high] = [int(start)]
        lasts[low:high] = [int(end)]
        self.count += end - start + 1

    def contains(self, offset: i64) -> bool:
        at = bisect_right(self._firsts, int(offset)) - 1
        return at >= 0 and self._lasts[at] >= offset

    def next_missing(self, offset: i64) -> i64:
        """The first offset from `offset` on that is not in the set."""
        at = bisect_right(self._firsts, int(offset)) - 1
        if at >= 0 and self._lasts[at] >= offset:
            return self._lasts[at] + 1
        return offset

    def remove_below(self, offset: i64) -> None:
        while self._firsts and self._firsts[0] < offset:
            first = self._firsts[0]
            last = self._lasts[0]
            if last < offset:
                self.count -= last - first + 1
                del self._firsts[0]
                del self._lasts[0]
            else:
                self.count -= offset - first
                self._firsts[0] = int(offset)

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, self._lasts, strict=True))
