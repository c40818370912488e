"""The pipelines lake and replay, end to end: a real broker, real Spark, numbers checked in plain Python."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow.dataset as pds
import pytest
from pyspark.sql import SparkSession
from spark_world import StreamBroker, unique

from pyspark_millstream.errors import OptionError
from pyspark_millstream.lake.source import LakeSource
from pyspark_millstream.lake.store import files_of
from pyspark_millstream.pipelines import catalog, lake, replay
from pyspark_millstream.source import MillstreamSource

pytest_plugins = ["spark_fixtures"]

COUNT = 1500


@pytest.fixture(autouse=True)
def _formats(spark: SparkSession) -> None:
    spark.dataSource.register(MillstreamSource)
    spark.dataSource.register(LakeSource)


def run(spark: SparkSession, name: str, **given: str) -> None:
    pipeline = catalog.find(name)
    for query in pipeline.build(spark, pipeline.settings_from(given)) or ():
        query.awaitTermination()
    for thread in threading.enumerate():
        if thread.name == "compaction":
            thread.join()


def payloads(spark: SparkSession, streams: StreamBroker, queue: str) -> list[str]:
    rows = spark.read.format("millstream").option("uri", streams.uri).option("queues", queue).load()
    return [bytes(row.payload).decode() for row in sorted(rows.collect(), key=lambda row: row.offset)]


def kept(table: Path) -> list[tuple[str, int, str]]:
    rows = pds.dataset(table, partitioning="hive").to_table(columns=["queue", "offset", "payload"])
    return sorted((row["queue"], row["offset"], row["payload"].decode()) for row in rows.to_pylist())


def test_lake_keeps_every_record_of_the_queues_a_pattern_names_once(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path
) -> None:
    names = [streams.filled_stream("kept-press", COUNT), streams.filled_stream("kept-press", COUNT)]
    other = streams.filled_stream("other", 10)
    settings = {
        "uri": streams.uri,
        "pattern": "kept-press.*",
        "table": str(tmp_path / "table"),
        "trigger": "available_now",
        "max_rows": "700",
        "compact": "3600",
    }
    run(spark, "lake", **settings)
    expected = sorted((name, number, str(number)) for name in names for number in range(COUNT))
    assert kept(tmp_path / "table") == expected
    assert (tmp_path / "table.checkpoint").is_dir()

    streams.fill(names[0], 200, first=COUNT)
    run(spark, "lake", **settings)
    expected = sorted([*expected, *((names[0], number, str(number)) for number in range(COUNT, COUNT + 200))])
    assert kept(tmp_path / "table") == expected
    assert other not in {name for name, _, _ in expected}

    run(spark, "lake", uri=streams.uri, table=str(tmp_path / "table"), compact="only")
    assert kept(tmp_path / "table") == expected
    assert len(files_of(str(tmp_path / "table"))) == len(names)


def test_replay_sends_a_table_to_a_queue_once_though_it_is_run_again(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path
) -> None:
    name = streams.filled_stream("origin", COUNT)
    target = streams.create_stream(unique("replayed"))
    table = str(tmp_path / "table")
    run(spark, "lake", uri=streams.uri, queues=name, table=table, trigger="available_now", max_rows="700")
    settings = {
        "uri": streams.uri,
        "table": table,
        "queue": target,
        "rate": "1000",
        "interval": "1",
        "checkpoint": str(tmp_path / "replay"),
        "where": "offset >= 100",
    }
    run(spark, "replay", **settings)
    expected = [str(number) for number in range(100, COUNT)]
    assert payloads(spark, streams, target) == expected
    plan = json.loads((tmp_path / "replay" / "replay.json").read_text(encoding="utf-8"))
    assert plan["rows_sent"] == COUNT
    assert all(chunk["rows"] <= 1000 for chunk in plan["chunks"])

    (tmp_path / "replay" / "replay.json").write_text(json.dumps({**plan, "next": 0}), encoding="utf-8")
    run(spark, "replay", **settings)  # as after a crash before the note was written
    assert payloads(spark, streams, target) == expected
    with pytest.raises(OptionError, match="belongs to another replay"):
        run(spark, "replay", **{**settings, "where": ""})


def test_replay_sends_a_range_of_a_queue(spark: SparkSession, streams: StreamBroker, tmp_path: Path) -> None:
    name = streams.filled_stream("ranged", 300)
    rows = spark.read.format("millstream").option("uri", streams.uri).option("queues", name).load()
    moments = {row.offset: row.timestamp for row in rows.collect()}
    first, end = moments[100], moments[299]
    expected = [str(number) for number in range(300) if first <= moments[number] < end]
    target = streams.create_stream(unique("replayed"))
    settings = {
        "from_queue": name,
        "queue": target,
        "chunk_rows": "90",
        "checkpoint": str(tmp_path / "replay"),
    }
    run(spark, "replay", uri=streams.uri, since=first.isoformat(), until=end.isoformat(), **settings)
    assert payloads(spark, streams, target) == expected


def test_settings_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="replay reads a table or a queue"):
        replay.open_plan(
            {name: one.default for name, one in replay.SETTINGS.items()}
            | {"checkpoint": str(tmp_path), "queue": "x"}
        )
    with pytest.raises(OptionError, match="is no time"):
        replay.moment_ns("yesterday")
    with pytest.raises(OptionError, match="compact=often"):
        lake.compaction_pause({"compact": "often", "compact_bytes": "1"})
