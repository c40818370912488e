"""Deadlines of sessions: expiry and delayed wills, earliest first. Cancelled ones are skipped when due."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.broker.session import Session


@final
class Schedule:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Session]] = []
        self._count = 0

    def add(self, due_ns: i64, session: Session) -> None:
        self._count += 1
        heapq.heappush(self._heap, (int(due_ns), self._count, session))

    def take_due(self, now_ns: i64, count_max: int) -> list[Session]:
        """So many at most, those that are due longest."""
        due: list[Session] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < count_max:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def next_ns(self) -> i64:
        """0 when nothing is scheduled."""
        return self._heap[0][0] if self._heap else 0
