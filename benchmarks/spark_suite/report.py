"""The report of a run: tables on the terminal, JSON, a chart, and docs/benchmarks-spark.md from the same figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.spark_suite.chart import draw_chart
from benchmarks.spark_suite.results import SparkFigure, find_facts, summarize
from benchmarks.spark_suite.scenarios import SIDES, SparkScenario
from benchmarks.suite.report import (
    CHECK_HEADER,
    COLOURS,
    check_cells,
    closing_line,
    markdown_table,
    print_table,
    short,
)
from benchmarks.suite.results import Check, Run, number

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "benchmarks" / "results"
CHART = PROJECT / "docs" / "images" / "bench-spark.png"
PAGE = PROJECT / "docs" / "benchmarks-spark.md"
RATED = ("batch", "headers", "stream", "lake", "wire", "length")

METHOD = """\
# Benchmarks: Spark

Written by `./dev bench spark`; do not edit. Every figure below comes from one run on one machine.

## Method

- One broker with its reader, and one Spark session, `local[2]`, on the same cores, on loopback. Nothing is pinned, but in *wire*. Rows have a topic of 24 bytes and 100 random bytes of payload;
  they were published with MQTT, QoS 1. Both sides of a comparison run one after the other in every round, after a warm-up; a ratio is the median of those of {rounds} rounds.
- *CPU* is processor time by row: of Spark's Java process, of its Python workers, of the reader. The broker itself has no part in reading.
- Batch: {rows:,} rows, all eleven columns, into Spark's `noop` sink; the same rows from Parquet files that Spark wrote (snappy, {file_rows:,} rows each). The Python CPU that is judged holds the reader, where
  records become columns, as well as the workers.
- Headers: {last_rows:,} rows with a user property each, written through the sink; queue, offset, timestamp, topic, payload and headers are read.
- Streaming: the same rows with `availableNow`, one million a trigger, the first trigger dropped; Parquet: two files a trigger.
- Lake: the same streaming read into `millstream_lake` as Parquet and as Delta, and into Spark's own Parquet sink; zstd for all. *Lake pipeline*: as `millstream pipeline run lake` does it, where the tasks that
  write fetch the records (`handOver`); *lake after Spark*: every row goes through Spark first, as it must where a query changes rows.
- Wire: a bare client counts rows from `GET /v1/queues/NAME/records?layout=view`; then the same batches, ready in memory, from a process that does nothing but send them. Server and client have a core each.
- Micro-batches: the median trigger of a query that takes 200 rows a time, `noop` sink; against Spark's `rate-micro-batch`.
- Latency: 100,000 rows/s are published; a query without limits writes them to a lake of Parquet. From the moment a block of 1,000 rows is sent to the moment Spark has noted the commit of its batch.
- Length: the last million rows of a stream of {long_rows:,} and of one of 1,000,000.
- Interference: publishing into another stream, 10 publishers with 256 in flight (throughput) and 16 with one (answer time), while Spark reads the backlog again and again; while Spark reads the same
  rows from Parquet files, which the broker has no part in; and, for comparison, while burners are told to use as much processor time as Spark and the reader together did
  (where processors are short they get less). Broker, reader, publishers and Spark are sessions of their own, which is what the scheduler shares by.
- Where other programs used more than a tenth of the processors a figure is *disturbed*: ours then proves a target if it can and breaks none, that of the other side proves nothing.
"""

REPEAT = """\
```
./dev bench spark                               # all of the above, about ten minutes
./dev bench spark --quick                       # one short round
./dev bench spark --scenario batch --rounds 5   # one scenario
./dev bench spark --scenario length --long      # against 50,000,000 rows
./dev bench spark --list                        # their names
```
"""

Section = tuple[str, list[str], list[list[str]]]


def sections(scenarios: Sequence[SparkScenario], runs: Sequence[Run]) -> list[Section]:
    """The tables of the report, only those with rows."""
    found: list[Section] = []
    body = [
        rate_row(scenario, summarize(scenario.name, side, runs))
        for scenario in scenarios
        if scenario.name in RATED
        for side in scenario.sides
    ]
    if body:
        header = ["Scenario", "Side", "Rows/s", "CPU us/row", "Java", "Python", "Reader"]
        found.append(("Rows per second, and processor time by row", header, body))
    body = trigger_rows(runs)
    if body:
        header = [
            "Source",
            "Trigger ms",
            "latestOffset",
            "addBatch",
            "walCommit",
            "commitOffsets",
            "planning",
        ]
        found.append(("Micro-batches of 200 rows, medians", header, body))
    body = publish_rows(runs)
    if body:
        header = ["Beside", "Its cores", "Publishes/s", "Its cores", "p50 us", "p99 us", "Broker us/publish"]
        found.append(("Live publishing", header, body))
    return found


def rate_row(scenario: SparkScenario, figure: SparkFigure) -> list[str]:
    side = SIDES[figure.side]
    if figure.fault:
        return [scenario.title, side, "failed", "", "", "", ""]
    rate = short(figure.rate) + (" (disturbed)" if figure.is_disturbed else "")
    parts = [figure.cpu_us, figure.jvm_us, figure.python_us, figure.reader_us]
    return [scenario.title, side, rate, *(f"{part:.2f}" if part >= 0.005 else "" for part in parts)]


def trigger_rows(runs: Sequence[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    names = ("trigger", "latestOffset", "addBatch", "walCommit", "commitOffsets", "queryPlanning")
    for side in ("millstream", "native"):
        found = find_facts(runs, "microbatch", side)
        if found:
            cells = [f"{median(number(facts, f'{name}_ms') for facts in found):.0f}" for name in names]
            rows.append([SIDES[side], *cells])
    return rows


def publish_rows(runs: Sequence[Run]) -> list[list[str]]:
    rows: list[list[str]] = []
    for side in ("alone", "spark", "files", "foreign"):
        found = find_facts(runs, "interference", side)
        if found:

            def middle(name: str, facts: list[dict[str, float]] = found) -> float:
                return median(number(one, name) for one in facts)

            rows.append(
                [
                    SIDES[side],
                    f"{middle('throughput_used_cores'):.2f}",
                    short(middle("throughput_rate")),
                    f"{middle('answer_used_cores'):.2f}",
                    f"{middle('answer_p50_us'):,.0f}",
                    f"{middle('answer_p99_us'):,.0f}",
                    f"{middle('throughput_broker_us'):.2f}",
                ]
            )
    return rows


def print_report(
    console: Console,
    scenarios: Sequence[SparkScenario],
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: dict[str, object],
) -> None:
    for title, header, body in sections(scenarios, runs):
        print_table(console, title, header, body)
    marked = [
        (*check_cells(check)[:-1], f"[{COLOURS.get(check.verdict, 'yellow')}]{check.verdict}[/]")
        for check in checks
    ]
    print_table(console, "What must be shown", CHECK_HEADER, marked)
    console.print(closing_line(checks, document), highlight=False)
    if not document["is_millstream_compiled"]:
        console.print(
            "[yellow]Millstream ran interpreted: build it with ./dev build before judging.[/yellow]"
        )


def write_report(
    scenarios: Sequence[SparkScenario],
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: dict[str, object],
    output: Path | None,
) -> list[str]:
    """The published files after a whole run; files beside the results after a short or partial one."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    is_whole = bool(document["is_whole"])
    text = json.dumps(document, indent=1) + "\n"
    written = [RESULTS / ("spark.json" if is_whole else "spark-partial.json")]
    written[0].write_text(text)
    if output is not None:
        output.write_text(text)
        written.append(output.resolve())
    chart_path = CHART if is_whole else RESULTS / "spark-partial.png"
    chart_path.parent.mkdir(parents=True, exist_ok=True)
    figures = [
        summarize(scenario.name, side, runs)
        for scenario in scenarios
        if scenario.name in RATED
        for side in scenario.sides
    ]
    if draw_chart(scenarios, figures, chart_path):
        written.append(chart_path)
    if is_whole:
        PAGE.write_text(write_page(scenarios, runs, checks, document))
        written.append(PAGE)
    return [str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path) for path in written]


def write_page(
    scenarios: Sequence[SparkScenario],
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: dict[str, object],
) -> str:
    machine = document["machine"]
    versions = document["versions"]
    if not isinstance(machine, dict) or not isinstance(versions, dict):
        raise TypeError("a document of results has a machine and versions")
    sizes = {key: document[key] for key in ("rounds", "rows", "file_rows", "long_rows", "last_rows")}
    system = f"{machine['system']}, {machine['filesystem']}, Python {machine['python']}"
    parts = [
        METHOD.format(**sizes),
        "## Machine and versions\n",
        f"{machine['cores']} cores, {machine['processor']}, {system}.\n",
        "Trust ratios and CPU more than rates: other programs may have used the machine.\n",
        "\n".join(f"- {name}: {text}" for name, text in versions.items()) + "\n",
    ]
    for title, header, body in sections(scenarios, runs):
        parts += [f"## {title}\n", markdown_table(header, body) + "\n"]
    parts += [
        "![Rows per second and processor time by row](images/bench-spark.png)\n",
        "## What must be shown\n",
        markdown_table(CHECK_HEADER, [check_cells(check) for check in checks]) + "\n",
        "## Repeat it\n",
        REPEAT,
        "The raw facts of every round are in `benchmarks/results/spark.json`.\n",
    ]
    return "\n".join(parts)
