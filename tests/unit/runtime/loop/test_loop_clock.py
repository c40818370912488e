"""The clock of one loop iteration."""

from __future__ import annotations

import time
from itertools import pairwise

from fakes import ManualWakeup

from millstream.runtime.loop.clock import LoopClock


def test_all_that_happens_in_one_iteration_has_one_time() -> None:
    clock = LoopClock(ManualWakeup())
    first = clock.read_ns()
    assert first > 0
    assert clock.read_ns() == first


def test_the_time_is_that_of_the_monotonic_clock() -> None:
    before = time.monotonic_ns()
    found = LoopClock(ManualWakeup()).read_ns()
    assert before <= found <= time.monotonic_ns()


def test_the_next_iteration_has_a_time_of_its_own() -> None:
    clock = LoopClock(ManualWakeup())
    first = clock.read_ns()
    while time.monotonic_ns() <= first:
        pass  # a coarse clock must not spoil it
    clock.forget()
    assert clock.read_ns() > first


def test_reading_it_sees_to_it_that_the_iteration_ends() -> None:
    wakeup = ManualWakeup()
    clock = LoopClock(wakeup)
    assert wakeup.requests == 0
    clock.read_ns()
    clock.read_ns()
    assert wakeup.requests == 1


def test_every_iteration_that_reads_it_is_asked_to_end_anew() -> None:
    wakeup = ManualWakeup()
    clock = LoopClock(wakeup)
    for iteration in range(1, 4):
        clock.read_ns()
        clock.read_ns()
        assert wakeup.requests == iteration
        clock.forget()
    clock.forget()
    assert wakeup.requests == 3


def test_a_part_of_the_laps_is_measured_in_no_regular_order() -> None:
    clock = LoopClock(ManualWakeup())
    clock.read_ns()
    laps = 9000
    measured = [number for number in range(laps) if clock.lap_ns() > 0]
    between = {later - earlier for earlier, later in pairwise(measured)}
    assert laps / 17 <= len(measured) <= laps / 2
    assert len(between) > 8
