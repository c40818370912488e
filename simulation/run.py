"""`python -m simulation.run --seeds 1000`: cut the power a thousand times and see what is left.

Every seed runs twice: the traces must be equal, so that a failing seed can be looked at. With `--deaths 20` the power
goes at least twenty times at every failpoint instead, those of a recovery included: a second crash in the middle of
mending the first. Exit 1 when a promise was not kept, or a place was not reached often enough.
"""

from __future__ import annotations

import argparse
import sys

from simulation.deaths import FAILPOINTS
from simulation.power_cut import Outcome, PowerCutRun


def run_seed(seed: int, planted: str = "") -> Outcome:
    outcome = PowerCutRun(seed, planted).run()
    again = PowerCutRun(seed, planted).run()
    if not outcome.fault and outcome.trace != again.trace:
        outcome.fault = "two runs of this seed differ"
    return outcome


def run_failpoint(failpoint: str, deaths: int, seeds_max: int) -> list[Outcome]:
    """Seeds that die at this place, until there were enough deaths."""
    outcomes: list[Outcome] = []
    for seed in range(seeds_max):
        if sum(outcome.deaths for outcome in outcomes) >= deaths:
            break
        outcome = PowerCutRun(seed, failpoint=failpoint).run()
        if outcome.deaths or outcome.fault:
            outcomes.append(outcome)
    return outcomes


class Line:
    """One line of the table: all crashes of one kind in one mode."""

    def __init__(self) -> None:
        self.crashes = 0
        self.seeds: dict[int, None] = {}
        self.failed: dict[int, None] = {}


def run_failpoints(deaths: int, seeds_max: int) -> tuple[list[Outcome], bool]:
    """(what happened, whether every place was reached often enough), with a line for each place."""
    print(f"{'failpoint':32} {'deaths':>7} {'crashes':>8} {'facts':>9} {'failed':>7}")
    outcomes: list[Outcome] = []
    is_enough = True
    for failpoint in FAILPOINTS:
        found = run_failpoint(failpoint, deaths, seeds_max)
        reached = sum(outcome.deaths for outcome in found)
        crashes = sum(len(outcome.endings) for outcome in found)
        told = sum(outcome.told for outcome in found)
        failed = sum(1 for outcome in found if outcome.fault)
        text = "" if reached >= deaths else "  too few: try more --seeds"
        print(f"{failpoint:32} {reached:7} {crashes:8} {told:9,} {failed:7}{text}", flush=True)
        outcomes += found
        is_enough = is_enough and reached >= deaths
    print(f"{len(FAILPOINTS)} failpoints, {sum(outcome.deaths for outcome in outcomes)} deaths there")
    return outcomes, is_enough


def make_table(outcomes: list[Outcome]) -> list[str]:
    lines: dict[tuple[str, str], Line] = {}
    for outcome in outcomes:
        for ending in outcome.endings:
            line = lines.setdefault((outcome.mode, ending), Line())
            line.crashes += 1
            line.seeds[outcome.seed] = None
            if outcome.fault:
                line.failed[outcome.seed] = None
    found = [f"{'mode':6} {'ends at':45} {'crashes':>8} {'seeds':>7} {'failed':>7}"]
    for (mode, ending), line in sorted(lines.items()):
        found.append(f"{mode:6} {ending:45} {line.crashes:8} {len(line.seeds):7} {len(line.failed):7}")
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument(
        "--planted", default="", choices=("", "hasty", "lying"), help="a bug that must be found"
    )
    parser.add_argument("--deaths", type=int, default=0, help="so many at every failpoint")
    options = parser.parse_args(arguments)
    outcomes: list[Outcome] = []
    is_enough = True
    if options.deaths:
        outcomes, is_enough = run_failpoints(options.deaths, options.seeds)
    else:
        for seed in range(options.first, options.first + options.seeds):
            outcomes.append(run_seed(seed, options.planted))
            if outcomes[-1].fault:
                print(f"seed {seed}: {outcomes[-1].fault}", flush=True)
        for text in make_table(outcomes):
            print(text)
    failed = [outcome for outcome in outcomes if outcome.fault]
    print(
        f"{len(outcomes)} runs, {sum(len(outcome.endings) for outcome in outcomes)} crashes, "
        f"{sum(outcome.told for outcome in outcomes)} facts, "
        f"{sum(outcome.survived for outcome in outcomes)} came back without having been confirmed, "
        f"{len(failed)} runs failed"
    )
    for outcome in failed[:20]:
        print(f"seed {outcome.seed} ({outcome.mode}; {', '.join(outcome.endings)}): {outcome.fault}")
    return 1 if failed or not is_enough else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
