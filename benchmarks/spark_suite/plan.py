"""What one invocation of `bench spark` measures: its command line and its sizes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spark_suite.scenarios import BY_NAME, SCENARIOS, SparkScenario
from benchmarks.suite.plan import FOLDER, choose, count_rounds, make_parser, parse_with

ROWS_STEP = 1_000_000
BYTES_PER_ROW = 1000  # segment, log, a checkpoint on its way, and the same rows as Parquet, several times
LONG_ROWS = 50_000_000


@dataclass(frozen=True)
class Plan:
    scenarios: tuple[SparkScenario, ...]
    rounds: int
    rows: int  # read by a batch, and by a streaming query
    trigger_rows: int
    long_rows: int  # in the stream whose end is read
    last_rows: int
    small_triggers: int
    live_rate: int
    live_warm_s: float
    live_s: float
    publish_ms: int
    warmups: int
    memory: str
    folder: Path
    is_quick: bool

    @property
    def is_whole(self) -> bool:
        """Whether the published page may be written from it."""
        return not self.is_quick and len(self.scenarios) == len(SCENARIOS)

    def disk_bytes(self) -> int:
        has_length = any(scenario.name == "length" for scenario in self.scenarios)
        most = max(self.rows, self.long_rows if has_length else 0)
        return most * BYTES_PER_ROW // 2 + self.rows * BYTES_PER_ROW


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser(
        "spark",
        "Measure streams as Spark tables against Spark's own sources and sinks.",
        "batch",
        BY_NAME,
        (),
        "one short round with few rows",
    )
    parser.add_argument("--rows", type=int, default=0, help="rows that are read (4,000,000), by the million")
    parser.add_argument(
        "--long-rows", type=int, default=0, help="rows in the long stream of the scenario length (10,000,000)"
    )
    parser.add_argument(
        "--long", action="store_true", help=f"{LONG_ROWS:,} rows in it; takes minutes to fill"
    )
    parser.add_argument("--memory", default="3g", help="of Spark's driver, which is all of local[2] (3g)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where broker and Spark keep their files")
    parser.add_argument("-o", "--output", type=Path, help="write the JSON of the results here as well")
    parsed = parse_with(parser, arguments, ())
    for name in ("rows", "long_rows"):
        if getattr(parsed, name) < 0 or getattr(parsed, name) % ROWS_STEP:
            parser.error(f"--{name.replace('_', '-')} must be a whole number of millions, like 4000000")
    return parsed


def make_plan(parsed: argparse.Namespace) -> Plan:
    is_quick = parsed.quick
    rows = parsed.rows or (2_000_000 if is_quick else 4_000_000)
    long_rows = LONG_ROWS if parsed.long else parsed.long_rows or (3_000_000 if is_quick else 10_000_000)
    return Plan(
        scenarios=choose(SCENARIOS, parsed.scenario),
        rounds=count_rounds(parsed),
        rows=rows,
        trigger_rows=ROWS_STEP,
        long_rows=max(rows, long_rows),
        last_rows=ROWS_STEP,
        small_triggers=10 if is_quick else 25,
        live_rate=100_000,
        live_warm_s=3.0 if is_quick else 6.0,
        live_s=4.0 if is_quick else 12.0,
        publish_ms=1500 if is_quick else 4000,
        warmups=1 if is_quick else 3,
        memory=parsed.memory,
        folder=parsed.folder,
        is_quick=is_quick,
    )
