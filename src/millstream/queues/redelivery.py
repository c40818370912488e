"""Records that came back and wait for their next attempt, each in its original place: by priority, then by offset.

Those that must wait a while come in the order in which they are due.
"""

from __future__ import annotations

import heapq
from typing import Final, final

from mypy_extensions import i64

from millstream.queues.definition import Definition
from millstream.queues.pending import Pending

NONE: Final[i64] = -1  # the priority of nothing


def find_delay_ms(definition: Definition, attempts: i64) -> i64:
    """How long a record waits after so many attempts that failed: twice as long each time, up to a bound."""
    delay_ms: i64 = definition.backoff_ms
    limit_ms: i64 = definition.backoff_max_ms
    times: i64 = 1
    while times < attempts and 0 < delay_ms < limit_ms:
        delay_ms *= 2
        times += 1
    return delay_ms if delay_ms < limit_ms else limit_ms


@final
class RedeliveryQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Pending]] = []  # due time, -priority, offset

    def add(self, pending: Pending, priority: i64, due_ns: i64) -> None:
        heapq.heappush(self._heap, (int(due_ns), -int(priority), int(pending.offset), pending))

    def count(self) -> i64:
        return len(self._heap)

    def best_priority(self, now_ns: i64) -> i64:
        """Of the one that comes next; NONE when none is due."""
        if not self._heap or self._heap[0][0] > now_ns:
            return NONE
        return -self._heap[0][1]

    def take(self) -> Pending:
        """The one `best_priority` spoke of."""
        return heapq.heappop(self._heap)[3]

    def take_all(self) -> list[tuple[int, int, int, Pending]]:
        """In no order."""
        heap = self._heap
        self._heap = []
        return heap

    def clear(self) -> None:
        self._heap.clear()
