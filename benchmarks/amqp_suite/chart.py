"""The chart of `bench amqp091`: messages per second and CPU per message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.amqp_suite.brokers import KINDS
from benchmarks.amqp_suite.scenarios import STEADY
from benchmarks.queue_suite.chart import MESSAGES
from benchmarks.suite.chart import draw_rates
from benchmarks.suite.results import Summary
from benchmarks.suite.scenarios import Scenario


def draw_chart(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str], path: Path) -> bool:
    drawn = [scenario for scenario in scenarios if scenario.kind != STEADY]
    return draw_rates(drawn, summary, {name: KINDS[name].title for name in names}, MESSAGES, path)
