"""Emptying a queue: every record that no consumer has goes, of those that were there when it began. In slices.

Invariants
- What is appended meanwhile stays, and so does what a consumer has when its turn comes.
- What had come back from consumers is handed out to nobody once it has begun, so it must be carried out to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.queues.pending import Pending

if TYPE_CHECKING:
    from millstream.queues.group import Group
    from millstream.queues.queue import Queue

RECORDS_PER_STEP: Final[i64] = 4


@final
class Purge:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._at: i64 = queue.low_mark()
        self._end: i64 = queue.next
        self._came_back: list[list[tuple[int, int, int, Pending]]] = []  # to be freed
        self.count: i64 = 0  # how many went
        for group in queue.groups.values():
            self._came_back.append(group.redeliveries.take_all())

    def run(self, steps: i64) -> i64:
        """Take about so many steps, of a microsecond each; what is left of them. 0 or less: there is more to do."""
        queue = self._queue
        left: i64 = steps
        while left > 0 and self._at < self._end and not queue.is_removed:
            left -= self._take_slice(left)
        while left > 0 and self._came_back:
            heap = self._came_back[-1]
            size: i64 = len(heap)
            del heap[max(0, size - left * RECORDS_PER_STEP) :]
            left -= 1 + (size - len(heap)) // RECORDS_PER_STEP
            if not heap:
                self._came_back.pop()
        return left if (self._at >= self._end or queue.is_removed) and not self._came_back else 0

    def _take_slice(self, steps: i64) -> i64:
        """The next records, for all groups; how many steps it took."""
        queue = self._queue
        before = queue.depth()
        costs: i64 = 1  # of a few records
        for group in queue.groups.values():
            costs += RECORDS_PER_STEP if group.pending else 1  # what lies between is a fact by itself
        stop: i64 = min(self._end, self._at + max(1, steps * RECORDS_PER_STEP // costs))
        if queue.is_stream or not queue.groups:
            queue.trim(stop)
        else:
            for group in queue.groups.values():
                _purge_group(group, self._at, stop)
            queue.scheduler.write_settled()
            queue.let_go()
        self.count += before - queue.depth()
        taken: i64 = stop - self._at
        self._at = stop
        return 1 + taken * costs // RECORDS_PER_STEP


def _purge_group(group: Group, first: i64, stop: i64) -> None:
    """Settle everything in between that no consumer has."""
    position: i64 = group.committed if group.committed > first else first
    if group.pending:
        offset: i64 = position
        while offset < stop:
            if int(offset) in group.pending:
                if offset > position:
                    group.finish(position, offset - 1)
                position = offset + 1
            offset += 1
    if stop > position:
        group.finish(position, stop - 1)
