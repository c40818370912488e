"""`millstream status` says how much memory is in use, where the first watermark is, and what holds most."""

from __future__ import annotations

from millstream.commands.status import memory_line
from millstream.model.limits import Limits
from millstream.model.memory_budget import MemoryBudget, MemoryMeter

MIB = 1024 * 1024


class Meter(MemoryMeter):
    def resident_bytes(self) -> int:
        return 750 * MIB


def test_the_state_and_the_largest_holders_are_named() -> None:
    budget = MemoryBudget(Limits(), 1000 * MIB, 70, 90, Meter())
    budget.look()
    budget.by_kind = {
        "caches": 5,
        "retained": 20 * MIB,
        "send_queues": 400 * MIB,
        "log": MIB,
        "input": 2 * MIB,
    }
    assert memory_line(budget.values()) == (
        "memory: high, 750 of 1000 MiB (publishers are slowed from 700 MiB on); "
        "most is in send_queues 400 MiB, retained 20 MiB, input 2 MiB"
    )


def test_without_a_limit_that_is_said() -> None:
    assert memory_line(MemoryBudget(Limits()).values()) == "memory: no limit (memory.limit is off)"
