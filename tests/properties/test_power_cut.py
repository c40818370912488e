"""The power goes at any moment: what was confirmed is there, nothing is made up. `python -m simulation.run` is the long run."""

from __future__ import annotations

import pytest

from crash.failpoints import find_names
from simulation.deaths import FAILPOINTS
from simulation.power_cut import PowerCutRun
from simulation.run import run_failpoint, run_seed

SEEDS = 100
DEATHS_PER_FAILPOINT = 3
SEEDS_PER_FAILPOINT = 60


@pytest.mark.parametrize("block", range(10))
def test_nothing_confirmed_is_lost_at_any_moment(block: int) -> None:
    size = SEEDS // 10
    outcomes = [run_seed(seed) for seed in range(block * size, (block + 1) * size)]
    assert [(outcome.seed, outcome.fault) for outcome in outcomes if outcome.fault] == []


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_nothing_confirmed_is_lost_at_this_place(failpoint: str) -> None:
    outcomes = run_failpoint(failpoint, DEATHS_PER_FAILPOINT, SEEDS_PER_FAILPOINT)
    assert [(outcome.seed, outcome.fault) for outcome in outcomes if outcome.fault] == []
    assert sum(outcome.deaths for outcome in outcomes) >= DEATHS_PER_FAILPOINT, "this place is not reached"


def test_every_failpoint_of_the_storage_is_simulated() -> None:
    parts = {name.partition(".")[0] for name in FAILPOINTS}
    assert sorted(FAILPOINTS) == [name for name in find_names() if name.partition(".")[0] in parts]


def test_every_place_that_is_reached_is_known() -> None:
    reached: dict[str, int] = {}
    for seed in range(20):
        reached.update(PowerCutRun(seed).run().failpoints)
    assert set(reached) <= set(FAILPOINTS)


@pytest.mark.parametrize("planted", ["hasty", "lying"])
def test_a_planted_bug_is_found(planted: str) -> None:
    faults = [PowerCutRun(seed, planted=planted).run().fault for seed in range(30)]
    assert any(fault.startswith(("lost", "the start was refused")) for fault in faults)


def test_a_seed_can_be_run_again() -> None:
    one, other = PowerCutRun(7).run(), PowerCutRun(7).run()
    assert one.trace
    assert one.trace == other.trace
    assert PowerCutRun(8).run().trace != one.trace
