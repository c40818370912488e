"""The report of a run: tables on the terminal, JSON, a chart, and docs/benchmarks.md written from the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.suite.brokers import KINDS
from benchmarks.suite.chart import draw_chart
from benchmarks.suite.results import FAILED, PASSED, Check, Figure, Summary, rate_ratio
from benchmarks.suite.scenarios import Scenario

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "benchmarks" / "results"
CHART = PROJECT / "docs" / "images" / "bench-mqtt.png"
PAGE = PROJECT / "docs" / "benchmarks.md"
COLOURS = {PASSED: "green", FAILED: "red"}
PEERS = ("nats", "mosquitto")

METHOD = """\
# Benchmarks: MQTT

Written by `./dev bench mqtt`; do not edit. Every figure below comes from one run on one machine.

## Method

- Millstream, mosquitto and NATS run one after another, alone, on loopback, each pinned to one core; the load generator has the other core.
- Every round takes all brokers in turn; a figure is the median of {rounds} rounds of {seconds:g} s each, after a warm-up.
- The generator (`benchmarks/load/`, compiled) sends packets encoded beforehand and handles them in batches. Payloads are 64 bytes unless stated.
- A round begins with a proof: every delivery is parsed and compared, so that lost, repeated, swapped or altered messages void the figure. Then deliveries are
  counted: messages sent times subscribers must equal messages received, to the last one.
- QoS 1 and 2 publishers keep a window of 256 (32 for 64 KiB) and refill it by halves; every publisher stays a bounded way ahead of the deliveries. The same
  bounds hold for all brokers.
- *CPU* is the broker's processor time per million deliveries, with system calls. *Generator* is the part of the window in which the generator was busy or
  waited for its core. At 95 % the rate says more about the generator than about the broker: it is shown as ">=", proves a promise if it can, and is
  never used against a peer.
- One in flight: 50 pairs, each with a single message on the way, so every message is a wake-up. 1,000 messages/s: open loop, timed from the moment a message was due.
- Idle connections: resident memory of the broker before and after {connections:,} clients, each with a session and one subscription.
- Millstream runs with access rules, counters and all listeners on; mosquitto and NATS without access rules, mosquitto without persistence and limits on queues.
- NATS speaks neither QoS 2 nor MQTT 5 in this version: those cells are empty.
"""

REPEAT = """\
```
./dev bench mqtt                                # all of the above, about ten minutes
./dev bench mqtt --quick                        # one short round
./dev bench mqtt --scenario q0-1to1 --rounds 5  # one scenario
./dev bench mqtt --list                         # their names
./dev bench router                              # cost of matching by number of subscriptions
./dev bench attack                              # half-open connections and slow consumers
```
"""


def print_report(
    console: Console,
    scenarios: Sequence[Scenario],
    summary: Summary,
    checks: Sequence[Check],
    document: dict[str, object],
) -> None:
    names = brokers_of(summary)
    table = Table(
        title="Deliveries per second, and broker CPU seconds per million deliveries", title_justify="left"
    )
    for column in header(names):
        table.add_column(column, justify="left" if column == "Scenario" else "right")
    for row in rows(scenarios, summary, names):
        table.add_row(*row)
    console.print(table)
    if checks:
        verdicts = Table(title="What must be shown", title_justify="left")
        for column in ("Scenario", "Promise", "Measured", "Target", "Verdict"):
            verdicts.add_column(column)
        for check in checks:
            colour = COLOURS.get(check.verdict, "yellow")
            verdict = f"[{colour}]{check.verdict}[/{colour}]"
            verdicts.add_row(check.scenario, check.claim, check.measured, check.target, verdict)
        console.print(verdicts)
        passed = sum(check.verdict == PASSED for check in checks)
        console.print(
            f"{passed} of {len(checks)} promises hold; {document['seconds_taken']} s.", highlight=False
        )
    if "millstream" in names and not document["is_millstream_compiled"]:
        console.print(
            "[yellow]Millstream ran interpreted: build it with ./dev build before judging.[/yellow]"
        )


def brokers_of(summary: Summary) -> list[str]:
    return [name for name in KINDS if any(broker == name for _, broker in summary.figures)]


def header(names: Sequence[str]) -> list[str]:
    columns = ["Scenario"]
    for name in names:
        columns += [KINDS[name].title, "CPU s"]
    if "millstream" in names:
        columns += [f"x {KINDS[peer].title}" for peer in PEERS if peer in names]
        columns += ["Generator"]
    return columns


def rows(scenarios: Iterable[Scenario], summary: Summary, names: Sequence[str]) -> list[list[str]]:
    table: list[list[str]] = []
    for scenario in scenarios:
        row = [scenario.title]
        for name in names:
            row += cells(scenario, summary.figures.get((scenario.name, name)))
        if "millstream" in names:
            ours = summary.find(scenario.name, "millstream")
            for peer in PEERS:
                if peer in names:
                    row.append(ratio_cell(scenario, ours, summary.find(scenario.name, peer)))
            row.append(f"{ours.generator_share:.0%}" if ours and ours.generator_share else "")
        table.append(row)
    return table


def cells(scenario: Scenario, figure: Figure | None) -> list[str]:
    """The figure and its CPU; a scenario of round trips shows them under the rate."""
    if figure is None:
        return ["", ""]
    if figure.fault:
        return ["failed", ""]
    if scenario.is_idle:
        return [f"{figure.bytes_per_connection / 1024:.2f} KiB each", ""]
    if scenario.kind == "steady":
        return [f"p50 {figure.p50_us:,.0f} us, p99 {figure.p99_us:,.0f} us", ""]
    rate = f"{'>= ' if figure.is_generator_bound else ''}{short(figure.rate)}"
    if figure.lost:
        rate += f" ({figure.lost:,} lost)"
    if figure.p50_us:
        rate += f", p50 {figure.p50_us:,.0f} us, p99 {figure.p99_us:,.0f} us"
    return [rate, f"{figure.cpu_us:.2f}"]


def short(rate: float) -> str:
    if rate >= 1e6:
        return f"{rate / 1e6:.2f} M"
    return f"{rate / 1e3:.1f} k" if rate >= 1e3 else f"{rate:.0f}"


def ratio_cell(scenario: Scenario, ours: Figure | None, theirs: Figure | None) -> str:
    if ours is None or theirs is None or scenario.is_idle or scenario.kind == "steady":
        return ""
    if theirs.is_generator_bound:
        return "refused"
    return f"{'>= ' if ours.is_generator_bound else ''}{rate_ratio(ours, theirs):.1f}"


def write_report(
    scenarios: Sequence[Scenario], summary: Summary, checks: Sequence[Check], document: dict[str, object]
) -> list[str]:
    """The published files after a whole run; files beside the results after a short or partial one."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    is_whole = bool(document["is_whole"])
    result_path = RESULTS / ("mqtt.json" if is_whole else "mqtt-partial.json")
    result_path.write_text(json.dumps(document, indent=1) + "\n")
    written = [result_path]
    chart_path = CHART if is_whole else RESULTS / "mqtt-partial.png"
    chart_path.parent.mkdir(parents=True, exist_ok=True)
    if draw_chart(scenarios, summary, brokers_of(summary), chart_path):
        written.append(chart_path)
    if is_whole:
        PAGE.write_text(write_page(scenarios, summary, checks, document))
        written.append(PAGE)
    return [str(path.relative_to(PROJECT)) for path in written]


def markdown_table(header_cells: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header_cells) + " |", "|" + "---|" * len(header_cells)]
    lines += ["| " + " | ".join(row) + " |" for row in body]
    return "\n".join(lines)


def write_page(
    scenarios: Sequence[Scenario], summary: Summary, checks: Sequence[Check], document: dict[str, object]
) -> str:
    names = brokers_of(summary)
    machine = document["machine"]
    versions = document["versions"]
    if not isinstance(machine, dict) or not isinstance(versions, dict):
        raise TypeError("a document of results has a machine and versions")
    measure_ms = document["measure_ms"]
    seconds = measure_ms / 1000 if isinstance(measure_ms, int) else 0.0
    parts = [
        METHOD.format(rounds=document["rounds"], seconds=seconds, connections=document["idle_connections"]),
        "## Machine and versions\n",
        f"{machine['cores']} cores, {machine['processor']}, {machine['system']}, Python {machine['python']}.\n",
        "Trust ratios and CPU more than rates: other programs may have used the machine.\n",
        "\n".join(f"- {KINDS[name].title}: {text}" for name, text in versions.items()) + "\n",
        "## Figures\n",
        markdown_table(header(names), rows(scenarios, summary, names)) + "\n",
        "![Deliveries per second and CPU per delivery, by scenario and broker](images/bench-mqtt.png)\n",
        "## What must be shown\n",
        markdown_table(
            ("Scenario", "Promise", "Measured", "Target", "Verdict"),
            [(check.scenario, check.claim, check.measured, check.target, check.verdict) for check in checks],
        )
        + "\n",
        "## Repeat it\n",
        REPEAT,
        "The raw facts of every round are in `benchmarks/results/mqtt.json`.\n",
    ]
    return "\n".join(parts)
