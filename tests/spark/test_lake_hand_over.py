"""The lake pipeline on real Spark where the tasks that write fetch the records: the same rows as through Spark, once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_world import StreamBroker, sorted_rows

from pyspark_millstream.lake.read import read_lake
from pyspark_millstream.lake.source import LakeSource
from pyspark_millstream.pipelines import catalog, lake
from pyspark_millstream.pipelines.progress import QueryPace
from pyspark_millstream.source import MillstreamSource

pytest_plugins = ["spark_fixtures"]

FORMATS = ("parquet", "delta", "iceberg")
COLUMNS = ("queue", "offset", "timestamp", "topic", "payload", "qos", "headers")


@pytest.fixture(autouse=True)
def _formats(spark: SparkSession) -> None:
    spark.dataSource.register(MillstreamSource)
    spark.dataSource.register(LakeSource)


def run(spark: SparkSession, pipeline: catalog.Pipeline, **given: str) -> list[dict[str, Any]]:
    """To its end; what Spark reported."""
    queries = pipeline.build(spark, pipeline.settings_from({"trigger": "available_now", **given}))
    assert queries is not None
    queries[0].awaitTermination()
    return [json.loads(report.json) for report in queries[0].recentProgress]


def counted(reports: list[dict[str, Any]]) -> tuple[int, int]:
    """(rows as Spark counts them, rows as the pipeline does)"""
    pace = QueryPace("lake")
    for second, report in enumerate(reports):
        pace.take(report, float(second))
    return sum(int(report["numInputRows"]) for report in reports), pace.rows


def forget_last_commit(checkpoint: Path) -> None:
    """As after a crash between the commit of the table and Spark's own note of it."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_has_each_record_once_whichever_way_each_run_took(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path, table_format: str
) -> None:
    name = streams.filled_stream("handed", 600)
    settings = {
        "uri": streams.uri,
        "queues": name,
        "table": str(tmp_path / "table"),
        "table_format": table_format,
        "headers": "true",
    }
    pipeline = catalog.find("lake")
    assert counted(run(spark, pipeline, **settings)) == (1, 600)
    forget_last_commit(tmp_path / "table.checkpoint")
    streams.publish(name, (f"{number}" for number in range(300)), properties=[("unit", "K")])
    assert counted(run(spark, pipeline, **settings, hand_over="never")) == (900, 900)  # the first runs again
    read = spark.read.format("millstream").options(uri=streams.uri, queues=name, includeHeaders="true")
    expected = sorted(read.load().select(*COLUMNS).collect(), key=lambda row: row.offset)
    found = sorted(read_lake(spark, settings["table"]).select(*COLUMNS).collect(), key=lambda row: row.offset)
    assert len(found) == 900
    assert found == expected


def test_a_changed_transform_is_never_passed_by(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path
) -> None:
    name = streams.filled_stream("changed", 20)
    file = tmp_path / "mine.py"
    text = Path(lake.__file__).read_text(encoding="utf-8")
    kept = 'return rows.where(settings["where"]) if settings["where"] else rows'
    assert text.count(kept) == 1
    file.write_text(
        text.replace(kept, 'return rows.withColumn("plant", rows["offset"] % 2)'), encoding="utf-8"
    )
    table = str(tmp_path / "table")
    reports = run(spark, catalog.find(str(file)), uri=streams.uri, queues=name, table=table)
    assert counted(reports) == (20, 20)
    assert sorted_rows(read_lake(spark, table), "offset", "plant") == [(n, n % 2) for n in range(20)]


def test_records_gone_before_the_sink_fetched_them_are_an_error_or_left_out(
    spark: SparkSession, streams: StreamBroker, tmp_path: Path
) -> None:
    name = streams.filled_stream("gone", 80)

    def ranges(**options: str) -> DataFrame:
        read = spark.read.format("millstream").options(uri=streams.uri, queues=name, handOver="true")
        planned = read.options(minPartitions="2", **options).load()
        return spark.createDataFrame(planned.collect(), planned.schema)  # before the records are gone

    def write(rows: DataFrame, table: str) -> None:
        writer = rows.write.format("millstream_lake").mode("append")
        writer.options(handOver="true", uri=streams.uri, retrySeconds="1").save(str(tmp_path / table))

    strict, lenient = ranges(), ranges(failOnDataLoss="false")
    streams.call("queue.purge", name=name)
    streams.fill(name, 5, first=80)
    with pytest.raises(PySparkException) as refused:
        write(strict, "strict")
    assert re.search(f'records of the queue "{name}", offsets (0|40) to 79', str(refused.value))
    assert not list((tmp_path / "strict").rglob("*.parquet"))
    write(lenient, "lenient")
    write(ranges(), "lenient")
    assert sorted_rows(read_lake(spark, str(tmp_path / "lenient")), "offset") == [(n,) for n in range(80, 85)]
