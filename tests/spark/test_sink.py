"""The sink on real Spark: rows reach a queue or topics once, or not at all, and mistakes are told in one sentence."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as paho
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from spark_world import StreamBroker, first_line, unique

from millstream.runtime.disk.failpoints import VARIABLE

pytest_plugins = ["spark_fixtures"]

WAIT_S = 300


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("payload"))


def write(frame: DataFrame, streams: StreamBroker, **options: str) -> None:
    frame.write.format("millstream").mode("append").option("uri", streams.uri).options(**options).save()


def start(
    spark: SparkSession, streams: StreamBroker, source: str, target: str, checkpoint: Path, rows: int
) -> StreamingQuery:
    frame = (
        spark.readStream.format("millstream")
        .option("uri", streams.uri)
        .options(queues=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(rows))
        .load()
    )
    writing = frame.select("payload", "topic").writeStream.format("millstream")
    options = {"uri": streams.uri, "queue": target, "checkpointLocation": str(checkpoint)}
    return writing.options(**options).trigger(availableNow=True).start()


def records(streams: StreamBroker, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    place: dict[str, object] = {}
    while True:
        page = streams.call("queue.peek", name=name, count=1000, **place)
        found += page["records"]
        if not page["more"]:
            return found
        place = {"offset": page["next_offset"]}


def payloads(streams: StreamBroker, name: str) -> list[int]:
    return sorted(int(record["payload"]) for record in records(streams, name))


def stages(streams: StreamBroker) -> list[str]:
    """The broker is not this test's alone: another's that was given up in the middle goes when its time is over."""
    folder = streams.folder / "data" / "stages"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def test_a_batch_write_puts_every_row_into_the_queue_once(spark: SparkSession, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("written"))
    frame = numbers(spark, 3000).select(
        "payload",
        F.concat(F.lit("device/"), F.col("payload") % 7).cast("string").alias("key"),
        F.lit("text/plain").alias("content_type"),
        F.create_map(F.lit("origin"), F.lit("spark")).alias("headers"),
        F.to_timestamp(F.lit("2026-01-02 03:04:05.678")).alias("event_time"),
    )
    write(frame, streams, queue=name)
    found = records(streams, name)
    assert sorted(int(record["payload"]) for record in found) == list(range(3000))
    one = next(record for record in found if record["payload"] == "13")
    assert one["topic"].startswith(f"$queue/{name}/device/6")
    read = spark.read.format("millstream").options(uri=streams.uri, queues=name, includeHeaders="true").load()
    row = read.where("cast(payload as string) = '13'").first()
    assert row is not None
    assert (row.content_type, row.headers["origin"]) == ("text/plain", "spark")
    assert row.event_time.isoformat() == "2026-01-02T03:04:05.678000"


def test_a_streaming_write_goes_on_where_it_ended(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path
) -> None:
    source = streams.filled_stream("source", 2500)
    target = streams.create_stream(unique("target"))
    start(spark, streams, source, target, tmp_path / "checkpoint", 700).awaitTermination(WAIT_S)
    assert payloads(streams, target) == list(range(2500))
    streams.fill(source, 500, first=2500)
    start(spark, streams, source, target, tmp_path / "checkpoint", 300).awaitTermination(WAIT_S)
    assert payloads(streams, target) == list(range(3000))


def test_a_batch_that_spark_runs_again_adds_nothing(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path
) -> None:
    source = streams.filled_stream("source", 1000)
    target = streams.create_stream(unique("target"))
    checkpoint = tmp_path / "checkpoint"
    start(spark, streams, source, target, checkpoint, 400).awaitTermination(WAIT_S)
    done = sorted(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (done[-1], checkpoint / "commits" / f".{done[-1].name}.crc"):
        path.unlink(missing_ok=True)  # as if the driver had died before it could note the commit
    query = start(spark, streams, source, target, checkpoint, 400)
    query.awaitTermination(WAIT_S)
    assert query.lastProgress["batchId"] == int(done[-1].name)
    assert payloads(streams, target) == list(range(1000))


def test_a_write_that_fails_adds_nothing_and_leaves_nothing(
    spark: SparkSession, streams: StreamBroker
) -> None:
    name = streams.create_stream(unique("failed"))
    before = stages(streams)
    # One task: another that ends with the job leaves its stage to the clock.
    one_task = numbers(spark, 3000).coalesce(1)
    broken = one_task.select(
        F.when(F.col("payload") == "2999", F.raise_error(F.lit("on purpose")))
        .otherwise(F.col("payload"))
        .alias("payload")
    )
    with pytest.raises(PySparkException, match="on purpose"):
        write(broken, streams, queue=name)
    assert records(streams, name) == []
    assert set(stages(streams)) <= set(before)


def test_a_write_with_a_name_happens_once(spark: SparkSession, streams: StreamBroker) -> None:
    name = streams.create_stream(unique("named"))
    for batch in ("0", "0", "1", "0"):
        first = int(batch) * 100
        frame = numbers(spark, 100).select(
            (F.col("payload") + first).cast("int").cast("string").alias("payload")
        )
        write(frame, streams, queue=name, queryId=f"job-{name}", batchId=batch)
    assert payloads(streams, name) == list(range(200))


def test_topics_from_a_column_reach_a_subscriber(spark: SparkSession, streams: StreamBroker) -> None:
    root = unique("plant")
    arrived: queue.Queue[tuple[str, bytes]] = queue.Queue()
    subscribed: queue.Queue[int] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_message = lambda _c, _u, message: arrived.put((message.topic, message.payload))
    client.on_subscribe = lambda *_: subscribed.put(1)
    client.connect("127.0.0.1", streams.mqtt_port)
    client.loop_start()
    try:
        client.subscribe(f"{root}/#", qos=1)
        subscribed.get(timeout=WAIT_S)
        frame = numbers(spark, 50).select(
            F.concat(F.lit(f"{root}/"), F.col("payload")).alias("place"), F.col("payload").alias("value")
        )
        write(frame, streams, topicColumn="place", payloadColumn="value")
        found = sorted(arrived.get(timeout=WAIT_S) for _ in range(50))
    finally:
        client.disconnect()
        client.loop_stop()
    assert found == sorted((f"{root}/{at}", b"%d" % at) for at in range(50))


BAD: list[tuple[Callable[[SparkSession], DataFrame], dict[str, str], str]] = [
    (lambda s: s.range(3), {"queue": "QUEUE"}, 'the sink does not know what to do with the column "id"'),
    (lambda s: s.range(3).select(F.col("id").alias("payload")), {"queue": "QUEUE"}, 'the column "payload" is bigint; it must be binary or string'),
    (lambda s: numbers(s, 3), {"queue": "there-is-none"}, "there is no queue 'there-is-none'"),
    (lambda s: numbers(s, 3), {"queue": "QUEUE", "topic": "a"}, "queue and topic are given together"),
    (lambda s: numbers(s, 3), {}, "the sink is not told where rows go"),
    (lambda s: numbers(s, 3), {"queue": "QUEUE", "payloadColumn": "value"}, 'the option payloadColumn names the column "value"'),
    (lambda s: numbers(s, 3), {"queue": "QUEUE", "qos": "3"}, 'the option qos cannot be "3"'),
    (lambda s: numbers(s, 3), {"queue": "QUEUE", "uri": "http://127.0.0.1:1", "retrySeconds": "0"}, "no reader answers at http://127.0.0.1:1"),
]  # fmt: skip


def test_a_mistake_is_told_in_one_sentence_before_anything_is_written(
    spark: SparkSession, streams: StreamBroker
) -> None:
    name = streams.create_stream(unique("untouched"))
    before = stages(streams)
    for make, options, sentence in BAD:
        given = {key: name if value == "QUEUE" else value for key, value in options.items()}
        with pytest.raises(PySparkException) as refused:
            write(make(spark), streams, **given)
        assert sentence in first_line(refused.value), first_line(refused.value)
        assert "Traceback" not in str(refused.value)
    overwriting = numbers(spark, 3).write.format("millstream").mode("overwrite")
    with pytest.raises(PySparkException) as refused:
        overwriting.options(uri=streams.uri, queue=name).save()
    assert "can be appended to a queue or to topics" in first_line(refused.value)
    assert records(streams, name) == []
    assert set(stages(streams)) <= set(before)


def test_rows_arrive_once_although_the_broker_is_killed_while_it_publishes(
    spark: SparkSession, own_streams: StreamBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = own_streams.filled_stream("source", 4000)
    target = own_streams.create_stream("target")
    own_streams.process.kill()
    monkeypatch.setenv(VARIABLE, "stage.after_slice:9")
    own_streams.start_again()
    query = start(spark, own_streams, source, target, tmp_path / "checkpoint", 1500)
    own_streams.process.process.wait(WAIT_S)
    monkeypatch.delenv(VARIABLE)
    own_streams.start_again()
    query.awaitTermination(WAIT_S)
    assert query.exception() is None
    assert payloads(own_streams, target) == list(range(4000))
