"""The report of a run: tables on the terminal, JSON, a chart, and docs/benchmarks-queues.md from the same figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.chart import draw_chart
from benchmarks.queue_suite.results import find_floor, first_facts
from benchmarks.queue_suite.scenarios import PAIRS, RATES, QueueScenario
from benchmarks.suite.report import (
    CHECK_HEADER,
    COLOURS,
    check_cells,
    closing_line,
    markdown_table,
    print_table,
    rate_cells,
    ratio_cell,
    round_trip_cell,
    short,
)
from benchmarks.suite.results import Check, Run, Summary, number

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "benchmarks" / "results"
CHART = PROJECT / "docs" / "images" / "bench-queues.png"
PAGE = PROJECT / "docs" / "benchmarks-queues.md"
MEBIBYTE = 1024 * 1024

METHOD = """\
# Benchmarks: queues

Written by `./dev bench queues`; do not edit. Every figure below comes from one run on one machine and one disk.

## Method

- The brokers run one after another, alone, on loopback, each pinned to one core, each scenario with a fresh one; the load generator has the other core. A figure is
  the median of {rounds} rounds; publishing is measured for {seconds:g} s after a warm-up. Messages have 256 bytes unless stated.
- Durable publishing is limited by the disk, so it is measured against the disk. *S* is the raw rate of fdatasync: a bare loop that writes one record of 256 bytes into a file
  written through before, and syncs. *R(b)* is the same loop with b records per sync. Both are measured on the same filesystem right before and after each figure of
  Millstream, and the figure is divided by their mean. When the two measures are more than 1.5 times apart, a promise that did not hold has no figure.
- What a confirm means is part of every figure: see *durability* below. Ratios are taken only between brokers of one kind: who syncs before the confirm, and who does not.
  "x rabbitmq" is Millstream against RabbitMQ, "os x nats" is Millstream in `os` mode against JetStream. With one publisher and one message in flight the disk decides for all who sync, so their rates are not compared.
- Publishing: MQTT 3.1.1, QoS 1, to `$queue/bench` for Millstream; JetStream's own protocol with a reply subject; AMQP 0.9.1 with persistent messages and publisher confirms.
  A message counts when its confirm arrived. Wide windows are refilled by halves.
- Consuming: {fill:,} messages are stored and confirmed before; then one or ten consumers with a credit of 100 each take them, and every delivery is settled by itself (PUBACK; an
  empty publish to the reply subject; basic.ack). The first tenth is the warm-up. Every payload carries a number: what is missing or comes twice is seen. A broker that needs
  longer than 20 s is measured as far as it came.
- Replay: the same from a stream, by a group that did not exist before. RabbitMQ's stream is its queue type of that name, read with AMQP 0.9.1.
- Persistent session: 10 publishers with 256 in flight, QoS 1, one subscriber whose session outlives its connection. Online, every message is stored and delivered; offline, it is
  stored; on return, {fill:,} stored messages are delivered and acknowledged.
- Restart: {restart_messages:,} messages of 1 KiB are confirmed into a work queue, the broker is killed with SIGKILL and started again. Ready is when its ready file is there and its port answers.
- Memory: {messages:,} messages of 64 bytes are confirmed into a stream; resident memory and processor time per publish, after the first tenth and to the end.
- *CPU s* is the broker's processor time per million messages, with all its threads and system calls. *Generator* is the part of the window in which the generator was busy or waited for its core.
  At 95 % the rate says more about the generator than about the broker, and when other programs used more than a tenth of the broker's core it says more about them: such a
  rate is shown as ">=", proves a promise if it can, and is never used against a peer.
- Millstream runs with access rules, counters and all listeners on.
"""

REPEAT = """\
```
./dev bench queues                                    # all of the above, about half an hour
./dev bench queues --quick                            # one short round with small queues
./dev bench queues --scenario publish-16 --rounds 5   # one scenario
./dev bench queues --scenario memory --messages 50000000
./dev bench queues --folder FOLDER                    # on another disk
./dev bench queues --list                             # their names
```
"""

Section = tuple[str, list[str], list[list[str]]]


def brokers_of(summary: Summary) -> list[str]:
    return [name for name in KINDS if any(broker == name for _, broker in summary.figures)]


def sections(scenarios: Sequence[QueueScenario], summary: Summary, runs: Sequence[Run]) -> list[Section]:
    """The tables of the report, only those with rows."""
    names = brokers_of(summary)
    rated = [scenario for scenario in scenarios if scenario.kind in RATES]
    found: list[Section] = []
    body = floor_rows(scenarios, runs)
    if body:
        header = ["Scenario", "S", "R(b)", "Promised", "Millstream", "x promised", "x S"]
        found.append(("Floors of the disk around each durable figure, per second", header, body))
    if rated:
        body = [rate_row(scenario, summary, names) for scenario in rated]
        found.append(("Messages per second, and broker CPU seconds per million", rate_header(names), body))
    body = trip_rows(scenarios, summary, names)
    if body:
        header = ["Scenario", *(KINDS[name].title for name in names)]
        found.append(("From publish to confirm, p50 / p99 in microseconds", header, body))
    body = single_rows(scenarios, runs)
    if body:
        found.append(("Restart and memory", ["What", "Millstream"], body))
    return found


def floor_rows(scenarios: Sequence[QueueScenario], runs: Sequence[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    for scenario in scenarios:
        floor = find_floor(scenario, "millstream", runs)
        if floor is not None:
            records = f"R({scenario.singles or scenario.batch}) = {floor.records:,.0f}"
            rate = f"{floor.share * floor.promised:,.0f}"
            syncs = f"{floor.syncs:,.0f}" if floor.is_steady else f"{floor.syncs:,.0f} (unsteady)"
            cells = [syncs, records, f"{floor.promised:,.0f}", rate]
            rows.append([scenario.title, *cells, f"{floor.share:.2f}", f"{floor.times_syncs:.2f}"])
    return rows


def rate_header(names: Sequence[str]) -> list[str]:
    columns = ["Scenario"]
    for name in names:
        columns += [KINDS[name].title, "CPU s"]
    columns += [
        f"{'os ' if own == 'millstream-os' else ''}x {peer}"
        for own, peer in PAIRS
        if own in names and peer in names
    ]
    return [*columns, "Generator"]


def rate_row(scenario: QueueScenario, summary: Summary, names: Sequence[str]) -> list[str]:
    row = [scenario.title]
    for name in names:
        row += rate_cells(summary.figures.get((scenario.name, name)))
    for own, peer in PAIRS:
        if own in names and peer in names:
            row.append(ratio_cell(summary.find(scenario.name, own), summary.find(scenario.name, peer)))
    shares = [
        figure.generator_share for name in names if (figure := summary.find(scenario.name, name)) is not None
    ]
    return [*row, f"{max(shares):.0%}" if shares else ""]


def trip_rows(scenarios: Sequence[QueueScenario], summary: Summary, names: Sequence[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    for scenario in scenarios:
        if scenario.singles:
            figures = [summary.find(scenario.name, name) for name in names]
            rows.append([scenario.title, *(round_trip_cell(figure) if figure else "" for figure in figures)])
    return rows


def single_rows(scenarios: Sequence[QueueScenario], runs: Sequence[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    for scenario in scenarios:
        facts = first_facts(scenario.name, runs)
        if facts is None:
            continue
        if scenario.kind == "restart":
            stored = f"{number(facts, 'stored'):,.0f} x 1 KiB queued"
            rows.append([f"{stored}: kill -9 to ready", f"{number(facts, 'ready_s'):.2f} s"])
            rows.append(
                [f"{stored}: kill -9 to first delivery", f"{number(facts, 'first_delivery_s'):.2f} s"]
            )
        elif scenario.kind == "grow":
            stored = f"{number(facts, 'deliveries'):,.0f} x 64 B in a stream"
            before = number(facts, "rss_before_bytes") / MEBIBYTE
            after = number(facts, "rss_after_bytes") / MEBIBYTE
            rows.append(
                [f"{stored}: memory after the first tenth, and at most", f"{before:.0f}, {after:.0f} MiB"]
            )
            cost = f"{number(facts, 'cpu_first_us'):.2f}, {number(facts, 'cpu_last_us'):.2f} us"
            rows.append([f"{stored}: CPU per publish, first and last tenth", cost])
            rate = number(facts, "deliveries") / max(number(facts, "seconds"), 1e-9)
            rows.append([f"{stored}: confirmed per second", short(rate)])
    return rows


def print_report(
    console: Console,
    scenarios: Sequence[QueueScenario],
    summary: Summary,
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: dict[str, object],
) -> None:
    for title, header, body in sections(scenarios, summary, runs):
        print_table(console, title, header, body)
    if checks:
        marked = [
            (*check_cells(check)[:-1], f"[{COLOURS.get(check.verdict, 'yellow')}]{check.verdict}[/]")
            for check in checks
        ]
        print_table(console, "What must be shown", CHECK_HEADER, marked)
        console.print(closing_line(checks, document), highlight=False)
    if any(name.startswith("millstream") for name in brokers_of(summary)):
        if not document["is_millstream_compiled"]:
            console.print(
                "[yellow]Millstream ran interpreted: build it with ./dev build before judging.[/yellow]"
            )


def write_report(
    scenarios: Sequence[QueueScenario],
    summary: Summary,
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: dict[str, object],
) -> list[str]:
    """The published files after a whole run; files beside the results after a short or partial one."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    is_whole = bool(document["is_whole"])
    result_path = RESULTS / ("queues.json" if is_whole else "queues-partial.json")
    result_path.write_text(json.dumps(document, indent=1) + "\n")
    written = [result_path]
    chart_path = CHART if is_whole else RESULTS / "queues-partial.png"
    chart_path.parent.mkdir(parents=True, exist_ok=True)
    if draw_chart(scenarios, summary, brokers_of(summary), chart_path):
        written.append(chart_path)
    if is_whole:
        PAGE.write_text(write_page(scenarios, summary, runs, checks, document))
        written.append(PAGE)
    return [str(path.relative_to(PROJECT)) for path in written]


def write_page(
    scenarios: Sequence[QueueScenario],
    summary: Summary,
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: dict[str, object],
) -> str:
    machine = document["machine"]
    versions = document["versions"]
    left_out = document["left_out"]
    measure_ms = document["measure_ms"]
    if not isinstance(machine, dict) or not isinstance(versions, dict) or not isinstance(left_out, dict):
        raise TypeError("a document of results has a machine, versions and the brokers left out")
    if not isinstance(measure_ms, int):
        raise TypeError("a document of results has the length of its windows")
    sizes = {key: document[key] for key in ("rounds", "fill", "messages", "restart_messages")}
    system = f"{machine['system']}, {machine['filesystem']}, Python {machine['python']}"
    lines = [f"- {KINDS[name].title}: {text}; {KINDS[name].durability}" for name, text in versions.items()]
    lines += [f"- {KINDS[name].title}: left out, {reason}" for name, reason in left_out.items()]
    parts = [
        METHOD.format(seconds=measure_ms / 1000, **sizes),
        "## Machine, versions and durability\n",
        f"{machine['cores']} cores, {machine['processor']}, {system}.\n",
        "Trust ratios and CPU more than rates: other programs may have used the machine and its disk.\n",
        "\n".join(lines) + "\n",
    ]
    for title, header, body in sections(scenarios, summary, runs):
        parts += [f"## {title}\n", markdown_table(header, body) + "\n"]
    parts += [
        "![Messages per second and CPU per message, by scenario and broker](images/bench-queues.png)\n",
        "## What must be shown\n",
        markdown_table(CHECK_HEADER, [check_cells(check) for check in checks]) + "\n",
        "## Repeat it\n",
        REPEAT,
        "The raw facts of every round are in `benchmarks/results/queues.json`.\n",
    ]
    return "\n".join(parts)
