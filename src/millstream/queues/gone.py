"""How many bytes of the kept records a group has settled out of order: they are there, and no longer wait."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.storage.intervals import Intervals

if TYPE_CHECKING:
    from millstream.queues.queue import Queue


@final
class Gone:
    """Counted only where the queue asks for it."""

    def __init__(self, queue: Queue) -> None:
        self.bytes: i64 = 0
        self._queue = queue
        self._heap: list[tuple[int, int]] = []  # offset, size

    def add(self, first: i64, last: i64) -> None:
        first = max(first, self._queue.tail.first)  # of what is in segments only nobody knows the size
        while first <= last:
            size = self._queue.size_at(first)
            if size:
                heapq.heappush(self._heap, (int(first), int(size)))
                self.bytes += size
            first += 1

    def remove_below(self, offset: i64) -> None:
        """They are not kept any more."""
        while self._heap and self._heap[0][0] < offset:
            self.bytes -= heapq.heappop(self._heap)[1]

    def recount(self, settled: Intervals) -> None:
        self._heap.clear()
        self.bytes = 0
        if self._queue.bounds_bytes:
            for first, last in settled.ranges():
                self.add(first, last)
