"""The streaming job under test, a process of its own: `python -m crash.spark_job PLAN.json`.

Two queries read the same streams: one fills a lake table of plain Parquet, the other a second queue. Every row carries the
queue and the offset it came from. The job says in its log when its queries run; how it ends is up to who watches it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

STARTED: Final = "queries run"
HONEST: Final = ("millstream_lake", "millstream")
LAKE_COLUMNS: Final = ("queue", "offset", "timestamp", "payload")


@dataclass(frozen=True)
class Plan:
    """One life of the job. `formats` are the sinks to use: the real ones, or those of crash.spark_sinks. Where
    `is_handed_over`, the tasks that write the lake fetch the records themselves."""

    uri: str
    pattern: str
    lake: str
    target: str
    checkpoints: str
    scratch: str
    master: str = "local[2]"
    rows_max: int = 1000
    is_available_now: bool = False
    formats: tuple[str, str] = HONEST
    java_options: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    is_handed_over: bool = False

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_plan(file: Path) -> Plan:
    fields = json.loads(file.read_text(encoding="utf-8"))
    fields["formats"] = tuple(fields["formats"])
    fields["settings"] = tuple(tuple(pair) for pair in fields["settings"])
    return Plan(**fields)


def open_session(plan: Plan) -> SparkSession:
    builder = (
        SparkSession.builder.master(plan.master)
        .appName("millstream-crash")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", plan.java_options)
        .config("spark.executor.extraJavaOptions", plan.java_options)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{plan.scratch}/warehouse")
        .config("spark.local.dir", f"{plan.scratch}/local")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.mode", "FAIR")  # the two queries take turns
        .config("spark.task.maxFailures", "20")  # their tasks are killed more often than Spark puts up with
    )
    for name, value in plan.settings:
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if plan.formats != HONEST:
        from crash.spark_sinks import SINKS

        for kind in SINKS:
            session.dataSource.register(kind)
    return session


def read_streams(session: SparkSession, plan: Plan, group: str, **more: str) -> DataFrame:
    return (
        session.readStream.format("millstream")
        .option("uri", plan.uri)
        .options(queuePattern=plan.pattern, startingOffsets="earliest", consumerGroup=group)
        .options(maxOffsetsPerTrigger=str(plan.rows_max), minPartitions="2", **more)
        .load()
    )


def start_lake(session: SparkSession, plan: Plan) -> StreamingQuery:
    if plan.is_handed_over:
        rows = read_streams(session, plan, "lake", columns=",".join(LAKE_COLUMNS), handOver="true")
        writer = rows.writeStream.option("handOver", "true").option("uri", plan.uri)
    else:
        writer = read_streams(session, plan, "lake").select(*LAKE_COLUMNS).writeStream
    writer = writer.format(plan.formats[0]).option("path", plan.lake).queryName("lake")
    return start(writer.option("checkpointLocation", f"{plan.checkpoints}/lake"), plan)


def start_queue(session: SparkSession, plan: Plan) -> StreamingQuery:
    rows = read_streams(session, plan, "queue")
    place = F.concat_ws(" ", "queue", "offset", F.col("payload").cast("string"))
    writer = rows.select(place.alias("payload")).writeStream.format(plan.formats[1]).queryName("queue")
    writer = writer.option("uri", plan.uri).option("queue", plan.target)
    return start(writer.option("checkpointLocation", f"{plan.checkpoints}/queue"), plan)


def start(writer: DataStreamWriter, plan: Plan) -> StreamingQuery:
    if plan.is_available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="100 milliseconds").start()


def main(arguments: list[str]) -> int:
    plan = read_plan(Path(arguments[0]))
    session = open_session(plan)
    queries = [start_lake(session, plan), start_queue(session, plan)]
    print(STARTED, flush=True)
    for query in queries:
        query.awaitTermination()
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
