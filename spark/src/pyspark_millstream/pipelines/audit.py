"""audit: what became of the messages of a time range: lost, doubled, out of order, and how long they took.

Each publisher numbers its messages (user properties `producer-id` and `sequence`). What the numbers say, in the order of
the queue:
- lost: a number between the lowest and the highest of its producer that never came. It is counted where the next higher
  number came, in that topic and hour.
- duplicated: a number that had come before.
- reordered: a number that came for the first time behind a higher one.
Latency is from `event-time`, stamped by the publisher, to the broker's append.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pyspark_millstream.pipelines.audit_report import write_report
from pyspark_millstream.pipelines.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME = "audit"
SUMMARY = "lost, duplicated, reordered and late messages of a time range, as a table and an HTML report"
SETTINGS: dict[str, Setting] = {
    "uri": Setting(
        "http://127.0.0.1:8090", "address of the broker's reader, with user and password if it wants them"
    ),
    "queues": Setting("", "stream queues to read, separated by commas", is_required=True),
    "since": Setting("", "first moment, such as 2026-11-15T08:00 (UTC); empty: from the oldest record on"),
    "until": Setting("", "the moment behind the last; empty: up to now"),
    "producer": Setting("coalesce(headers['producer-id'], client_id)", "SQL: who numbers"),
    "sequence": Setting("producer_sequence", "SQL: the number"),
    "numbered_by": Setting(
        "producer", "`producer`: one count over all its topics; `topic`: one for each of them"
    ),
    "table": Setting("audit", "folder of the resulting table; empty: none"),
    "table_format": Setting("parquet", "parquet (written anew each time), or delta or iceberg (added to)"),
    "report": Setting("audit.html", "the page with the charts; empty: none"),
}
READ = "queue,offset,timestamp,event_time,topic,client_id,producer_sequence"
TOPICS_SHOWN = 100
HOUR = "MM-dd HH:mm"


def transform(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Rows of the source in; one row for each queue, topic and hour out."""
    return summarize(judge(rows, settings), ["queue", "topic", "hour"])


def judge(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Each message with its hour, its latency, and what its number says."""
    numbered = rows.select(
        "queue",
        "topic",
        "offset",
        F.date_trunc("hour", "timestamp").alias("hour"),
        ((F.unix_micros("timestamp") - F.unix_micros("event_time")) / 1000).alias("latency_ms"),
        F.expr(settings["producer"]).alias("producer"),
        F.expr(settings["sequence"]).cast("long").alias("sequence"),
    )
    alone = F.when(F.col("sequence").isNull(), F.col("offset"))  # no number: nothing to be compared with
    scope: list[Column | str] = ["queue", "producer", alone]
    if settings["numbered_by"] == "topic":
        scope.append("topic")
    counted = Window.partitionBy(*scope).orderBy("sequence", "offset")
    arrived = Window.partitionBy(*scope).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    step = F.col("sequence") - F.lag("sequence").over(counted)
    return (
        numbered.withColumn("step", step)
        .withColumn("highest", F.max("sequence").over(arrived))
        .withColumn("lost", F.coalesce(F.greatest(F.col("step") - 1, F.lit(0)), F.lit(0)))
        .withColumn("is_duplicate", F.coalesce(F.col("step") == 0, F.lit(False)))
        .withColumn(
            "is_reordered", ~F.col("is_duplicate") & F.coalesce(F.expr("sequence < highest"), F.lit(False))
        )
        .drop("step", "highest")
    )


def summarize(judged: DataFrame, keys: list[str]) -> DataFrame:
    latency = F.percentile_approx("latency_ms", F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)), 100_000)
    sums = judged.groupBy(*keys).agg(
        F.count("*").alias("messages"),
        F.count_distinct("producer").alias("producers"),
        F.count_if(F.col("sequence").isNull()).alias("unnumbered"),
        F.sum("lost").alias("lost"),
        F.count_if("is_duplicate").alias("duplicated"),
        F.count_if("is_reordered").alias("reordered"),
        latency.alias("latency"),
        F.max("latency_ms").alias("latency_max_ms"),
    )
    for place, name in enumerate(("p50", "p95", "p99")):
        sums = sums.withColumn(f"latency_{name}_ms", F.get("latency", F.lit(place)))
    return sums.drop("latency")


def build(spark: SparkSession, settings: Mapping[str, str]) -> None:
    judged = judge(read(spark, settings), settings).persist()
    if settings["table"]:
        result = summarize(judged, ["queue", "topic", "hour"]).orderBy("queue", "topic", "hour").coalesce(1)
        if settings["table_format"] == "parquet":
            result.write.mode("overwrite").parquet(settings["table"])
        else:
            table = result.write.format("millstream_lake").option("tableFormat", settings["table_format"])
            table.option("path", settings["table"]).option("partitionBy", "none").mode("append").save()
    if settings["report"]:
        by_hour = summarize(judged, ["hour"]).orderBy("hour").withColumn("hour", F.date_format("hour", HOUR))
        hours = [row.asDict() for row in by_hour.collect()]
        faults = (F.col("lost") + F.col("duplicated") + F.col("reordered")).desc()
        topics = summarize(judged, ["queue", "topic"]).orderBy(
            faults, F.col("latency_p99_ms").desc_nulls_last()
        )
        worst = [row.asDict() for row in topics.limit(TOPICS_SHOWN).collect()]
        total = summarize(judged, []).first()
        write_report(
            Path(settings["report"]), settings["queues"], total.asDict() if total else {}, hours, worst
        )
    judged.unpersist()


def read(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    reader = (
        spark.read.format("millstream").option("uri", settings["uri"]).option("queues", settings["queues"])
    )
    reader = reader.option("columns", READ).option("includeHeaders", "true")
    if settings["since"]:
        reader = reader.option("startingTimestamp", milliseconds(settings["since"]))
    if settings["until"]:
        reader = reader.option("endingTimestamp", milliseconds(settings["until"]))
    return reader.load()


def milliseconds(moment: str) -> str:
    """Of the unix clock, from an ISO time; without a zone it is UTC."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        raise ValueError(f"`{moment}` is no moment: write it as 2026-11-15T08:00") from None
    return str(int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000))
