"""The chart of a run: messages per second and CPU per message, by scenario and broker, on log axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.scenarios import RATES, QueueScenario
from benchmarks.suite.chart import GROUP_WIDTH, cpu_of, describe_cpu, rate_of, set_decades
from benchmarks.suite.report import short
from benchmarks.suite.results import Figure, Summary
from benchmarks.suite.scenarios import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "millstream": "#0072b2",
    "millstream-os": "#56b4e9",
    "nats-sync": "#d55e00",
    "nats": "#e69f00",
    "rabbitmq": "#999999",
}  # told apart without red and green


def draw_chart(
    scenarios: Sequence[QueueScenario], summary: Summary, names: Sequence[str], path: Path
) -> bool:
    labels = {name: f"{KINDS[name].title} ({KINDS[name].mark})" for name in names}
    return draw_rates([scenario for scenario in scenarios if scenario.kind in RATES], summary, labels, path)


def draw_rates(drawn: Sequence[Scenario], summary: Summary, labels: dict[str, str], path: Path) -> bool:
    """False when there is nothing to draw, or nothing to draw with."""
    if not drawn or not labels:
        return False
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, costs) = pyplot.subplots(
        1, 2, figsize=(14, 1.6 + 0.8 * len(drawn)), sharey=True, layout="constrained"
    )
    draw_bars(rates, drawn, summary, labels, rate_of, describe_rate)
    draw_bars(costs, drawn, summary, labels, cpu_of, describe_cpu)
    rates.set_title("Messages per second (longer is better)", loc="left", fontsize=11)
    costs.set_title("Broker CPU per message, microseconds (shorter is better)", loc="left", fontsize=11)
    rates.set_yticks(range(len(drawn)), [scenario.title for scenario in drawn], fontsize=9)
    rates.invert_yaxis()
    handles, shown = rates.get_legend_handles_labels()
    figure.legend(handles, shown, loc="outside lower left", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def draw_bars(
    axes: Axes,
    scenarios: Sequence[Scenario],
    summary: Summary,
    labels: dict[str, str],
    measure: Callable[[Figure], float],
    describe: Callable[[Figure], str],
) -> None:
    height = GROUP_WIDTH / len(labels)
    for place, name in enumerate(labels):
        offset = (place - (len(labels) - 1) / 2) * height
        found = [
            (row, figure)
            for row, scenario in enumerate(scenarios)
            if (figure := summary.find(scenario.name, name)) is not None and measure(figure) > 0
        ]
        bars = axes.barh(
            [row + offset for row, _ in found],
            [measure(figure) for _, figure in found],
            height * 0.92,
            color=COLOURS[name],
            label=labels[name],
        )
        axes.bar_label(bars, [describe(figure) for _, figure in found], padding=2, fontsize=7)
    axes.set_xscale("log")
    set_decades(axes)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def describe_rate(figure: Figure) -> str:
    return f"{'≥ ' if figure.is_lower_bound else ''}{short(figure.rate)}"
