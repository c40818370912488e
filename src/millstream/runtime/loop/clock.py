"""The time of the current loop iteration: read once, good for all that happens in it."""

from __future__ import annotations

import time
from typing import Final, final

from mypy_extensions import i64

from millstream.model.clock import Clock
from millstream.model.outbox import Wakeup

read_clock_ns: Final = time.monotonic_ns  # found once, not in the module again for every look at it
LAPS_MIN: Final[i64] = 2  # one in so many laps is measured, at least ...
LAPS_MASK: Final[i64] = 15  # ... and at most one in this and LAPS_MIN more
RANDOM_FACTOR: Final[i64] = 1_103_515_245
RANDOM_STEP: Final[i64] = 12_345
RANDOM_MASK: Final[i64] = 0x7FFF_FFFF


@final
class LoopClock:
    """`forget` must be called in every iteration that has read it; the wakeup sees to that."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._now_ns: i64 = 0
        self._lap_ns: i64 = 0
        self._random: i64 = 1
        self._laps: i64 = LAPS_MIN  # from one that is measured to the next
        self._laps_left: i64 = LAPS_MIN

    def read_ns(self) -> i64:
        if self._now_ns == 0:
            self._now_ns = read_clock_ns()
            self._wakeup.request()
        return self._now_ns

    def began_ns(self) -> i64:
        """When the time of this iteration was read; 0: nobody has."""
        return self._now_ns

    def lap_ns(self) -> i64:
        """An estimate, right on average, of how long it is since the last lap of this iteration, or since its time was read.
        To look at the clock for every message would cost more than it tells: one lap in about nine is measured, in no
        regular order, and stands for those before it. The others are 0."""
        self._laps_left -= 1
        if self._laps_left > 1:
            return 0
        now_ns: i64 = read_clock_ns()
        began_ns: i64 = self._lap_ns if self._lap_ns > self._now_ns else self._now_ns
        self._lap_ns = now_ns
        if self._laps_left == 1 or began_ns == 0:
            return 0
        laps: i64 = self._laps
        self._random = (self._random * RANDOM_FACTOR + RANDOM_STEP) & RANDOM_MASK
        self._laps = self._laps_left = LAPS_MIN + ((self._random >> 16) & LAPS_MASK)
        return (now_ns - began_ns) * laps

    def forget(self) -> None:
        self._now_ns = 0


def start_clock() -> Clock:
    """What the core knows of the time, before its first turn."""
    clock = Clock()
    clock.now_ns, clock.wall_s = time.monotonic_ns(), int(time.time())
    clock.wall_offset_ns = time.time_ns() - clock.now_ns
    return clock
