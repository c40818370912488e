"""The budget of memory: measured by the amount of work, with two marks and shares for connections that lag."""

from __future__ import annotations

from millstream.model.limits import Limits
from millstream.model.memory_budget import STEP_MIN, MemoryBudget, MemoryMeter

MIB = 1024 * 1024


class Meter(MemoryMeter):
    def __init__(self, resident: int = 0) -> None:
        self.resident = resident
        self.reads = 0

    def resident_bytes(self) -> int:
        self.reads += 1
        return self.resident


def make(resident: int = 0, limits: Limits | None = None) -> tuple[MemoryBudget, Meter]:
    meter = Meter(resident)
    return MemoryBudget(limits or Limits(), 1000 * MIB, 70, 90, meter), meter


def test_the_state_follows_the_resident_size() -> None:
    budget, meter = make(100 * MIB)
    states = []
    for size in (100, 699, 700, 899, 900, 951):
        meter.resident = size * MIB
        budget.look()
        states.append(budget.state())
    assert states == ["normal", "normal", "high", "high", "critical", "critical"]


def test_a_state_ends_only_five_percent_below_its_mark() -> None:
    budget, meter = make()
    states = []
    for size in (900, 851, 849, 651, 649):
        meter.resident = size * MIB
        budget.look()
        states.append(budget.state())
    assert states == ["critical", "critical", "high", "high", "normal"]


def test_a_broker_that_is_left_alone_is_measured_by_every_fifth_tick() -> None:
    budget, meter = make(100 * MIB)
    for _ in range(11):
        budget.on_tick(0, 0)
    assert meter.reads == 3


def test_every_tick_measures_while_much_comes_in_or_memory_is_short() -> None:
    budget, meter = make(100 * MIB)
    for _ in range(4):
        budget.intake += STEP_MIN
        budget.on_tick(0, 0)
    assert meter.reads == 4
    meter.resident = 800 * MIB
    budget.look()
    for _ in range(4):
        budget.on_tick(0, 0)
    assert meter.reads == 9


def test_what_was_found_out_about_memory_is_acted_on_at_once() -> None:
    budget, meter = make(100 * MIB)
    budget.on_tick(0, 0)
    budget.on_tick(0, 950 * MIB)
    assert budget.state() == "critical"
    budget.on_tick(0, 0)
    assert budget.state() == "normal"
    assert meter.reads == 3


def test_without_a_limit_nothing_is_measured() -> None:
    meter = Meter(1 << 40)
    budget = MemoryBudget(Limits(), 0, 70, 90, meter)
    budget.intake += 1 << 50
    budget.look()
    budget.on_tick(0, 1 << 50)
    assert (budget.state(), meter.reads, budget.intake < budget.check_at) == ("off", 0, True)


def test_the_next_look_is_due_after_less_work_the_less_room_there_is() -> None:
    budget, meter = make(100 * MIB)
    budget.look()
    far = budget.check_at - budget.intake
    meter.resident = 880 * MIB
    budget.look()
    near = budget.check_at - budget.intake
    meter.resident = 950 * MIB
    budget.look()
    assert far > near > STEP_MIN == budget.check_at - budget.intake


def test_memory_that_is_free_inside_the_process_does_not_hold_publishers_up() -> None:
    budget, meter = make(750 * MIB)
    budget.on_tick(0, 0)
    assert budget.is_high
    budget.on_tick(300 * MIB, 0)
    assert (budget.state(), budget.used()) == ("normal", 450 * MIB)
    meter.resident = 650 * MIB  # part of it has gone back to the system: it is not free in here as well
    budget.look()
    assert budget.used() == 450 * MIB


def test_free_memory_inside_the_process_does_not_excuse_a_critical_size() -> None:
    budget, meter = make(750 * MIB)
    budget.on_tick(300 * MIB, 0)
    meter.resident = 910 * MIB
    budget.look()
    assert budget.is_critical


def test_pressure_from_the_rest_of_the_control_group_counts_as_well() -> None:
    budget, _ = make(100 * MIB)
    budget.on_tick(0, 700 * MIB)
    assert budget.state() == "high"
    budget.on_tick(0, 0)
    assert budget.state() == "normal"


def test_connections_that_lag_share_a_quarter_of_the_limit() -> None:
    limits = Limits(unsent_bytes_high=MIB, unsent_bytes_max=8 * MIB)
    budget, _ = make(limits=limits)
    budget.on_lagging(1)
    assert (budget.unsent_high, budget.unsent_max) == (MIB, 8 * MIB)
    budget.on_lagging(999)
    assert (budget.unsent_high, budget.unsent_max) == (MIB // 4, MIB // 2)
    budget.on_lagging(-1000)
    assert (budget.unsent_high, budget.unsent_max) == (MIB, 8 * MIB)


def test_where_there_are_very_many_connections_each_lags_sooner() -> None:
    budget, _ = make(limits=Limits(unsent_bytes_low=256 * 1024))
    assert budget.lag_mark(10) == 256 * 1024
    assert budget.lag_mark(2000) == 125 * MIB // 2000
    assert budget.lag_mark(100_000) == 16 * 1024
    assert MemoryBudget(Limits(unsent_bytes_low=999)).lag_mark(100_000) == 999
