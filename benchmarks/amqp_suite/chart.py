"""The chart of a run: messages per second and CPU per message, by scenario and broker, on log axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.amqp_suite.brokers import KINDS
from benchmarks.amqp_suite.scenarios import STEADY
from benchmarks.queue_suite.chart import draw_rates
from benchmarks.suite.results import Summary
from benchmarks.suite.scenarios import Scenario


def draw_chart(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str], path: Path) -> bool:
    """False when there is nothing to draw, or nothing to draw with."""
    drawn = [scenario for scenario in scenarios if scenario.kind != STEADY]
    return draw_rates(drawn, summary, {name: KINDS[name].title for name in names}, path)
