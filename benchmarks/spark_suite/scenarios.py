"""The scenarios of `bench spark`, as data: what is measured, against what, and what must be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BATCH_CPU_MIN: Final = 0.65  # CPU of Spark's Parquet reader over ours, by row ...
BATCH_CPU_AIM: Final = 1.0
SOURCE_CPU_US_MAX: Final = 0.45
STREAM_RATE_MIN: Final = 0.5
LAKE_RATE_MIN: Final = 1.0
WIRE_RATE_MIN: Final = 0.5
TRIGGER_TIMES_MAX: Final = 2.2
LENGTH_RATE_MIN: Final = 0.9  # "do not fall", with room for noise
THROUGHPUT_FALL_MAX: Final = 0.10
P99_RISE_MAX: Final = 0.20

OURS: Final = "millstream"


@dataclass(frozen=True)
class SparkScenario:
    name: str
    title: str
    sides: tuple[str, ...]  # measured one after the other in every round; the first is ours
    is_once: bool = False


SCENARIOS: Final = (
    SparkScenario("batch", "Batch read of a stream, all columns", (OURS, "parquet")),
    SparkScenario("headers", "Batch read, six columns with headers", (OURS, "parquet")),
    SparkScenario("stream", "Streaming read, availableNow, 1 M rows a trigger", (OURS, "parquet")),
    SparkScenario(
        "lake",
        "Stream to a table in files",
        ("handed-parquet", "handed-delta", "lake-parquet", "lake-delta", "unbound-parquet", "parquet"),
    ),
    SparkScenario("wire", "Reader over HTTP, layout view", (OURS, "bare")),
    SparkScenario("microbatch", "Micro-batches of 200 rows", (OURS, "native")),
    SparkScenario("latency", "100,000 rows/s, from publisher to committed table", (OURS,), is_once=True),
    SparkScenario("length", "Last million rows of a stream", ("long", "short")),
    SparkScenario("interference", "Live publishing meanwhile", ("spark", "files", "foreign", "alone")),
)
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
SIDES: Final = {
    OURS: "Millstream",
    "parquet": "Spark's Parquet",
    "handed-parquet": "Lake pipeline, Parquet",
    "handed-delta": "Lake pipeline, Delta",
    "lake-parquet": "Lake after Spark, Parquet",
    "lake-delta": "Lake after Spark, Delta",
    "unbound-parquet": "Lake after Spark, bound by rows only",
    "bare": "Arrow IPC over bare TCP",
    "native": "rate-micro-batch",
    "long": "long stream",
    "short": "1 M rows in all",
    "alone": "nobody beside",
    "spark": "Spark reads the backlog",
    "files": "Spark reads the same from Parquet",
    "foreign": "burners, as much CPU",
}
