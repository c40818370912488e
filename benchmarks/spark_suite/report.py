"""What `bench spark` reports: its tables, and the text of docs/benchmarks-spark.md around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.spark_suite.chart import draw_chart
from benchmarks.spark_suite.results import SparkFigure, find_facts, summarize
from benchmarks.spark_suite.scenarios import SIDES, SparkScenario
from benchmarks.suite.report import Report, Section, read_table, short
from benchmarks.suite.results import Check, Run, number

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
- Headers: {last_rows:,} rows with a user property each, written through the sink; queue, offset, timestamp, topic, payload and headers are read: the row for which the target of batch reads
  was set, with a prototype that read Arrow files and had no reader. What the ratio is without the reader's time stands beside the one that is judged.
- Streaming: the same rows with `availableNow`, one million a trigger, the first trigger dropped; Parquet: two files a trigger.
- Lake: the same streaming read into `millstream_lake` as Parquet and as Delta, and into Spark's own Parquet sink; zstd for all. *Lake pipeline*: as `millstream pipeline run lake` does it, where the tasks that
  write fetch the records (`handOver`); *lake after Spark*: every row goes through Spark first, as it must where a query changes rows; *bound by rows only*:
  the same with `spark.sql.execution.arrow.maxBytesPerBatch` at 2147483647, so that Spark does not measure each batch after every row.
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


def make_report(
    scenarios: Sequence[SparkScenario],
    runs: Sequence[Run],
    checks: Sequence[Check],
    document: Mapping[str, object],
    copy: Path | None,
) -> Report:
    figures = [
        summarize(scenario.name, side, runs)
        for scenario in scenarios
        if scenario.name in RATED
        for side in scenario.sides
    ]
    sizes = {key: document[key] for key in ("rounds", "rows", "file_rows", "long_rows", "last_rows")}
    machine = "{cores} cores, {processor}, {system}, {filesystem}, Python {python}"
    return Report(
        name="spark",
        page_name="benchmarks-spark.md",
        method=METHOD.format(**sizes),
        place="Machine and versions",
        machine=machine.format(**read_table(document, "machine")),
        versions=[f"{name}: {text}" for name, text in read_table(document, "versions").items()],
        sections=sections(scenarios, runs),
        picture="Rows per second and processor time by row",
        draw=lambda path: draw_chart(scenarios, figures, path),
        checks=checks,
        repeat=REPEAT,
        document=document,
        brokers=["millstream"],
        copy=copy,
    )
