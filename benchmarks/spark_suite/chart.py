"""The chart of a run: rows per second, and processor time by row, in the parts that used it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.spark_suite.results import SparkFigure
from benchmarks.spark_suite.scenarios import BY_NAME, SIDES, SparkScenario
from benchmarks.suite.chart import draw_grid, find_pyplot
from benchmarks.suite.report import short

OURS_COLOUR = "#0072b2"
THEIRS_COLOUR = "#999999"
PARTS = (
    ("Java", "jvm_us", "#e69f00"),
    ("Python workers", "python_us", "#56b4e9"),
    ("reader", "reader_us", "#0072b2"),
)


def draw_chart(scenarios: Sequence[SparkScenario], figures: Sequence[SparkFigure], path: Path) -> bool:
    """False when there is nothing to draw, or nothing to draw with."""
    drawn = [figure for figure in figures if not figure.fault]
    pyplot = find_pyplot() if drawn and scenarios else None
    if pyplot is None:
        return False
    chart, (rates, costs) = pyplot.subplots(
        1, 2, figsize=(14, 1.6 + 0.42 * len(drawn)), sharey=True, layout="constrained"
    )
    places = range(len(drawn))
    last_sides = {scenario.sides[-1] for scenario in scenarios}
    colours = [THEIRS_COLOUR if figure.side in last_sides else OURS_COLOUR for figure in drawn]
    bars = rates.barh(places, [figure.rate for figure in drawn], color=colours)
    rates.bar_label(bars, [short(figure.rate) for figure in drawn], padding=2, fontsize=8)
    left = [0.0] * len(drawn)
    for label, field, colour in PARTS:
        values = [float(getattr(figure, field)) for figure in drawn]
        bars = costs.barh(places, values, left=left, color=colour, label=label)
        left = [one + other for one, other in zip(left, values, strict=True)]
    costs.bar_label(bars, [f"{total:.2f}" for total in left], padding=2, fontsize=8)
    rates.set_yticks(
        places, [f"{BY_NAME[figure.scenario].name}: {SIDES[figure.side]}" for figure in drawn], fontsize=9
    )
    rates.invert_yaxis()
    rates.set_title("Rows per second (longer is better)", loc="left", fontsize=11)
    costs.set_title("CPU by row, microseconds (shorter is better)", loc="left", fontsize=11)
    costs.legend(frameon=False, loc="lower right")
    for axes in (rates, costs):
        axes.margins(x=0.12)
        draw_grid(axes)
    chart.savefig(path, dpi=110)
    pyplot.close(chart)
    return True
