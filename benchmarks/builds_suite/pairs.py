"""A scenario measured with both builds in alternation, and the ratio of what a message costs. Pure: no clock, no files.

Each pair is one window of the old build and one of the new, a second apart: what else the machine does touches both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.suite.results import FAILED, PASSED, Check, Facts, number


@dataclass(frozen=True)
class Pair:
    old: Facts
    new: Facts


@dataclass(frozen=True)
class Comparison:
    """One scenario: medians of the windows of each build, and the median of the ratios of the pairs."""

    scenario: str
    pairs: int
    old_us: float  # broker CPU per message
    new_us: float
    ratio: float
    ratio_low: float  # quartiles of the ratios: how far the machine can be trusted
    ratio_high: float
    best_ratio: float  # of the cheapest window of each: what a busy neighbour touches least


def cost_us(facts: Facts) -> float:
    """Broker CPU microseconds per message."""
    return number(facts, "broker_cpu_s") * 1e6 / max(number(facts, "deliveries"), 1.0)


def compare(scenario: str, pairs: Sequence[Pair]) -> Comparison:
    ratios = [cost_us(pair.new) / max(cost_us(pair.old), 1e-9) for pair in pairs]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Comparison(
        scenario,
        len(pairs),
        median(cost_us(pair.old) for pair in pairs),
        median(cost_us(pair.new) for pair in pairs),
        median(ratios),
        low,
        high,
        min(cost_us(pair.new) for pair in pairs) / max(min(cost_us(pair.old) for pair in pairs), 1e-9),
    )


def judge(comparison: Comparison, ratio_max: float) -> Check:
    """Held when the median of the pairs holds, or the cheapest windows do: a neighbour makes windows dearer, never cheaper."""
    measured = (
        f"{comparison.ratio:.3f} x ({comparison.ratio_low:.3f} to {comparison.ratio_high:.3f}), "
        f"cheapest windows {comparison.best_ratio:.3f} x"
    )
    verdict = PASSED if min(comparison.ratio, comparison.best_ratio) <= ratio_max else FAILED
    return Check(
        comparison.scenario, "CPU per message, new to old build", measured, f"<= {ratio_max:g} x", verdict
    )
