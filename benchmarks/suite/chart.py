"""The chart of a run: rates and CPU, by scenario and broker, on log axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from benchmarks.suite.results import Figure, Summary
from benchmarks.suite.scenarios import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "millstream": "#0072b2",
    "millstream-os": "#56b4e9",
    "mosquitto": "#999999",
    "rabbitmq": "#999999",
    "nats-sync": "#d55e00",
    "nats": "#e69f00",
}  # told apart without red and green
GROUP_WIDTH = 0.82


@dataclass(frozen=True)
class Look:
    """What is counted, in words, and how it is drawn."""

    counted: str
    one: str
    row_inches: float
    describe_rate: Callable[[Figure], str]


def rate_of(figure: Figure) -> float:
    return figure.rate


def cpu_of(figure: Figure) -> float:
    return figure.cpu_us


def find_pyplot() -> ModuleType | None:
    """None when there is nothing to draw with."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_rates(
    scenarios: Sequence[Scenario], summary: Summary, labels: Mapping[str, str], look: Look, path: Path
) -> bool:
    """A bar for each broker of `labels`. False when there is nothing to draw, or nothing to draw with."""
    pyplot = find_pyplot() if scenarios and labels else None
    if pyplot is None:
        return False
    height = 1.6 + look.row_inches * len(scenarios)
    figure, (rates, costs) = pyplot.subplots(1, 2, figsize=(14, height), sharey=True, layout="constrained")
    draw_bars(rates, scenarios, summary, labels, rate_of, look.describe_rate)
    draw_bars(costs, scenarios, summary, labels, cpu_of, describe_cpu)
    rates.set_title(f"{look.counted} per second (longer is better)", loc="left", fontsize=11)
    costs.set_title(f"Broker CPU per {look.one}, microseconds (shorter is better)", loc="left", fontsize=11)
    rates.set_yticks(range(len(scenarios)), [scenario.title for scenario in scenarios], fontsize=9)
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
    labels: Mapping[str, str],
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
    draw_grid(axes)


def draw_grid(axes: Axes) -> None:
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


def describe_cpu(figure: Figure) -> str:
    return f"{figure.cpu_us:.2g}" if figure.cpu_us < 10 else f"{figure.cpu_us:.0f}"
