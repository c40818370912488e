"""The time of the current loop iteration: read once, good for all that happens in it."""

from __future__ import annotations

import time
from typing import final

from mypy_extensions import i64

from millstream.model.outbox import Wakeup


@final
class LoopClock:
    """`forget` must be called in every iteration that has read it; the wakeup sees to that."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._now_ns: i64 = 0
        self._lap_ns: i64 = 0

    def read_ns(self) -> i64:
        if self._now_ns == 0:
            self._now_ns = time.monotonic_ns()
            self._wakeup.request()
        return self._now_ns

    def began_ns(self) -> i64:
        """When the time of this iteration was read; 0: nobody has."""
        return self._now_ns

    def lap_ns(self) -> i64:
        """How long it is since the last lap of this iteration, or since its time was read: one look at the clock."""
        began_ns: i64 = self._lap_ns if self._lap_ns > self._now_ns else self._now_ns
        self._lap_ns = time.monotonic_ns()
        return self._lap_ns - began_ns if began_ns else 0

    def forget(self) -> None:
        self._now_ns = 0
