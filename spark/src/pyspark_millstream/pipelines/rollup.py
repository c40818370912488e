"""rollup: statistics per device and window, to the lake and back to MQTT as retained topics.

A reading is counted in the window of its own time. One that comes more than `watermark` after the end of its window is
late: it changes no window that is already told, and is counted as `late` in the window in which the broker got it. So
count + late of all windows is the number of readings, and the result does not depend on how Spark cut its batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from pyspark_millstream.pipelines.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NAME = "rollup"
SUMMARY = "count, min, max, mean, stddev and last per device and window, to the lake and to retained topics"
SETTINGS: dict[str, Setting] = {
    "uri": Setting(
        "http://127.0.0.1:8090", "address of the broker's reader, with user and password if it wants them"
    ),
    "queues": Setting("", "stream queues to read, separated by commas", is_required=True),
    "device": Setting("element_at(split(topic, '/'), 2)", "SQL: what a device is called"),
    "value": Setting(
        "try_cast(cast(payload AS string) AS double)", "SQL: the reading; a row without one is left out"
    ),
    "time": Setting(
        "coalesce(event_time, timestamp)", "SQL: when it was read; never taken later than it arrived"
    ),
    "arrived": Setting(
        "timestamp", "SQL: when it arrived; not the broker's time where readings are replayed"
    ),
    "window": Setting("1 minute", "length of a window"),
    "watermark": Setting("30 seconds", "how long after its end a window still takes readings"),
    "topic": Setting(
        "rollup/", "results are retained under this topic and the name of the device; empty: none"
    ),
    "lake": Setting("", "folder of the table that keeps the results; empty: none"),
    "table_format": Setting("parquet", "parquet, delta or iceberg"),
    "checkpoint": Setting(
        "{run}/checkpoint", "folder in which Spark keeps how far it came; {run}: the folder of this run"
    ),
    "trigger": Setting(
        "5 seconds", "time between two batches, or `available_now`: take what is there and end"
    ),
    "start": Setting("earliest", "where a first run begins: earliest, latest, or offsets as JSON"),
    "group": Setting("rollup", "consumer group that shows in the broker how far this came; empty: none"),
    "max_rows": Setting("1000000", "readings in one batch, at most"),
}


def transform(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Rows of the source in; device, window_start, window_end, count, min, max, mean, stddev, last, late out."""
    arrived, length, patience = F.expr(settings["arrived"]), settings["window"], settings["watermark"]
    time = F.least(F.expr(settings["time"]), arrived)  # a clock that runs ahead must not close windows
    readings = rows.select(
        F.expr(settings["device"]).alias("device"),
        F.expr(settings["value"]).cast("double").alias("value"),
        time.alias("time"),
        arrived.alias("arrived"),
        "offset",
    ).where("device IS NOT NULL AND value IS NOT NULL AND NOT isnan(value) AND arrived IS NOT NULL")
    ends = F.window("time", length).getField("end")
    told = readings.withColumn("is_late", ends + F.expr(f"INTERVAL {patience}") <= F.col("arrived"))
    placed = told.withColumn("placed", F.when(F.col("is_late"), F.col("arrived")).otherwise(F.col("time")))
    value = F.when(~F.col("is_late"), F.col("value"))
    newest = F.when(~F.col("is_late"), F.struct("time", "offset"))
    return (
        placed.withWatermark("placed", patience)
        .groupBy("device", F.window("placed", length).alias("window"))
        .agg(
            F.count(value).alias("count"),
            F.min(value).alias("min"),
            F.max(value).alias("max"),
            F.avg(value).alias("mean"),
            F.stddev_samp(value).alias("stddev"),
            F.max_by("value", newest).alias("last"),
            F.count(F.when(F.col("is_late"), 1)).alias("late"),
        )
        .select("device", "window.*", "count", "min", "max", "mean", "stddev", "last", "late")
        .withColumnsRenamed({"start": "window_start", "end": "window_end"})
    )


def messages(results: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """One message for each result: topic and payload, as the sink takes them."""
    topic = F.concat(F.lit(settings["topic"]), F.translate("device", "+#", "__"))
    return results.select(topic.alias("topic"), F.to_json(F.struct("*")).alias("payload"))


def newest_last(results: DataFrame) -> DataFrame:
    """The windows of a device in their order: a retained topic keeps what comes last, and Spark sorts no streams."""
    return results.repartition("device").mapInArrow(in_order, results.schema)


def in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    taken = list(batches)
    if taken:
        yield from pa.Table.from_batches(taken).sort_by("window_start").to_batches()


def build(spark: SparkSession, settings: Mapping[str, str]) -> list[StreamingQuery]:
    queries = []
    if settings["lake"]:
        table = transform(read(spark, "lake", settings), settings).writeStream.format("millstream_lake")
        table = table.option("path", settings["lake"]).option("tableFormat", settings["table_format"])
        queries.append(start(table.option("partitionBy", "date(window_start)"), "lake", settings))
    if settings["topic"]:
        results = transform(read(spark, "topics", settings), settings)
        told = messages(newest_last(results), settings).writeStream.format("millstream")
        told = told.option("uri", settings["uri"]).option("topicColumn", "topic").option("retain", "true")
        queries.append(start(told.option("contentType", "application/json"), "topics", settings))
    if not queries:
        raise ValueError("rollup has nowhere to put its results: set `topic`, `lake` or both")
    return queries


def read(spark: SparkSession, part: str, settings: Mapping[str, str]) -> DataFrame:
    reader = spark.readStream.format("millstream").option("uri", settings["uri"])
    reader = reader.option("queues", settings["queues"]).option("startingOffsets", settings["start"])
    reader = reader.option("maxOffsetsPerTrigger", settings["max_rows"])
    if settings["group"]:
        reader = reader.option("consumerGroup", f"{settings['group']}-{part}")
    return reader.load()


def start(writer: DataStreamWriter, part: str, settings: Mapping[str, str]) -> StreamingQuery:
    writer = writer.option("checkpointLocation", f"{settings['checkpoint']}/{part}")
    writer = writer.queryName(f"rollup-{part}")
    if settings["trigger"] == "available_now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=settings["trigger"]).start()
