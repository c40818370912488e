"""Records of a queue on their way to the disk: which of them may be handed out when the store has reached a position."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

MARK_EVERY: Final[i64] = 64  # of the records of one batch only so many need to be told apart


@final
class UnsyncedRecords:
    def __init__(self) -> None:
        # position in the store, offset behind it: of some records on the way, and of the last one
        self._marks: deque[tuple[int, int]] = deque()
        self._last_position: i64 = 0

    def add(self, position: i64, offset: i64) -> None:
        if offset % MARK_EVERY == 0:
            self._marks.append((int(position), int(offset) + 1))
        self._last_position = position

    def is_over(self, durable: i64) -> bool:
        """Whether nothing is on its way any more."""
        return self._last_position <= durable

    def arrive(self, durable: i64, visible: i64, end: i64) -> i64:
        """Where the safe records end now, of those before `end`; all below `visible` were safe before."""
        marks = self._marks
        while marks and marks[0][0] <= durable:
            visible = marks.popleft()[1]
        return end if self._last_position <= durable else visible
