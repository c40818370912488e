"""Records that are handed out of turn: later than the ones behind them, or before the ones ahead."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.queues.scheduler import Scheduler


FILLED_MAX: Final[i64] = 4096  # records that a group takes over in one go
FILLED_PER_DELIVERY: Final[i64] = 8  # the same in the time of a delivery


def forget_below(places: dict[int, tuple[int, int]], low: i64) -> None:
    """Of records out of turn by offset, ascending: those below go. The others are not looked at, they may be many."""
    gone: list[int] = []
    for offset in places:
        if offset >= low:
            break
        gone.append(offset)
    for offset in gone:
        del places[offset]


@final
class DelayedMessages:
    """Those of one group. A group that begins takes over what its queue has, a part at a time: it may be very many."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int]] = {}  # of the queue
        self._to_fill: list[int] = []  # offsets of it that are not here yet, the last first
        self._ready: list[tuple[int, int]] = []  # heap by -priority, offset
        self._delayed: list[tuple[int, int, int]] = []  # heap by due time, -priority, offset

    def fill(self, places: dict[int, tuple[int, int]]) -> None:
        """Take over these instead of what is here, by and by: `is_filling` until then."""
        self._ready = []
        self._delayed = []
        self._places = places
        self._to_fill = list(places)
        self._to_fill.reverse()

    def is_filling(self) -> bool:
        return len(self._to_fill) > 0

    def fill_some(self, scheduler: Scheduler) -> bool:
        """Whether all of them are here."""
        before: i64 = len(self._to_fill)
        while self._to_fill and before - len(self._to_fill) < FILLED_MAX:
            offset = self._to_fill.pop()
            place = self._places.get(offset)
            if place is not None:  # else it has gone meanwhile
                self.add(offset, place[0], place[1])
        scheduler.left -= (before - len(self._to_fill)) // FILLED_PER_DELIVERY
        return not self._to_fill

    def add(self, offset: i64, priority: i64, due_ns: i64) -> None:
        if due_ns:
            heapq.heappush(self._delayed, (int(due_ns), -int(priority), int(offset)))
        else:
            heapq.heappush(self._ready, (-int(priority), int(offset)))

    def best_priority(self, now_ns: i64) -> i64:
        """Of the most urgent one; -1 if none is due. One without priority is due before others in turn."""
        while self._delayed and self._delayed[0][0] <= now_ns:
            _, priority, offset = heapq.heappop(self._delayed)
            heapq.heappush(self._ready, (priority, offset))
        if not self._ready:
            return -1
        return -self._ready[0][0]

    def is_next_below(self, offset: i64) -> bool:
        """Whether the one `best_priority` spoke of stands before an offset."""
        return self._ready[0][1] < offset

    def take(self) -> i64:
        return heapq.heappop(self._ready)[1]

    def count(self) -> i64:
        return len(self._ready) + len(self._delayed) + len(self._to_fill)
