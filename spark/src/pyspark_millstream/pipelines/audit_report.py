"""The page of an audit: one HTML file that needs nothing beside it; its charts are drawn here as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

Figures = Mapping[str, object]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900, 240, 64, 16, 40
FAULTS = (("lost", "#c0392b"), ("duplicated", "#e08e0b"), ("reordered", "#7d5ba6"))
LATENCIES = (("latency_p50_ms", "#2e86c1"), ("latency_p95_ms", "#1b4f72"), ("latency_p99_ms", "#c0392b"))
TOTALS = ("messages", "producers", "lost", "duplicated", "reordered", "unnumbered")
COLUMNS = ("queue", "topic", *TOTALS, "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "latency_max_ms")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #222; }
.totals { display: flex; flex-wrap: wrap; gap: 1rem; } .totals div { padding: .6rem 1rem; background: #f3f4f6; border-radius: .5rem; }
.totals b { display: block; font-size: 1.5rem; } .bad b { color: #c0392b; }
table { border-collapse: collapse; width: 100%; font-size: 13px; } th, td { padding: .25rem .5rem; border-bottom: 1px solid #ddd; }
td { text-align: right; } td:nth-child(-n+2), th { text-align: left; } svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: #555; }
"""


def write_report(
    path: Path, queues: str, total: Figures, hours: Sequence[Figures], topics: Sequence[Figures]
) -> None:
    """Whole or not at all: it takes the place of an older page at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(page(queues, total, hours, topics), encoding="utf-8")
    draft.replace(path)


def page(queues: str, total: Figures, hours: Sequence[Figures], topics: Sequence[Figures]) -> str:
    cards = "".join(_card(name, total.get(name)) for name in (*TOTALS, "latency_p99_ms"))
    parts = [
        f"<h1>Audit of {escape(queues)}</h1>",
        f"<p>{_range(hours)}</p>",
        f'<div class="totals">{cards}</div>',
    ]
    if hours:
        parts.append(_chart("Messages", hours, (("messages", "#2e86c1"),), _bars))
        parts.append(_chart("Faults", hours, FAULTS, _bars))
        parts.append(_chart("Latency, ms", hours, LATENCIES, _lines))
    parts.append(f"<h2>Topics, the worst first</h2>{_table(topics)}")
    head = f'<meta charset="utf-8"><title>Audit of {escape(queues)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _range(hours: Sequence[Figures]) -> str:
    if not hours:
        return "There was no message in this range."
    return f"Hours from {_hour(hours[0])} to {_hour(hours[-1])} (UTC), each named by its beginning."


def _card(name: str, value: object) -> str:
    is_bad = name in dict(FAULTS) and bool(value)
    return f'<div class="{"bad" if is_bad else "good"}"><b>{_number(value)}</b>{_words(name)}</div>'


def _table(topics: Sequence[Figures]) -> str:
    head = "".join(f"<th>{_words(name)}</th>" for name in COLUMNS)
    cells = ("".join(f"<td>{_number(topic.get(name))}</td>" for name in COLUMNS) for topic in topics)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in cells)}</tbody></table>"


Series = tuple[tuple[str, str], ...]
Draw = Callable[[Sequence[Figures], Series, float], str]


def _chart(title: str, hours: Sequence[Figures], series: Series, draw: Draw) -> str:
    top = _round_up(max(_value(hour, name) for hour in hours for name, _ in series))
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(top * part / 4, top):.1f}" y2="{_y(top * part / 4, top):.1f}" stroke="#e5e7eb"/>'
        f'<text x="{LEFT - 6}" y="{_y(top * part / 4, top) + 4:.1f}" text-anchor="end">{_number(top * part / 4)}</text>'
        for part in range(5)
    )
    every = max(1, len(hours) // 8)
    marks = "".join(
        f'<text x="{_x(place, len(hours)):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_hour(hours[place])}</text>'
        for place in range(0, len(hours), every)
    )
    legend = "".join(
        f'<text x="{LEFT + 150 * place}" y="{HEIGHT - 6}" style="fill:{colour}">■ {_words(name)}</text>'
        for place, (name, colour) in enumerate(series)
    )
    drawn = draw(hours, series, top)
    return f'<h2>{escape(title)}</h2><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{grid}{marks}{legend}{drawn}</svg>'


def _bars(hours: Sequence[Figures], series: Series, top: float) -> str:
    slot = (WIDTH - LEFT) / len(hours)
    width = max(1.0, slot * 0.8 / len(series))
    return "".join(
        f'<rect x="{_x(place, len(hours)) - slot * 0.4 + width * number:.1f}" y="{_y(_value(hour, name), top):.1f}" '
        f'width="{width:.1f}" height="{_y(0, top) - _y(_value(hour, name), top):.1f}" fill="{colour}">'
        f"<title>{_hour(hour)}: {_number(hour.get(name))} {_words(name)}</title></rect>"
        for place, hour in enumerate(hours)
        for number, (name, colour) in enumerate(series)
    )


def _lines(hours: Sequence[Figures], series: Series, top: float) -> str:
    drawn = []
    for name, colour in series:
        known = [(place, hour) for place, hour in enumerate(hours) if hour.get(name) is not None]
        points = [(_x(place, len(hours)), _y(_value(hour, name), top)) for place, hour in known]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{_hour(hour)}: {_number(hour.get(name))} ms</title></circle>'
            for (x, y), (_, hour) in zip(points, known, strict=True)
        ]
    return "".join(drawn)


def _x(place: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT) * (place + 0.5) / count


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 …: a scale that reads well."""
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    return next(scale * step for step in (1, 2, 5, 10) if scale * step >= value)


def _value(hour: Figures, name: str) -> float:
    value = hour.get(name)
    return max(0.0, float(value)) if isinstance(value, int | float) else 0.0


def _hour(hour: Figures) -> str:
    return escape(str(hour.get("hour")))


def _number(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _words(name: str) -> str:
    return escape(name.replace("_ms", " ms").replace("_", " "))
