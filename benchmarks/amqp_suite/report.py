"""The report of a run: tables on the terminal, JSON, a chart, and docs/benchmarks-amqp091.md from the same figures."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from benchmarks.amqp_suite.brokers import KINDS
from benchmarks.amqp_suite.chart import draw_chart
from benchmarks.amqp_suite.scenarios import PERSISTENT_BYTES, PREFETCH, STEADY, TRANSIENT_BYTES
from benchmarks.suite.report import (
    CHECK_HEADER,
    COLOURS,
    PROJECT,
    RESULTS,
    Section,
    check_cells,
    closing_line,
    markdown_table,
    print_table,
    rate_cells,
    ratio_cell,
    round_trip_cell,
)
from benchmarks.suite.results import Check, Figure, Summary
from benchmarks.suite.scenarios import Scenario

CHART = PROJECT / "docs" / "images" / "bench-amqp091.png"
PAGE = PROJECT / "docs" / "benchmarks-amqp091.md"

METHOD = """\
# Benchmarks: AMQP 0.9.1

Written by `./dev bench amqp091`; do not edit. Every figure below comes from one run on one machine.

## Method

- Millstream and RabbitMQ (Debian's package, without plugins) run one after another, alone, on loopback, each pinned to one core; the load generator has the other core. Every scenario has a fresh broker.
- Every round takes both brokers in turn; a window in which other programs held the cores for over a tenth of the time is measured once more; a figure is the median of {rounds} rounds of {seconds:g} s each, after a warm-up.
- The generator (`benchmarks/load/`, compiled) sends frames encoded beforehand and handles them in batches; it is the same for both.
- *Transient*: {transient} bytes unless stated, delivery mode 1, one queue in memory, consumers without acknowledgements. It begins with a proof: every delivery is parsed and compared, so
  that lost, repeated or swapped messages void the figure; then deliveries are counted, and messages sent must equal messages received, to the last one.
- *Persistent*: {persistent} bytes, delivery mode 2, one durable queue, publisher confirms with so many messages unconfirmed at most, one publisher, one consumer with a prefetch of {prefetch} that acknowledges every
  delivery by itself. A message counts when it was delivered; every one is followed by its number. Millstream syncs to disk before it confirms; RabbitMQ syncs a classic queue by its own rule.
- *CPU* is the broker's processor time per million messages, with system calls. *Generator* is the part of the window in which the generator was busy or waited for its core.
  At 95 % the rate says more about the generator than about the broker, and when other programs used more than a tenth of the broker's core it says more about them: such a
  rate is shown as ">=", proves a promise if it can, and is never used against a peer.
- One in flight: 50 pairs with a queue each and a single message on the way, so every message is a wake-up. 1,000 messages/s: open loop, timed from the moment a message was due. With a window of one message, the time is from publish to confirm.
- Millstream runs with access rules, counters and all listeners on.
"""

REPEAT = """\
```
./dev bench amqp091                                     # all of the above, about ten minutes
./dev bench amqp091 --quick                             # one short round
./dev bench amqp091 --scenario confirmed-100 --rounds 5 # one scenario
./dev bench amqp091 --list                              # their names
```
"""


def brokers_of(summary: Summary) -> list[str]:
    return [name for name in KINDS if any(broker == name for _, broker in summary.figures)]


def sections(scenarios: Sequence[Scenario], summary: Summary) -> list[Section]:
    """The tables of the report, only those with rows."""
    names = brokers_of(summary)
    titles = [KINDS[name].title for name in names]
    rated = [scenario for scenario in scenarios if scenario.kind != STEADY]
    timed = [scenario for scenario in scenarios if any(is_timed(summary, scenario, name) for name in names)]
    found: list[Section] = []
    if rated:
        header = ["Scenario"]
        for title in titles:
            header += [title, "CPU s"]
        body = [rate_row(scenario, summary, names) for scenario in rated]
        header += ["x RabbitMQ", "CPU, x less", "Generator"]
        found.append(("Messages per second, and broker CPU seconds per million", header, body))
    if timed:
        body = [trip_row(scenario, summary, names) for scenario in timed]
        found.append(("Round trips, p50 / p99 in microseconds", ["Scenario", *titles], body))
    return found


def is_timed(summary: Summary, scenario: Scenario, name: str) -> bool:
    figure = summary.find(scenario.name, name)
    return figure is not None and figure.p50_us > 0


def rate_row(scenario: Scenario, summary: Summary, names: Sequence[str]) -> list[str]:
    row = [scenario.title]
    for name in names:
        row += rate_cells(summary.figures.get((scenario.name, name)))
    ours, theirs = summary.find(scenario.name, "millstream"), summary.find(scenario.name, "rabbitmq")
    shares = [
        figure.generator_share for name in names if (figure := summary.find(scenario.name, name)) is not None
    ]
    return [
        *row,
        ratio_cell(ours, theirs),
        cost_cell(ours, theirs),
        " / ".join(f"{share:.0%}" for share in shares),
    ]


def cost_cell(ours: Figure | None, theirs: Figure | None) -> str:
    if ours is None or theirs is None or not ours.cpu_us:
        return ""
    return f"{theirs.cpu_us / ours.cpu_us:.1f}"


def trip_row(scenario: Scenario, summary: Summary, names: Sequence[str]) -> list[str]:
    figures = [summary.find(scenario.name, name) for name in names]
    return [scenario.title, *(round_trip_cell(figure) if figure else "" for figure in figures)]


def print_report(
    console: Console,
    scenarios: Sequence[Scenario],
    summary: Summary,
    checks: Sequence[Check],
    document: dict[str, object],
) -> None:
    for title, header, body in sections(scenarios, summary):
        print_table(console, title, header, body)
    if checks:
        marked = [
            (*check_cells(check)[:-1], f"[{COLOURS.get(check.verdict, 'yellow')}]{check.verdict}[/]")
            for check in checks
        ]
        print_table(console, "What must be shown", CHECK_HEADER, marked)
        console.print(closing_line(checks, document), highlight=False)
    if "millstream" in brokers_of(summary) and not document["is_millstream_compiled"]:
        console.print(
            "[yellow]Millstream ran interpreted: build it with ./dev build before judging.[/yellow]"
        )


def write_report(
    scenarios: Sequence[Scenario], summary: Summary, checks: Sequence[Check], document: dict[str, object]
) -> list[str]:
    """The published files after a whole run; files beside the results after a short or partial one."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    is_whole = bool(document["is_whole"])
    result_path = RESULTS / ("amqp091.json" if is_whole else "amqp091-partial.json")
    result_path.write_text(json.dumps(document, indent=1) + "\n")
    written = [result_path]
    chart_path = CHART if is_whole else RESULTS / "amqp091-partial.png"
    chart_path.parent.mkdir(parents=True, exist_ok=True)
    if draw_chart(scenarios, summary, brokers_of(summary), chart_path):
        written.append(chart_path)
    if is_whole:
        PAGE.write_text(write_page(scenarios, summary, checks, document))
        written.append(PAGE)
    return [str(path.relative_to(PROJECT)) for path in written]


def write_page(
    scenarios: Sequence[Scenario], summary: Summary, checks: Sequence[Check], document: dict[str, object]
) -> str:
    machine = document["machine"]
    versions = document["versions"]
    measure_ms = document["measure_ms"]
    if not isinstance(machine, dict) or not isinstance(versions, dict) or not isinstance(measure_ms, int):
        raise TypeError("a document of results has a machine, versions and the length of its windows")
    parts = [
        METHOD.format(
            rounds=document["rounds"],
            seconds=measure_ms / 1000,
            transient=TRANSIENT_BYTES,
            persistent=PERSISTENT_BYTES,
            prefetch=PREFETCH,
        ),
        "## Machine and versions\n",
        (
            f"{machine['cores']} cores, {machine['processor']}, {machine['system']}, Python {machine['python']}, "
            f"files on {machine['filesystem']}.\n"
        ),
        "Trust ratios and CPU more than rates: other programs may have used the machine.\n",
        "\n".join(f"- {KINDS[name].title}: {text}" for name, text in versions.items()) + "\n",
    ]
    for title, header, body in sections(scenarios, summary):
        parts += [f"## {title}\n", markdown_table(header, body) + "\n"]
    parts += [
        "![Messages per second and CPU per message, by scenario and broker](images/bench-amqp091.png)\n",
        "## What must be shown\n",
        markdown_table(CHECK_HEADER, [check_cells(check) for check in checks]) + "\n",
        "## Repeat it\n",
        REPEAT,
        "The raw facts of every round are in `benchmarks/results/amqp091.json`.\n",
    ]
    return "\n".join(parts)
