"""How many bytes of the kept records a group has settled out of order: they are there, and no longer wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.storage.intervals import Intervals

if TYPE_CHECKING:
    from millstream.queues.queue import Queue


@final
class SettledBytes:
    """Counted only where the queue asks for it."""

    def __init__(self, queue: Queue) -> None:
        self.bytes: i64 = 0
        self._queue = queue
        self._sizes: dict[int, int] = {}  # by offset
        self._low: i64 = 0  # none is below

    def add(self, first: i64, last: i64) -> None:
        first = max(first, self._queue.memtable.first)  # of what is in segments only nobody knows the size
        while first <= last:
            size = int(self._queue.size_at(first))
            if size and int(first) not in self._sizes:
                self._sizes[int(first)] = size
                self.bytes += size
            first += 1

    def forget(self, offset: i64) -> None:
        """No other group needs it either: it is not kept any more."""
        self.bytes -= self._sizes.pop(int(offset), 0)

    def remove_below(self, offset: i64) -> None:
        """They are not kept any more."""
        if offset - self._low > len(self._sizes):
            for known in [known for known in self._sizes if known < offset]:
                self.forget(known)
        else:
            for below in range(self._low, offset):
                self.forget(below)
        self._low = max(self._low, offset)

    def recount(self, settled: Intervals) -> None:
        self._sizes.clear()
        self._low = 0
        self.bytes = 0
        if self._queue.bounds_bytes:
            for first, last in settled.ranges():
                self.add(first, last)
