"""The end of a turn: reads that waited, queues, work in slices, the log; and how long it took."""

from __future__ import annotations

from fakes import ManualWakeup, World

from millstream.runtime.intake import Intake
from millstream.runtime.loop_clock import LoopClock
from millstream.runtime.turn import LoopTurn


def test_a_turn_is_measured_from_its_first_read() -> None:
    world = World()
    clock = LoopClock(ManualWakeup())
    turn = LoopTurn()
    turn.start(world.broker, None, Intake(), clock)
    turn.end()
    alone_ns = world.broker.turns.longest_ns()
    assert alone_ns > 0
    clock._now_ns = clock.read_ns() - 60_000_000
    assert not turn.end()
    assert world.broker.turns.longest_ns() >= 60_000_000
    assert world.broker.turns.values()["long_turns"] == "1"
