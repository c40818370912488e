"""Records that are handed out of turn: later than the ones behind them, or before the ones ahead."""

from __future__ import annotations

import heapq
from typing import final

from mypy_extensions import i64


@final
class Specials:
    def __init__(self) -> None:
        self._ready: list[tuple[int, int]] = []  # heap by -priority, offset
        self._delayed: list[tuple[int, int, int]] = []  # heap by due time, -priority, offset
        self._last: tuple[int, int] = (0, 0)

    def add(self, offset: i64, priority: i64, due_ns: i64) -> None:
        if due_ns:
            heapq.heappush(self._delayed, (int(due_ns), -int(priority), int(offset)))
        else:
            heapq.heappush(self._ready, (-int(priority), int(offset)))

    def take_due(self, now_ns: i64) -> i64:
        """The offset of the most urgent one, -1 if none is due. One without priority is due before others in turn."""
        while self._delayed and self._delayed[0][0] <= now_ns:
            _, priority, offset = heapq.heappop(self._delayed)
            heapq.heappush(self._ready, (priority, offset))
        if not self._ready:
            return -1
        self._last = heapq.heappop(self._ready)
        return self._last[1]

    def put_back(self, offset: i64) -> None:
        """The one just taken is not safe yet."""
        heapq.heappush(self._ready, self._last)

    def count(self) -> i64:
        return len(self._ready) + len(self._delayed)

    def clear(self) -> None:
        self._ready.clear()
        self._delayed.clear()
