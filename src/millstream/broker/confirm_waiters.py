"""Connections that wait for the store to be durable, because something they have to answer rests on it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.line import Ending, Line
from millstream.storage.store import Store

TELL_NS: Final[i64] = 200_000_000


@final
class ConfirmWaiters:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: dict[Line, None] = {}
        self._stuck_ns: i64 = 0  # since when the store takes nothing

    def add(self, line: Line) -> None:
        self._lines[line] = None

    def forget(self, line: Line) -> None:
        self._lines.pop(line, None)

    def on_durable(self) -> None:
        lines = self._lines
        self._lines = {}
        for line in lines:
            line.on_durable()

    def on_tick(self, now_ns: i64) -> None:
        """Nobody waits in the dark for a disk that takes nothing: those who do are sent away, and know that what they
        sent is not confirmed."""
        if not self._store.is_stuck():
            self._stuck_ns = 0
        elif self._stuck_ns == 0:
            self._stuck_ns = now_ns
        elif now_ns - self._stuck_ns >= TELL_NS:
            lines = self._lines
            self._lines = {}
            for line in lines:
                line.end(Ending.UNAVAILABLE)
