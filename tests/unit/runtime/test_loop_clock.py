"""The clock of one loop iteration."""

from __future__ import annotations

from fakes import ManualWakeup

from millstream.runtime.loop_clock import LoopClock


def test_all_that_happens_in_one_iteration_has_one_time() -> None:
    clock = LoopClock(ManualWakeup())
    first = clock.read_ns()
    assert first > 0
    assert clock.read_ns() == first


def test_the_next_iteration_has_a_time_of_its_own() -> None:
    clock = LoopClock(ManualWakeup())
    first = clock.read_ns()
    clock.forget()
    assert clock.read_ns() > first


def test_reading_it_sees_to_it_that_the_iteration_ends() -> None:
    wakeup = ManualWakeup()
    clock = LoopClock(wakeup)
    clock.read_ns()
    clock.read_ns()
    assert wakeup.requests == 1
