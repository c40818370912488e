"""Old and new build under the same load: what is compared, and when a promise holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.builds_suite.pairs import Pair, compare, cost_us, judge
from benchmarks.builds_suite.suites import find_build
from benchmarks.suite.results import FAILED, PASSED, Facts


def facts(cpu_us: float) -> Facts:
    """A window in which a message cost so much."""
    return {"broker_cpu_s": cpu_us * 1000 / 1e6, "deliveries": 1000.0}


def test_the_cost_of_a_message_is_the_processor_time_of_the_broker_by_messages() -> None:
    assert cost_us({"broker_cpu_s": 0.5, "deliveries": 250_000.0}) == pytest.approx(2.0)


def test_a_window_without_a_message_does_not_divide_by_zero() -> None:
    assert cost_us({"broker_cpu_s": 0.0, "deliveries": 0.0}) == 0.0


def test_the_ratio_is_the_median_of_the_pairs_and_not_that_of_the_medians() -> None:
    # the machine was busy in the second half, for both builds alike
    pairs = [Pair(facts(1.0), facts(1.1)), Pair(facts(1.0), facts(1.1)), Pair(facts(4.0), facts(4.4))]
    found = compare("x", pairs)
    assert found.ratio == pytest.approx(1.1)
    assert judge(found, 1.02).verdict == FAILED


def test_a_promise_holds_when_the_cheapest_windows_hold_it() -> None:
    pairs = [Pair(facts(1.0), facts(1.01)), Pair(facts(1.0), facts(1.9)), Pair(facts(1.0), facts(2.0))]
    found = compare("x", pairs)
    assert found.ratio == pytest.approx(1.9)
    assert found.best_ratio == pytest.approx(1.01)
    assert judge(found, 1.02).verdict == PASSED


def test_one_pair_is_enough_for_a_figure() -> None:
    found = compare("x", [Pair(facts(2.0), facts(1.0))])
    assert (found.ratio, found.ratio_low, found.ratio_high) == (0.5, 0.5, 0.5)


def test_the_compiled_build_of_a_checkout_is_preferred_to_its_sources(tmp_path: Path) -> None:
    assert find_build(tmp_path) is None
    (tmp_path / "src" / "millstream").mkdir(parents=True)
    assert find_build(tmp_path) == tmp_path / "src"
    compiled = tmp_path / "build" / "compiled" / "src"
    (compiled / "millstream").mkdir(parents=True)
    assert find_build(tmp_path) == compiled
