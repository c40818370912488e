"""The report of a run: tables on the terminal, JSON, a chart, and docs/benchmarks.md written from the same figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.suite.brokers import KINDS
from benchmarks.suite.chart import draw_chart
from benchmarks.suite.results import FAILED, PASSED, REFUSED, Check, Figure, Summary, rate_ratio
from benchmarks.suite.scenarios import Scenario

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "benchmarks" / "results"
CHART = PROJECT / "docs" / "images" / "bench-mqtt.png"
PAGE = PROJECT / "docs" / "benchmarks.md"
COLOURS = {PASSED: "green", FAILED: "red"}
PEERS = ("nats", "mosquitto")
CHECK_HEADER = ("Scenario", "Promise", "Measured", "Target", "Verdict")

METHOD = """\
# Benchmarks: MQTT

Written by `./dev bench mqtt`; do not edit. Every figure below comes from one run on one machine.

## Method

- Millstream, mosquitto and NATS run one after another, alone, on loopback, each pinned to one core; the load generator has the other core.
- Every round takes all brokers in turn; a window in which other programs held the cores for over a tenth of the time is measured once more; a figure is the median of {rounds} rounds of {seconds:g} s each, after a warm-up.
- The generator (`benchmarks/load/`, compiled) sends packets encoded beforehand and handles them in batches. Payloads are 64 bytes unless stated.
- A pipelined scenario begins with a proof: every delivery is parsed and compared, so that lost, repeated, swapped or altered messages void the figure. Then
  deliveries are counted: messages sent times subscribers must equal messages received, to the last one. In the measured window QoS 0 deliveries are counted by
  their bytes and one read in 64 is looked into; before and after it, every read is. QoS 1 and 2 are followed packet by packet throughout.
- The generator reads in batches: while little arrives per connection and the broker has much more waiting, it rests up to 4 ms before it reads again.
- QoS 1 and 2 publishers keep a window of 256 (32 for 64 KiB) and refill it by halves; every publisher stays a bounded way ahead of the deliveries. The same
  bounds hold for all brokers.
- *CPU* is the broker's processor time per million deliveries, with system calls. *Generator* is the part of the window in which the generator was busy or
  waited for its core. At 95 % the rate says more about the generator than about the broker; and when other programs held the cores for more than a tenth of
  the window, it says more about them. Such a rate is shown as ">=": it proves a promise if it can, and is never used against a peer.
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
    for title, header, body in sections(scenarios, summary, names):
        print_table(console, title, header, body)
    if checks:
        marked = [
            (*check_cells(check)[:-1], f"[{COLOURS.get(check.verdict, 'yellow')}]{check.verdict}[/]")
            for check in checks
        ]
        print_table(console, "What must be shown", CHECK_HEADER, marked)
        console.print(closing_line(checks, document), highlight=False)
    if "millstream" in names and not document["is_millstream_compiled"]:
        console.print(
            "[yellow]Millstream ran interpreted: build it with ./dev build before judging.[/yellow]"
        )


def closing_line(checks: Sequence[Check], document: dict[str, object]) -> str:
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


def brokers_of(summary: Summary) -> list[str]:
    return [name for name in KINDS if any(broker == name for _, broker in summary.figures)]


Section = tuple[str, list[str], list[list[str]]]


def sections(scenarios: Sequence[Scenario], summary: Summary, names: Sequence[str]) -> list[Section]:
    """The tables of the report: rates and CPU, round trips, memory; only those with rows."""
    titles = [KINDS[name].title for name in names]
    loaded = [scenario for scenario in scenarios if scenario.kind in ("throughput", "pairs")]
    timed = [scenario for scenario in scenarios if scenario.kind in ("pairs", "steady")]
    idle = [scenario for scenario in scenarios if scenario.is_idle]
    found: list[Section] = []
    if loaded:
        body = [rate_row(scenario, summary, names) for scenario in loaded]
        found.append(("Deliveries per second, and broker CPU seconds per million", rate_header(names), body))
    if timed:
        body = [plain_row(scenario, summary, names, round_trip_cell) for scenario in timed]
        found.append(("Round trips, p50 / p99 in microseconds", ["Scenario", *titles], body))
    if idle:
        body = [plain_row(scenario, summary, names, memory_cell) for scenario in idle]
        found.append(("Resident memory per idle connection", ["Scenario", *titles], body))
    return found


def rate_header(names: Sequence[str]) -> list[str]:
    columns = ["Scenario"]
    for name in names:
        columns += [KINDS[name].title, "CPU s"]
    if "millstream" in names:
        columns += [f"x {KINDS[peer].title}" for peer in PEERS if peer in names]
        columns += ["Generator"]
    return columns


def rate_row(scenario: Scenario, summary: Summary, names: Sequence[str]) -> list[str]:
    row = [scenario.title]
    for name in names:
        row += rate_cells(summary.figures.get((scenario.name, name)))
    if "millstream" in names:
        ours = summary.find(scenario.name, "millstream")
        for peer in PEERS:
            if peer in names:
                row.append(ratio_cell(ours, summary.find(scenario.name, peer)))
        row.append(f"{ours.generator_share:.0%}" if ours else "")
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


def plain_row(
    scenario: Scenario, summary: Summary, names: Sequence[str], describe: Callable[[Figure], str]
) -> list[str]:
    """One cell per broker."""
    row = [scenario.title]
    for name in names:
        figure = summary.figures.get((scenario.name, name))
        if figure is None:
            row.append("")
        else:
            row.append("failed" if figure.fault else describe(figure))
    return row


def round_trip_cell(figure: Figure) -> str:
    return f"{figure.p50_us:,.0f} / {figure.p99_us:,.0f}"


def memory_cell(figure: Figure) -> str:
    return f"{figure.bytes_per_connection / 1024:.2f} KiB"


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
    machine = document["machine"]
    versions = document["versions"]
    measure_ms = document["measure_ms"]
    if not isinstance(machine, dict) or not isinstance(versions, dict) or not isinstance(measure_ms, int):
        raise TypeError("a document of results has a machine, versions and the length of its windows")
    connections = document["idle_connections"]
    parts = [
        METHOD.format(rounds=document["rounds"], seconds=measure_ms / 1000, connections=connections),
        "## Machine and versions\n",
        f"{machine['cores']} cores, {machine['processor']}, {machine['system']}, Python {machine['python']}.\n",
        "Trust ratios and CPU more than rates: other programs may have used the machine.\n",
        "\n".join(f"- {KINDS[name].title}: {text}" for name, text in versions.items()) + "\n",
    ]
    for title, header, body in sections(scenarios, summary, brokers_of(summary)):
        parts += [f"## {title}\n", markdown_table(header, body) + "\n"]
    parts += [
        "![Deliveries per second and CPU per delivery, by scenario and broker](images/bench-mqtt.png)\n",
        "## What must be shown\n",
        markdown_table(CHECK_HEADER, [check_cells(check) for check in checks]) + "\n",
        "## Repeat it\n",
        REPEAT,
        "The raw facts of every round are in `benchmarks/results/mqtt.json`.\n",
    ]
    return "\n".join(parts)
