"""The chart of `bench mqtt`: deliveries per second and CPU per delivery."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.mqtt_suite.brokers import KINDS
from benchmarks.suite.chart import Look, draw_rates
from benchmarks.suite.results import Figure, Summary
from benchmarks.suite.scenarios import Scenario


def draw_chart(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str], path: Path) -> bool:
    drawn = [scenario for scenario in scenarios if scenario.kind in ("throughput", "pairs")]
    labels = {name: KINDS[name].title for name in names}
    return draw_rates(drawn, summary, labels, Look("Deliveries", "delivery", 0.55, describe_rate), path)


def describe_rate(figure: Figure) -> str:
    bound = "≥ " if figure.is_lower_bound else ""
    if figure.rate >= 1e6:
        return f"{bound}{figure.rate / 1e6:.1f} M"
    return f"{bound}{figure.rate / 1e3:.0f} k"
