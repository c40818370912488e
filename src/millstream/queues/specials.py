"""Records that are handed out of turn: later than the ones behind them, or before the ones ahead."""

from __future__ import annotations

import heapq
from typing import final

from mypy_extensions import i64


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
class Specials:
    def __init__(self) -> None:
        self._ready: list[tuple[int, int]] = []  # heap by -priority, offset
        self._delayed: list[tuple[int, int, int]] = []  # heap by due time, -priority, offset

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
        return len(self._ready) + len(self._delayed)

    def clear(self) -> None:
        self._ready.clear()
        self._delayed.clear()
