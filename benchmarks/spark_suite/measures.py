"""How each side of each scenario is measured: one window gives one set of facts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark_suite.interference import Interference
from benchmarks.spark_suite.latency import measure_latency
from benchmarks.spark_suite.plan import Plan
from benchmarks.spark_suite.scenarios import OURS
from benchmarks.spark_suite.wire import Wire
from benchmarks.spark_suite.world import HEADED, LONG, SHORT, SparkWorld

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Facts = dict[str, float]

MILLION = 1_000_000
FILE_ROWS = 500_000  # one task of ours writes one file, and so do Parquet's tasks read it
SMALL_ROWS = 200
SMALL_SKIPPED = 5  # triggers, while the query warms up
QUERY_WAIT_S = 120.0
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
BYTES_UNBOUND = "2147483647"


class Measures:
    """Streams and files are made when they are first needed, and stay."""

    def __init__(self, world: SparkWorld, plan: Plan, say: Callable[[str], None]) -> None:
        self._world = world
        self._plan = plan
        self._say = say
        self._parquet = ""
        self._headed = ""
        self._ends: dict[str, int] = {}
        self._warm: set[tuple[str, str]] = set()
        self._wire = Wire(world, plan.rows)
        reads = {"spark": lambda: self._read_batch(LONG, plan.rows), "files": self._read_files}
        self._interference = Interference(world, plan, reads)

    def measure(self, scenario: str, side: str) -> Facts:
        """The first time, once for nothing: compilers of Java and workers of Python have to warm up."""
        self._prepare(scenario)
        measure: dict[str, Callable[[str], Facts]] = {
            "batch": self._batch,
            "headers": self._batch_with_headers,
            "stream": self._stream,
            "lake": self._lake,
            "wire": self._wire.measure,
            "microbatch": self._microbatch,
            "latency": lambda _side: measure_latency(self._world, self._plan),
            "length": self._length,
            "interference": self._interference.measure,
        }
        if (
            scenario in ("batch", "headers", "stream", "lake", "length", "wire")
            and (scenario, side) not in self._warm
        ):
            self._warm.add((scenario, side))
            for _ in range(self._plan.warmups if scenario in ("batch", "headers", "length") else 1):
                measure[scenario](side)
        return measure[scenario](side)

    # -------------------------------------------------------------------- data

    def _prepare(self, scenario: str) -> None:
        plan = self._plan
        if scenario in ("length", "microbatch"):
            self._fill(SHORT, plan.last_rows)
        if scenario not in ("latency", "microbatch"):
            self._fill(LONG, plan.long_rows if scenario == "length" else plan.rows)
        if scenario in ("batch", "stream", "interference") and not self._parquet:
            self._parquet = self._world.folder("rows")
            self._say(f"writing {plan.rows:,} rows as Parquet")
            # Twice, and the first is thrown away: it warms up what all scenarios use.
            self._rows(FILE_ROWS).write.parquet(self._world.folder("rows"))
            self._rows(plan.rows).write.parquet(self._parquet)
            found = self._world.spark.read.parquet(self._parquet).count()
            if found != plan.rows:
                raise ValueError(f"{found:,} rows were written instead of {plan.rows:,}")

        if scenario == "headers" and not self._headed:
            self._make_headed()

    def _make_headed(self) -> None:
        """Rows of the long stream with a user property each, through the sink into another; and those as Parquet."""
        rows = self._plan.last_rows
        self._say(f"writing {rows:,} rows with headers, to a stream and as Parquet")
        started = time.monotonic()
        (
            self._rows(rows)
            .selectExpr("topic as key", "payload", "map('unit', concat('u', offset % 100)) as headers")
            .write.format("millstream")
            .mode("append")
            .options(uri=self._world.broker.uri, queue=HEADED)
            .save()
        )
        self._say(f"  {rows / (time.monotonic() - started):,.0f} rows/s were committed")
        self._ends[HEADED] = self._world.broker.end_of(HEADED)
        if self._ends[HEADED] != rows:
            raise ValueError(f"{self._ends[HEADED]:,} rows came instead of {rows:,}")
        self._headed = self._world.folder("headed")
        self._headed_rows().write.parquet(self._headed)

    def _headed_rows(self) -> DataFrame:
        columns = "queue,offset,timestamp,topic,payload,headers"
        end = self._ends[HEADED]
        return self._world.read(HEADED, 0, end, columns=columns, includeHeaders="true")

    def _fill(self, queue: str, rows: int) -> None:
        if self._ends.get(queue, 0) < rows:
            self._say(f"filling the stream {queue} with {rows:,} rows")
            rate = self._world.fill(queue, rows)
            self._say(f"  {rate:,.0f} rows/s were confirmed")
            self._ends[queue] = self._world.broker.end_of(queue)

    def _rows(self, count: int) -> DataFrame:
        """The newest of the long stream; it does not grow while it is measured."""
        end = self._ends[LONG]
        return self._world.read(LONG, end - count, end)

    # ------------------------------------------------------------------- reads

    def _read_batch(self, queue: str, rows: int) -> None:
        end = self._ends[queue]
        write_nowhere(self._world.read(queue, end - rows, end))

    def _read_files(self) -> None:
        write_nowhere(self._world.spark.read.parquet(self._parquet))

    def _batch(self, side: str) -> Facts:
        meter = self._world.meter()
        if side == OURS:
            self._read_batch(LONG, self._plan.rows)
        else:
            self._read_files()
        return {**meter.take(), "rows": float(self._plan.rows)}

    def _batch_with_headers(self, side: str) -> Facts:
        meter = self._world.meter()
        is_ours = side == OURS
        write_nowhere(self._headed_rows() if is_ours else self._world.spark.read.parquet(self._headed))
        return {**meter.take(), "rows": float(self._ends[HEADED])}

    def _length(self, side: str) -> Facts:
        meter = self._world.meter()
        self._read_batch(SHORT if side == "short" else LONG, self._plan.last_rows)
        return {**meter.take(), "rows": float(self._plan.last_rows)}

    def _stream(self, side: str) -> Facts:
        if side == OURS:
            source = self._input()
        else:
            spark = self._world.spark
            source = (
                spark.readStream.schema(spark.read.parquet(self._parquet).schema)
                .option("maxFilesPerTrigger", self._plan.trigger_rows // FILE_ROWS)
                .parquet(self._parquet)
            )
        return self._run(source, "noop", {})

    def _input(self, **options: str) -> DataFrame:
        first = self._ends[LONG] - self._plan.rows
        return self._world.read_stream(
            LONG, first, maxOffsetsPerTrigger=str(self._plan.trigger_rows), **options
        )

    def _lake(self, side: str) -> Facts:
        """One compression for all. `handed`: as the lake pipeline does it, where rows stay as they are. `unbound`: Spark does
        not measure a batch after every row of it."""
        path = self._world.folder(side)
        options = {"path": path, "compression": "zstd"}
        more: dict[str, str] = {}
        kind, _, table_format = side.partition("-")
        if kind == "handed":
            more = {"handOver": "true"}
            options |= more | {"uri": self._world.broker.uri}
        if table_format:
            options["tableFormat"] = table_format
        sink = "millstream_lake" if table_format else "parquet"
        with self._world.setting(BATCH_BYTES, BYTES_UNBOUND) if kind == "unbound" else nullcontext():
            facts = self._run(self._input(**more), sink, options)
        files = list(Path(path).rglob("*.parquet"))
        written = sum(count_rows(file) for file in files)
        if written != self._plan.rows:
            raise ValueError(f"{written:,} rows were written instead of {self._plan.rows:,}")
        return {**facts, "bytes": float(sum(file.stat().st_size for file in files))}

    # ----------------------------------------------------------------- streams

    def _run(self, source: DataFrame, sink: str, options: dict[str, str]) -> Facts:
        """All there is, by triggers; the first is dropped from the rate, not from the processor time."""
        meter = self._world.meter()
        query = (
            source.writeStream.format(sink)
            .options(checkpointLocation=self._world.folder("checkpoint"), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        facts = meter.take()
        triggers = with_rows(query)
        counts = rows_of(triggers, self._ends[LONG] - self._plan.rows)
        rows = sum(counts)
        if rows != self._plan.rows:
            raise ValueError(f"{rows:,} rows were read instead of {self._plan.rows:,}")
        steady = slice(1, None) if len(triggers) > 1 else slice(None)
        return {
            **facts,
            "rows": float(rows),
            "steady_rows": float(sum(counts[steady])),
            "steady_s": sum(duration_ms(trigger) for trigger in triggers[steady]) / 1000,
            "triggers": float(len(triggers)),
        }

    def _microbatch(self, side: str) -> Facts:
        if side == OURS:
            source = self._world.read_stream(SHORT, 0, maxOffsetsPerTrigger=str(SMALL_ROWS))
        else:
            source = (
                self._world.spark.readStream.format("rate-micro-batch")
                .option("rowsPerBatch", SMALL_ROWS)
                .load()
            )
        meter = self._world.meter()
        query = (
            source.writeStream.format("noop")
            .option("checkpointLocation", self._world.folder("checkpoint"))
            .start()
        )
        wanted = self._plan.small_triggers + SMALL_SKIPPED
        deadline = time.monotonic() + QUERY_WAIT_S
        pause = threading.Event()
        while len(query.recentProgress) < wanted and query.isActive and time.monotonic() < deadline:
            pause.wait(0.2)
        query.stop()
        facts = meter.take()
        triggers = with_rows(query)[SMALL_SKIPPED:]
        if not triggers:
            raise ValueError(f"the query ran no trigger: {query.exception()}")
        durations = sorted(duration_ms(trigger) for trigger in triggers)
        facts["rows"] = float(sum(int(trigger["numInputRows"]) for trigger in triggers))
        facts["trigger_ms"] = durations[len(durations) // 2]
        for name in ("latestOffset", "addBatch", "walCommit", "commitOffsets", "queryPlanning"):
            parts = sorted(float(trigger["durationMs"].get(name, 0)) for trigger in triggers)
            facts[f"{name}_ms"] = parts[len(parts) // 2]
        return facts


def write_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def with_rows(query: StreamingQuery) -> list[dict[str, Any]]:
    """Progress of the triggers that had something to do."""
    import json

    found = [json.loads(progress.json) for progress in query.recentProgress]
    return [progress for progress in found if progress["numInputRows"]]


def rows_of(triggers: list[dict[str, Any]], first: int) -> list[int]:
    """Of each trigger. Of a stream of ours by its offsets: where records are handed over Spark counts ranges."""
    counts: list[int] = []
    for trigger in triggers:
        source = trigger["sources"][0]
        place = source["endOffset"]
        if not isinstance(place, dict) or LONG not in place:
            counts.append(int(trigger["numInputRows"]))
            continue
        end = int(place[LONG]["0"])
        counts.append(end - first)
        first = end
    return counts


def count_rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def duration_ms(progress: dict[str, Any]) -> float:
    return float(progress["durationMs"]["triggerExecution"])
