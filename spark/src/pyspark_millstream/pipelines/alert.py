"""alert: what is out of bounds, or unlike itself, told on MQTT within seconds.

Rules are plain SQL conditions, each for a filter of topics or for all. Beside them a detector learns what is usual for
each device: the mean and the variance of its readings, newer ones weighing more, kept in Spark's state. A reading that
stands more than `threshold` deviations off is told, and taught with the weight of one that stands just there, so that one
broken reading does not make the next ones look usual.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from pyspark_millstream.pipelines.setting import Setting
from pyspark_millstream.pipelines.topic_filter import regex_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "alert"
SUMMARY = "rules and an anomaly detector for each device, told on MQTT within seconds"
SETTINGS: dict[str, Setting] = {
    "uri": Setting(
        "http://127.0.0.1:8090", "address of the broker's reader, with user and password if it wants them"
    ),
    "queues": Setting("", "stream queues to read, separated by commas", is_required=True),
    "device": Setting("element_at(split(topic, '/'), 2)", "SQL: what a device is called"),
    "value": Setting(
        "try_cast(cast(payload AS string) AS double)", "SQL: the reading; a row without one is left out"
    ),
    "rules": Setting(
        "", "conditions as `FILTER: SQL` or `SQL`, separated by `;`, as in `plant/#: value > 80`; empty: none"
    ),
    "threshold": Setting("4", "deviations from the usual that are an anomaly; 0: no detector"),
    "weight": Setting("0.05", "what the newest reading counts against all before it"),
    "warm_up": Setting("30", "readings of a device before its first anomaly"),
    "topic": Setting("alerts/", "an alert goes to this topic and the name of the device"),
    "qos": Setting("1", "guarantee of the alerts: 0, 1 or 2"),
    "checkpoint": Setting(
        "{run}/checkpoint", "folder in which Spark keeps how far it came; {run}: the folder of this run"
    ),
    "trigger": Setting(
        "1 second", "time between two batches, or `available_now`: take what is there and end"
    ),
    "start": Setting("latest", "where a first run begins: earliest, latest, or offsets as JSON"),
    "group": Setting("alert", "consumer group that shows in the broker how far this came; empty: none"),
    "max_rows": Setting("200000", "readings in one batch, at most"),
}
ALERT = "device string, kind string, rule string, topic string, value double, mean double, deviation double, time timestamp"
Alert = Row(*(column.split()[0] for column in ALERT.split(", ")))
STATE = "readings long, mean double, variance double"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def readings_of(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    device, value = F.expr(settings["device"]).alias("device"), F.expr(settings["value"]).cast("double")
    readings = rows.withColumns({"device": device, "value": value})
    return readings.where("device IS NOT NULL AND value IS NOT NULL AND NOT isnan(value)")


def broken_rules(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """An alert for each reading and each rule it breaks."""
    told = [F.when(condition, F.lit(text)) for text, condition in rules_of(settings["rules"])]
    rule = F.explode(F.filter(F.array(*told), lambda one: one.isNotNull())).alias("rule")
    broken = readings_of(rows, settings).select("*", rule)
    return _as_alerts(broken.withColumns({"kind": F.lit("rule"), "time": F.col("timestamp")}))


def rules_of(text: str) -> list[tuple[str, Column]]:
    rules = []
    for rule in filter(None, (part.strip() for part in text.split(";"))):
        filter_, colon, condition = rule.partition(": ")
        is_for_all = not colon or " " in filter_
        found = F.expr(rule if is_for_all else condition)
        rules.append((rule, found if is_for_all else F.col("topic").rlike(regex_of(filter_)) & found))
    return rules


class Detector(StatefulProcessor):
    """Keeps what is usual for one device, and tells what is not."""

    def __init__(self, threshold: float, weight: float, warm_up: int) -> None:
        self._threshold, self._weight, self._warm_up = threshold, weight, warm_up

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._usual = handle.getValueState("usual", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        count, mean, variance = self._usual.get() or (0, 0.0, 0.0)
        for row in sorted(rows, key=lambda one: (one.queue, one.offset)):
            step, deviation = row.value - mean, math.sqrt(variance)
            bound = self._threshold * deviation
            if count >= self._warm_up and abs(step) > bound:
                off = (
                    abs(step) / deviation if deviation else None
                )  # what never moved has no deviation to count in
                yield Alert(key[0], "anomaly", None, row.topic, row.value, mean, off, row.timestamp)
                step = math.copysign(bound, step) if deviation else step
            count += 1
            weight = max(self._weight, 1 / count)  # the first readings make a plain mean
            mean += weight * step
            variance = (1 - weight) * (variance + weight * step * step)
        self._usual.update((count, mean, variance))

    def close(self) -> None:
        pass


def anomalies(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """An alert for each reading that is unlike those before it from the same device."""
    readings = readings_of(rows, settings).select("device", "queue", "offset", "topic", "value", "timestamp")
    detector = Detector(float(settings["threshold"]), float(settings["weight"]), int(settings["warm_up"]))
    return readings.groupBy("device").transformWithState(detector, ALERT, "Append", "None")


def messages(alerts: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """One message for each alert: topic and payload, as the sink takes them."""
    topic = F.concat(F.lit(settings["topic"]), F.translate("device", "+#", "__"))
    return alerts.select(topic.alias("topic"), F.to_json(F.struct("*")).alias("payload"))


def build(spark: SparkSession, settings: Mapping[str, str]) -> list[StreamingQuery]:
    queries = []
    if settings["rules"].strip():
        queries.append(start(broken_rules(read(spark, "rules", settings), settings), "rules", settings))
    if float(settings["threshold"]) > 0:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        queries.append(start(anomalies(read(spark, "anomalies", settings), settings), "anomalies", settings))
    if not queries:
        raise ValueError("alert has nothing to look for: set `rules`, or a `threshold` above 0")
    return queries


def read(spark: SparkSession, part: str, settings: Mapping[str, str]) -> DataFrame:
    reader = spark.readStream.format("millstream").option("uri", settings["uri"])
    reader = reader.option("queues", settings["queues"]).option("startingOffsets", settings["start"])
    reader = reader.option("maxOffsetsPerTrigger", settings["max_rows"])
    if settings["group"]:
        reader = reader.option("consumerGroup", f"{settings['group']}-{part}")
    return reader.load()


def start(alerts: DataFrame, part: str, settings: Mapping[str, str]) -> StreamingQuery:
    writer = messages(alerts, settings).writeStream.format("millstream").option("uri", settings["uri"])
    writer = writer.option("topicColumn", "topic").option("qos", settings["qos"])
    writer = writer.option("contentType", "application/json").queryName(f"alert-{part}")
    writer = writer.option("checkpointLocation", f"{settings['checkpoint']}/{part}")
    if settings["trigger"] == "available_now":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=settings["trigger"]).start()


def _as_alerts(found: DataFrame) -> DataFrame:
    usual = {name: F.lit(None).cast("double") for name in ("mean", "deviation")}
    return found.withColumns(usual).select(*Alert)
