"""The chart of `bench queues`: messages per second and CPU per message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.scenarios import RATES, QueueScenario
from benchmarks.suite.chart import Look, draw_rates
from benchmarks.suite.report import short
from benchmarks.suite.results import Figure, Summary


def describe_rate(figure: Figure) -> str:
    return f"{'≥ ' if figure.is_lower_bound else ''}{short(figure.rate)}"


MESSAGES = Look("Messages", "message", 0.8, describe_rate)


def draw_chart(
    scenarios: Sequence[QueueScenario], summary: Summary, names: Sequence[str], path: Path
) -> bool:
    drawn = [scenario for scenario in scenarios if scenario.kind in RATES]
    labels = {name: f"{KINDS[name].title} ({KINDS[name].mark})" for name in names}
    return draw_rates(drawn, summary, labels, MESSAGES, path)
