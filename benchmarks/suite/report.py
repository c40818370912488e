"""The report of a run: tables on the terminal, JSON, a chart, and a page of docs/ written from the same figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.suite.brokers import PROJECT, Broker
from benchmarks.suite.results import FAILED, PASSED, REFUSED, Check, Figure, Summary, rate_ratio
from benchmarks.suite.scenarios import Scenario

RESULTS = PROJECT / "benchmarks" / "results"
DOCS = PROJECT / "docs"
COLOURS = {PASSED: "green", FAILED: "red"}
CHECK_HEADER = ("Scenario", "Promise", "Measured", "Target", "Verdict")
TRUST = "Trust ratios and CPU more than rates: other programs may have used the machine"

Section = tuple[str, list[str], list[list[str]]]  # title, header, rows


@dataclass(frozen=True)
class Report:
    """What one run has to say. `name` is that of its command and its files."""

    name: str
    page_name: str  # in docs/
    method: str
    place: str  # heading of the machine and what ran on it
    machine: str
    versions: Sequence[str]
    sections: Sequence[Section]
    picture: str  # what the chart shows, in words
    draw: Callable[[Path], bool]  # False when there is nothing to draw, or nothing to draw with
    checks: Sequence[Check]
    repeat: str
    document: Mapping[str, object]
    brokers: Sequence[str]  # that have figures
    trust: str = TRUST
    copy: Path | None = None  # where else its JSON goes

    def print_to(self, console: Console) -> None:
        for title, header, body in self.sections:
            print_table(console, title, header, body)
        if self.checks:
            print_checks(console, self.checks, self.document)
        is_ours = any(name.startswith("millstream") for name in self.brokers)
        if is_ours and not self.document["is_millstream_compiled"]:
            console.print(
                "[yellow]Millstream ran interpreted: build it with ./dev build before judging.[/yellow]"
            )

    def write_files(self) -> list[str]:
        """The published files after a whole run; files beside the results after a short or partial one."""
        is_whole = bool(self.document["is_whole"])
        stem = self.name if is_whole else f"{self.name}-partial"
        result_path = RESULTS / f"{stem}.json"
        chart_path = DOCS / "images" / f"bench-{stem}.png" if is_whole else RESULTS / f"{stem}.png"
        for path in (result_path, chart_path):
            path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document, indent=1) + "\n"
        result_path.write_text(text)
        written = [result_path]
        if self.copy is not None:
            self.copy.write_text(text)
            written.append(self.copy.resolve())
        if self.draw(chart_path):
            written.append(chart_path)
        if is_whole:
            page_path = DOCS / self.page_name
            page_path.write_text(self.page())
            written.append(page_path)
        return [str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path) for path in written]

    def page(self) -> str:
        parts = [
            self.method,
            f"## {self.place}\n",
            f"{self.machine}.\n",
            f"{self.trust}.\n",
            "\n".join(f"- {line}" for line in self.versions) + "\n",
        ]
        for title, header, body in self.sections:
            parts += [f"## {title}\n", markdown_table(header, body) + "\n"]
        parts += [
            f"![{self.picture}](images/bench-{self.name}.png)\n",
            "## What must be shown\n",
            markdown_table(CHECK_HEADER, [check_cells(check) for check in self.checks]) + "\n",
            "## Repeat it\n",
            self.repeat,
            f"The raw facts of every round are in `benchmarks/results/{self.name}.json`.\n",
        ]
        return "\n".join(parts)


def print_checks(console: Console, checks: Sequence[Check], document: Mapping[str, object]) -> None:
    marked = [
        (*check_cells(check)[:-1], f"[{COLOURS.get(check.verdict, 'yellow')}]{check.verdict}[/]")
        for check in checks
    ]
    print_table(console, "What must be shown", CHECK_HEADER, marked)
    console.print(closing_line(checks, document), highlight=False)


def closing_line(checks: Sequence[Check], document: Mapping[str, object]) -> str:
    count = {word: sum(check.verdict == word for check in checks) for word in (PASSED, FAILED, REFUSED)}
    line = f"{count[PASSED]} promises hold, {count[FAILED]} do not, {count[REFUSED]} have no figure"
    if count[REFUSED]:
        line += " (other programs or the generator held it back: run again on a quiet machine)"
    return f"{line}; {document['seconds_taken']} s."


def print_table(console: Console, title: str, header: Sequence[str], body: Iterable[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(header):
        is_text = index == 0 or header == CHECK_HEADER
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for row in body:
        table.add_row(*row)
    console.print(table)


def check_cells(check: Check) -> tuple[str, str, str, str, str]:
    return check.scenario, check.claim, check.measured, check.target, check.verdict


def markdown_table(header_cells: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header_cells) + " |", "|" + "---|" * len(header_cells)]
    lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines)


def read_table(document: Mapping[str, object], key: str) -> dict[str, object]:
    found = document[key]
    if not isinstance(found, dict):
        raise TypeError(f"a document of results has a table called {key}")
    return found


def read_seconds(document: Mapping[str, object]) -> float:
    """The length of its windows."""
    measure_ms = document["measure_ms"]
    if not isinstance(measure_ms, int):
        raise TypeError("a document of results has the length of its windows")
    return measure_ms / 1000


def brokers_of(summary: Summary, kinds: Iterable[str]) -> list[str]:
    return [name for name in kinds if any(broker == name for _, broker in summary.figures)]


def version_lines(document: Mapping[str, object], kinds: Mapping[str, type[Broker]]) -> list[str]:
    return [f"{kinds[name].title}: {text}" for name, text in read_table(document, "versions").items()]


def rate_header(names: Iterable[str], kinds: Mapping[str, type[Broker]]) -> list[str]:
    """The columns every table of rates begins with."""
    columns = ["Scenario"]
    for name in names:
        columns += [kinds[name].title, "CPU s"]
    return columns


def rate_row(scenario: Scenario, summary: Summary, names: Iterable[str]) -> list[str]:
    row = [scenario.title]
    for name in names:
        row += rate_cells(summary.figures.get((scenario.name, name)))
    return row


def rate_cells(figure: Figure | None) -> list[str]:
    if figure is None:
        return ["", ""]
    if figure.fault:
        return ["failed", ""]
    rate = f"{'>= ' if figure.is_lower_bound else ''}{short(figure.rate)}"
    if figure.lost:
        rate += f" ({figure.lost:,} lost)"
    return [rate, f"{figure.cpu_us:.3f}" if figure.cpu_us < 1 else f"{figure.cpu_us:.1f}"]


def generator_shares(scenario: Scenario, summary: Summary, names: Iterable[str]) -> list[float]:
    found = [summary.find(scenario.name, name) for name in names]
    return [figure.generator_share for figure in found if figure is not None]


def trip_row(scenario: Scenario, summary: Summary, names: Iterable[str]) -> list[str]:
    figures = [summary.find(scenario.name, name) for name in names]
    return [scenario.title, *(round_trip_cell(figure) if figure else "" for figure in figures)]


def round_trip_cell(figure: Figure) -> str:
    return f"{figure.p50_us:,.0f} / {figure.p99_us:,.0f}"


def short(rate: float) -> str:
    if rate >= 1e6:
        return f"{rate / 1e6:.2f} M"
    return f"{rate / 1e3:.1f} k" if rate >= 1e3 else f"{rate:.0f}"


def ratio_cell(ours: Figure | None, theirs: Figure | None) -> str:
    if ours is None or theirs is None:
        return ""
    if theirs.is_lower_bound:
        return "refused"
    return f"{'>= ' if ours.is_lower_bound else ''}{rate_ratio(ours, theirs):.1f}"
