"""The chart of a run: deliveries per second and CPU per delivery, by scenario and broker, on log axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suite.brokers import KINDS
from benchmarks.suite.results import Figure, Summary
from benchmarks.suite.scenarios import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "millstream": "#0072b2",
    "mosquitto": "#999999",
    "nats": "#e69f00",
}  # told apart without red and green
GROUP_WIDTH = 0.82


def rate_of(figure: Figure) -> float:
    return figure.rate


def cpu_of(figure: Figure) -> float:
    return figure.cpu_us


def draw_chart(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str], path: Path) -> bool:
    """False when there is nothing to draw, or nothing to draw with."""
    drawn = [scenario for scenario in scenarios if scenario.kind in ("throughput", "pairs")]
    if not drawn or not names:
        return False
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (rates, costs) = pyplot.subplots(
        1, 2, figsize=(14, 1.6 + 0.55 * len(drawn)), sharey=True, layout="constrained"
    )
    draw_bars(rates, drawn, summary, names, rate_of, describe_rate)
    draw_bars(costs, drawn, summary, names, cpu_of, describe_cpu)
    rates.set_title("Deliveries per second (longer is better)", loc="left", fontsize=11)
    costs.set_title("Broker CPU per delivery, microseconds (shorter is better)", loc="left", fontsize=11)
    rates.set_yticks(range(len(drawn)), [scenario.title for scenario in drawn], fontsize=9)
    rates.invert_yaxis()
    handles, labels = rates.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return True


def draw_bars(
    axes: Axes,
    scenarios: Sequence[Scenario],
    summary: Summary,
    names: Sequence[str],
    measure: Callable[[Figure], float],
    describe: Callable[[Figure], str],
) -> None:
    height = GROUP_WIDTH / len(names)
    for place, name in enumerate(names):
        offset = (place - (len(names) - 1) / 2) * height
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
            label=KINDS[name].title,
        )
        axes.bar_label(bars, [describe(figure) for _, figure in found], padding=2, fontsize=7)
    axes.set_xscale("log")
    set_decades(axes)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def set_decades(axes: Axes) -> None:
    """Whole powers of ten on the left, and room for the labels on the right."""
    from matplotlib.patches import Rectangle

    widths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
    if widths:
        axes.set_xlim(10 ** math.floor(math.log10(min(widths) / 2)), max(widths) * 4)


def describe_rate(figure: Figure) -> str:
    bound = "≥ " if figure.is_lower_bound else ""
    if figure.rate >= 1e6:
        return f"{bound}{figure.rate / 1e6:.1f} M"
    return f"{bound}{figure.rate / 1e3:.0f} k"


def describe_cpu(figure: Figure) -> str:
    return f"{figure.cpu_us:.2g}" if figure.cpu_us < 10 else f"{figure.cpu_us:.0f}"
