"""lake: streams to a table of Parquet, Delta or Iceberg, each row once for every reader, without a jar.

Spark keeps how far it came beside the table. A batch that is run again after a crash adds nothing. With `compact`, small
files become large ones while rows go on coming. Where `transform` gives the rows back as they came (`where` is empty), they
need not go through Spark: the tasks that write the table fetch them, at about half the cost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_millstream.errors import MillstreamSparkError, OptionError
from pyspark_millstream.lake.compaction import compact
from pyspark_millstream.pipelines.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NAME = "lake"
SUMMARY = "streams to a table of Parquet, Delta or Iceberg, each row once, small files made large"
SETTINGS: dict[str, Setting] = {
    "uri": Setting(
        "http://127.0.0.1:8090", "address of the broker's reader, with user and password if it wants them"
    ),
    "queues": Setting("", "stream queues to keep, separated by commas; empty: all that `pattern` names"),
    "pattern": Setting(
        ".*", "regular expression of queue names, where `queues` is empty; new queues are taken too"
    ),
    "table": Setting("", "folder of the table", is_required=True),
    "table_format": Setting("parquet", "parquet, delta or iceberg"),
    "partition_by": Setting("date(timestamp),queue", "folders: columns, date(column), hour(column), or none"),
    "columns": Setting("", "only these columns of the source, separated by commas; empty: all"),
    "headers": Setting("false", "true keeps the headers of each message as well"),
    "where": Setting("", "SQL: keep only rows of which this is true"),
    "checkpoint": Setting("", "folder in which Spark keeps how far it came; empty: beside the table"),
    "trigger": Setting(
        "10 seconds", "time between two batches, or `available_now`: take what is there and end"
    ),
    "start": Setting("earliest", "where a first run begins: earliest, latest, or offsets as JSON"),
    "group": Setting("lake", "consumer group that shows in the broker how far this came; empty: none"),
    "max_rows": Setting("1000000", "rows in one batch, at most"),
    "hand_over": Setting(
        "auto", "auto: tasks that write fetch the records themselves, where no row is changed; or never"
    ),
    "compact": Setting(
        "never", "never; `only`: make large files now and end; or seconds between two times, and at the end"
    ),
    "compact_bytes": Setting("134217728", "size of the files that compaction makes, about"),
}

log = logging.getLogger(__name__)


def transform(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """What is kept of the rows of the source: put your own columns here. Give back `rows` itself to keep all as they are."""
    return rows.where(settings["where"]) if settings["where"] else rows


def build(spark: SparkSession, settings: Mapping[str, str]) -> list[StreamingQuery] | None:
    if settings["compact"] == "only":
        log.warning("%s: %s", settings["table"], compact_now(settings))
        return None
    pause_s = compaction_pause(settings)
    writer = rows_to_write(spark, settings)
    writer = writer.option("path", settings["table"]).option("tableFormat", settings["table_format"])
    writer = writer.option("partitionBy", settings["partition_by"]).queryName(NAME)
    writer = writer.option("checkpointLocation", settings["checkpoint"] or f"{settings['table']}.checkpoint")
    if settings["trigger"] == "available_now":
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=settings["trigger"]).start()
    if pause_s is not None:
        threading.Thread(target=keep_compact, args=(query, settings, pause_s), name="compaction").start()
    return [query]


def rows_to_write(spark: SparkSession, settings: Mapping[str, str]) -> DataStreamWriter:
    """Records as `transform` makes them; or, where it leaves them alone, the ranges they are in."""
    if settings["hand_over"] not in ("auto", "never"):
        raise OptionError(f"hand_over={settings['hand_over']} is not known", "Write auto or never.")
    rows = read(spark, settings)
    kept = transform(rows, settings)
    if settings["hand_over"] == "never" or kept is not rows:
        return kept.writeStream.format("millstream_lake")
    writer = read(spark, settings, handOver="true").writeStream.format("millstream_lake")
    return writer.option("handOver", "true").option("uri", settings["uri"])


def read(spark: SparkSession, settings: Mapping[str, str], **more: str) -> DataFrame:
    reader = spark.readStream.format("millstream").option("uri", settings["uri"]).options(**more)
    if settings["queues"]:
        reader = reader.option("queues", settings["queues"])
    else:
        reader = reader.option("queuePattern", settings["pattern"])
    reader = reader.option("startingOffsets", settings["start"]).option(
        "maxOffsetsPerTrigger", settings["max_rows"]
    )
    reader = reader.option("includeHeaders", settings["headers"])
    if settings["columns"]:
        reader = reader.option("columns", settings["columns"])
    if settings["group"]:
        reader = reader.option("consumerGroup", settings["group"])
    return reader.load()


def compact_now(settings: Mapping[str, str]) -> str:
    return str(compact(settings["table"], int(settings["compact_bytes"])))


def compaction_pause(settings: Mapping[str, str]) -> float | None:
    """Seconds between two compactions; None: never."""
    if settings["compact"] == "never":
        return None
    if not settings["compact"].isdigit() or not settings["compact_bytes"].isdigit():
        raise OptionError(
            f"compact={settings['compact']} with compact_bytes={settings['compact_bytes']} cannot be",
            "Write compact=never, only or a number of seconds, and compact_bytes as a number.",
        )
    return float(settings["compact"])


def keep_compact(query: StreamingQuery, settings: Mapping[str, str], pause_s: float) -> None:
    """While the query runs, and once more when it has ended."""
    is_over = False
    while not is_over:
        try:
            is_over = bool(query.awaitTermination(int(max(pause_s, 1))))
        except Exception:  # noqa: BLE001 - it failed, and tells so itself; the rows it wrote are worth compacting
            is_over = True
        try:
            log.warning("%s: %s", settings["table"], compact_now(settings))
        except MillstreamSparkError as refused:
            log.warning("%s: not compacted: %s", settings["table"], refused)
