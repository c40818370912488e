"""Each ready-made pipeline on real Spark, with its numbers against a plain Python computation of the same."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest
from mqtt_traffic import Sent, publish_all, retained
from pyspark.sql import SparkSession
from spark_world import StreamBroker, unique

from pyspark_millstream.pipelines.catalog import find

pytest_plugins = ["spark_fixtures"]

HOUR_MS = 3_600_000
START_MS = 1_763_193_600_000  # 2025-11-15T08:00:00Z
VALUE = "try_cast(get_json_object(cast(payload AS string), '$.value') AS double)"
ARRIVED = "timestamp_millis(cast(get_json_object(cast(payload AS string), '$.arrived') AS bigint))"


def run(spark: SparkSession, name: str, **given: str) -> list[dict[str, Any]]:
    """Build the pipeline and wait until it has taken what is there; gives Spark's reports."""
    pipeline = find(name)
    queries = pipeline.build(spark, pipeline.settings_from(given)) or []
    for query in queries:
        query.awaitTermination()
    return [json.loads(report.json) for query in queries for report in query.recentProgress]


# ------------------------------------------------------------------------------------------------- rollup

WINDOW_MS, PATIENCE_MS = 10_000, 15_000


@dataclass(frozen=True)
class Reading:
    device: str
    value: float
    arrived_ms: int
    read_ms: int | None  # None: its publisher has no clock

    def sent(self, plant: str) -> Sent:
        payload = json.dumps({"value": self.value, "arrived": self.arrived_ms})
        stamp = {} if self.read_ms is None else {"event-time": str(self.read_ms)}
        return Sent(f"{plant}/{self.device}/temperature", payload, stamp)


def make_readings(count: int) -> list[Reading]:
    chance = random.Random(4)
    readings = []
    for number in range(count):
        arrived = START_MS + number * 100
        age = chance.choice((0, 40, 900, 4_000, 12_000, 30_000, 90_000, -50_000))  # the last: a clock ahead
        read = None if number % 50 == 0 else arrived - age
        readings.append(Reading(f"d{number % 7}", round(chance.gauss(20, 3), 3), arrived, read))
    return readings


def rollup_in_python(readings: list[Reading]) -> dict[tuple[str, int], dict[str, float | None]]:
    """(device, start of the window) to its figures, of all windows that are over when the last reading has come."""
    values: dict[tuple[str, int], list[tuple[int, int, float]]] = defaultdict(list)
    late: Counter[tuple[str, int]] = Counter()
    newest = 0
    for offset, reading in enumerate(readings):
        read = min(reading.arrived_ms if reading.read_ms is None else reading.read_ms, reading.arrived_ms)
        start = read - read % WINDOW_MS
        if start + WINDOW_MS + PATIENCE_MS <= reading.arrived_ms:
            late[reading.device, reading.arrived_ms - reading.arrived_ms % WINDOW_MS] += 1
            newest = max(newest, reading.arrived_ms)
        else:
            values[reading.device, start].append((read, offset, reading.value))
            newest = max(newest, read)
    figures: dict[tuple[str, int], dict[str, float | None]] = {}
    for key in values.keys() | late.keys():
        if key[1] + WINDOW_MS > newest - PATIENCE_MS:
            continue
        taken = [value for _, _, value in values[key]]
        figures[key] = {
            "count": len(taken),
            "min": min(taken, default=None),
            "max": max(taken, default=None),
            "mean": statistics.fmean(taken) if taken else None,
            "stddev": statistics.stdev(taken) if len(taken) > 1 else None,
            "last": max(values[key])[2] if taken else None,
            "late": late[key],
        }
    return figures


def milliseconds_of(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def test_rollup_counts_every_reading_once_in_its_window_or_as_late(
    spark: SparkSession,
    streams: StreamBroker,
    tmp_path: Path,
) -> None:
    plant = unique("rollup")
    queue = streams.create_stream(plant, bindings=[f"{plant}/+/temperature"])
    readings = make_readings(3000)
    settings = {
        "uri": streams.uri,
        "queues": queue,
        "value": VALUE,
        "arrived": ARRIVED,
        "window": "10 seconds",
        "watermark": "15 seconds",
        "topic": f"{plant}-windows/",
        "lake": str(tmp_path / "lake"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "available_now",
        "max_rows": "700",
    }
    publish_all(streams.mqtt_port, [reading.sent(plant) for reading in readings[:1400]])
    publish_all(streams.mqtt_port, [Sent(f"{plant}/d1/temperature", "no reading at all")])
    reports = run(spark, "rollup", **settings)
    publish_all(streams.mqtt_port, [reading.sent(plant) for reading in readings[1400:]])
    reports += run(spark, "rollup", **settings)  # from its checkpoint on

    expected = rollup_in_python(readings)
    rows = dataset.dataset(tmp_path / "lake", partitioning="hive").to_table().to_pylist()
    found = {(row["device"], milliseconds_of(row["window_start"])): row for row in rows}
    assert len(rows) == len(found), "no window comes twice"
    assert found.keys() == expected.keys()
    for key, figures in expected.items():
        told = {name: found[key][name] for name in figures}
        near = {
            name: value if value is None else pytest.approx(value, rel=1e-9)
            for name, value in figures.items()
        }
        assert told == near
    assert sum(row["late"] for row in rows) > 100
    dropped = sum(one["numRowsDroppedByWatermark"] for report in reports for one in report["stateOperators"])
    assert dropped == 0, "what is late is counted by us, never dropped by Spark"

    told_last = retained(streams.mqtt_port, f"{plant}-windows/#", 7)
    for topic, payload in told_last.items():
        device = topic.rpartition("/")[2]
        window = max(start for name, start in expected if name == device)
        result = json.loads(payload)
        assert result["window_start"] == found[device, window]["window_start"].strftime(
            "%Y-%m-%dT%H:%M:%S.000Z"
        )
        assert (result["count"], result["late"]) == (
            expected[device, window]["count"],
            expected[device, window]["late"],
        )
    assert streams.groups(queue) == {"rollup-lake": 3001, "rollup-topics": 3001}


# -------------------------------------------------------------------------------------------------- alert

THRESHOLD, WEIGHT, WARM_UP = 5.0, 0.1, 20


def make_values(count: int) -> list[tuple[str, str]]:
    """(device, payload) in the order they are sent: quiet walks, with some readings far off."""
    chance = random.Random(7)
    sent = []
    for number in range(count):
        device = number % 5
        value = 20.0 + device + (0.0 if device == 4 else chance.gauss(0, 1))  # d4 never moves
        if chance.random() < 0.01:
            value += chance.choice((70.0, -40.0, 9.0))
        sent.append((f"d{device}", "broken" if number % 400 == 399 else f"{value:.4f}"))
    return sent


def alerts_in_python(sent: list[tuple[str, str]]) -> Counter[tuple[str, str, str, float, float]]:
    """(device, kind, rule, value, deviation) as often as each is told."""
    told: Counter[tuple[str, str, str, float, float]] = Counter()
    usual: dict[str, tuple[int, float, float]] = {}
    for device, payload in sent:
        if payload == "broken":
            continue
        value = float(payload)
        if value > 80:
            told[device, "rule", "value > 80", value, 0.0] += 1
        if device == "d3" and value < 0:
            told[device, "rule", "+/d3/#: value < 0", value, 0.0] += 1
        seen, mean, variance = usual.get(device, (0, 0.0, 0.0))
        distance = value - mean
        if seen >= WARM_UP and abs(distance) > THRESHOLD * math.sqrt(variance):
            deviation = math.sqrt(variance)
            told[device, "anomaly", "", value, round(abs(distance) / deviation, 3) if deviation else 0.0] += 1
            if deviation:
                distance = math.copysign(THRESHOLD * deviation, distance)
        weight = WEIGHT if seen * WEIGHT >= 1 - WEIGHT else 1 / (seen + 1)
        usual[device] = (seen + 1, mean + weight * distance, (1 - weight) * (variance + weight * distance**2))
    return told


def test_alert_tells_broken_rules_and_anomalies_and_remembers_each_device(
    spark: SparkSession,
    streams: StreamBroker,
    tmp_path: Path,
) -> None:
    plant = unique("alert")
    queue = streams.create_stream(plant, bindings=[f"{plant}/+/temperature"])
    alerts = streams.create_stream(f"{plant}-alerts", bindings=[f"{plant}-alerts/#"])
    values = make_values(3000)
    settings = {
        "uri": streams.uri,
        "queues": queue,
        "rules": "value > 80; +/d3/#: value < 0",
        "threshold": str(THRESHOLD),
        "weight": str(WEIGHT),
        "warm_up": str(WARM_UP),
        "topic": f"{plant}-alerts/",
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "available_now",
        "start": "earliest",
        "max_rows": "800",
    }
    sent = [Sent(f"{plant}/{device}/temperature", payload) for device, payload in values]
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")  # a device comes in several pieces
    try:
        for part in (sent[:1900], sent[1900:]):
            publish_all(streams.mqtt_port, part)
            run(spark, "alert", **settings)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    source = spark.read.format("millstream").option("uri", streams.uri).option("queues", alerts).load()
    told: Counter[tuple[str, str, str, float, float]] = Counter()
    for row in source.select("topic", "payload").collect():
        one = json.loads(bytes(row.payload))
        assert row.topic == f"{plant}-alerts/{one['device']}"
        assert one["topic"] == f"{plant}/{one['device']}/temperature"
        deviation = round(one.get("deviation", 0.0), 3)
        told[one["device"], one["kind"], one.get("rule", ""), one["value"], deviation] += 1
    expected = alerts_in_python(values)
    assert told == expected
    assert {kind for _, kind, _, _, _ in expected} == {"rule", "anomaly"}
    assert any(device == "d4" for device, *_ in expected), "one that never moved, and then did"


# -------------------------------------------------------------------------------------------------- audit


def make_numbered(count: int) -> list[Sent]:
    """Messages of four producers, with some left out, some sent twice, some held back behind the next."""
    chance = random.Random(11)
    sent: list[Sent] = []
    held: dict[int, Sent] = {}
    numbers: Counter[int] = Counter()
    for _ in range(count):
        producer = chance.randrange(4)
        numbers[producer] += 1
        names = ("producer-id", "sequence") if producer == 0 else ("source", "number")
        stamps = dict(zip(names, (f"p{producer}", str(numbers[producer])), strict=True))
        if chance.random() < 0.9:
            stamps["event-time"] = str(START_MS + chance.randrange(HOUR_MS))
        topic = f"line{chance.randrange(3)}"
        message = Sent(topic, "x", {} if chance.random() < 0.02 else stamps)
        fate = chance.random()
        if fate < 0.03:
            continue  # lost on its way
        sent.append(message)
        if producer and fate > 0.97:  # a queue itself drops repeats of producer-id and sequence
            sent.append(message)
        if producer in held:
            sent.append(held.pop(producer))
        elif producer and 0.90 < fate < 0.94:
            held[producer] = sent.pop()
    return sent


def audit_in_python(rows: list[Any]) -> dict[tuple[str, int], dict[str, int]]:
    """(topic, hour) to its counts, from the rows of the queue in their order."""
    found: dict[tuple[str, int], dict[str, int]] = defaultdict(Counter)
    arrivals: dict[str, list[tuple[int, tuple[str, int]]]] = defaultdict(list)
    for row in rows:
        arrived = milliseconds_of(row.timestamp)
        place = (row.topic, arrived - arrived % HOUR_MS)
        found[place]["messages"] += 1
        headers = row.headers or {}
        producer = headers.get("producer-id", headers.get("source"))
        if producer is None:
            found[place]["unnumbered"] += 1
            continue
        arrivals[producer].append((int(headers.get("sequence", headers.get("number"))), place))
    for numbered in arrivals.values():
        seen: dict[int, tuple[str, int]] = {}
        for number, place in numbered:
            if number in seen:
                found[place]["duplicated"] += 1
                continue
            if seen and number < max(seen):
                found[place]["reordered"] += 1
            seen[number] = place
        ordered = sorted(seen)
        for before, number in pairwise(ordered):
            found[seen[number]]["lost"] += number - before - 1
    return found


def nearest_rank(values: list[float], fraction: float) -> float:
    return sorted(values)[math.ceil(len(values) * fraction) - 1]


def test_audit_finds_what_was_lost_doubled_or_out_of_order(
    spark: SparkSession,
    streams: StreamBroker,
    tmp_path: Path,
) -> None:
    plant = unique("audit")
    queue = streams.create_stream(plant, bindings=[f"{plant}/+"])
    sent = [Sent(f"{plant}/{one.topic}", one.payload, one.properties) for one in make_numbered(3000)]
    publish_all(streams.mqtt_port, sent)
    settings = {
        "uri": streams.uri,
        "queues": queue,
        "producer": "coalesce(headers['producer-id'], headers['source'])",
        "sequence": "coalesce(producer_sequence, headers['number'])",
        "since": "2025-01-01",
        "table": str(tmp_path / "table"),
        "report": str(tmp_path / "report.html"),
    }
    run(spark, "audit", **settings)

    source = spark.read.format("millstream").option("uri", streams.uri).option("queues", queue)
    rows = source.option("includeHeaders", "true").load().orderBy("offset").collect()
    assert len(rows) == len(sent)
    expected = audit_in_python(rows)
    found = dataset.dataset(tmp_path / "table").to_table().to_pylist()
    assert {(row["topic"], milliseconds_of(row["hour"])) for row in found} == expected.keys()
    for row in found:
        counts = expected[row["topic"], milliseconds_of(row["hour"])]
        for name in ("messages", "unnumbered", "lost", "duplicated", "reordered"):
            assert row[name] == counts.get(name, 0), (row["topic"], name)
        hour = [one for one in rows if one.topic == row["topic"] and one.event_time is not None]
        hour = [
            one
            for one in hour
            if milliseconds_of(one.timestamp) // HOUR_MS == milliseconds_of(row["hour"]) // HOUR_MS
        ]
        latencies = [(one.timestamp - one.event_time).total_seconds() * 1000 for one in hour]
        for name, fraction in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
            assert row[f"latency_{name}_ms"] == pytest.approx(nearest_rank(latencies, fraction), abs=0.01)
    total = {name: sum(row[name] for row in found) for name in ("lost", "duplicated", "reordered")}
    assert min(total.values()) > 20, "each kind of fault was there to be found"

    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for name, value in total.items():
        assert f"<b>{value:,}</b>{name}" in page


def test_an_audit_of_a_range_takes_nothing_from_outside(
    spark: SparkSession,
    streams: StreamBroker,
    tmp_path: Path,
) -> None:
    plant = unique("audit")
    queue = streams.create_stream(plant, bindings=[f"{plant}/+"])
    publish_all(streams.mqtt_port, [Sent(f"{plant}/a", "x") for _ in range(20)])
    settings = {"uri": streams.uri, "queues": queue, "table": str(tmp_path / "table"), "report": ""}
    run(spark, "audit", until="2025-01-01", **settings)
    assert dataset.dataset(tmp_path / "table").count_rows() == 0
