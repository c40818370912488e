"""`format("millstream_lake")` on real Spark: each row once for every reader, whatever dies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars
import pyarrow.dataset as pds
import pytest
from dying_lake import DyingLake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_world import first_line

from pyspark_millstream.lake.compaction import compact
from pyspark_millstream.lake.read import read_lake
from pyspark_millstream.lake.source import LakeSource
from pyspark_millstream.lake.store import files_of

pytest_plugins = ["spark_fixtures"]

FORMATS = ("parquet", "delta", "iceberg")
FILES = 8
ROWS = 250  # in a file
STEPS = (
    "recover 1",
    "fit_columns 1",
    "begin 1",
    "_move_file 1",
    "move 1",
    "publish 1",
    "finish 1",
    "sweep 1",
)


@pytest.fixture(autouse=True)
def _formats(spark: SparkSession) -> None:
    spark.dataSource.register(LakeSource)
    spark.dataSource.register(DyingLake)


def numbered(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Rows as the source gives them: three queues, a day every 500 rows."""
    return spark.range(first, end, numPartitions=2).select(
        F.concat(F.lit("press/"), (F.col("id") % 3).cast("string")).alias("queue"),
        F.col("id").alias("offset"),
        F.timestamp_seconds(F.lit(1_800_000_000) + F.floor(F.col("id") / 500) * 86_400).alias("timestamp"),
        F.col("id").cast("string").cast("binary").alias("payload"),
    )


def offsets_by_reader(spark: SparkSession, path: Path, table_format: str) -> dict[str, list[int]]:
    seen = {"spark": [row[0] for row in read_lake(spark, str(path)).select("offset").collect()]}
    if table_format == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(path)).to_pyarrow_dataset()
        seen["polars"] = polars.read_delta(str(path))["offset"].to_list()
    elif table_format == "iceberg":
        from pyspark_millstream.lake.iceberg_table import load_iceberg

        found = pds.dataset(load_iceberg(path).scan().to_arrow())
        seen["polars"] = polars.scan_iceberg(load_iceberg(path)).collect()["offset"].to_list()
    else:
        found = pds.dataset(path, partitioning="hive")
        glob = f"{path}/**/*.parquet"
        seen["spark with the folder"] = [
            row[0] for row in spark.read.parquet(str(path)).select("offset").collect()
        ]
        seen["duckdb with a glob"] = [
            row[0] for row in duckdb.read_parquet(glob).project('"offset"').fetchall()
        ]
        walked = polars.scan_parquet(glob, extra_columns="ignore", missing_columns="insert")
        seen["polars"] = walked.collect()["offset"].to_list()
    seen["arrow"] = found.to_table(columns=["offset"])["offset"].to_pylist()
    seen["duckdb"] = [row[0] for row in duckdb.from_arrow(found).project('"offset"').fetchall()]
    return {reader: sorted(offsets) for reader, offsets in seen.items()}


def assert_offsets(spark: SparkSession, path: Path, table_format: str, expected: Sequence[int]) -> None:
    for reader, offsets in offsets_by_reader(spark, path, table_format).items():
        assert offsets == list(expected), reader


def run_stream(
    spark: SparkSession, folder: Path, table_format: str, sink: str = "millstream_lake", **options: str
) -> None:
    """All files of folder/in, one to a batch, to folder/table; from the checkpoint on."""
    source = folder / "in"
    schema = spark.read.parquet(str(source)).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = rows.writeStream.format(sink).option("tableFormat", table_format).options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "table"))
    query.awaitTermination()


def prepare(spark: SparkSession, folder: Path, first: int = 0, files: int = FILES) -> None:
    for number in range(first, first + files):
        rows = numbered(spark, number * ROWS, (number + 1) * ROWS).coalesce(1)
        rows.write.mode("append").parquet(str(folder / "in"))


def refusal(write: object) -> str:
    assert callable(write)
    with pytest.raises(PySparkException) as refused:
        write()
    return first_line(refused.value)


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.timeout(400)
def test_each_row_is_there_once_when_every_step_of_a_commit_dies(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    prepare(spark, tmp_path)
    deaths = tmp_path / "deaths"
    deaths.write_text("\n".join(("task", *STEPS)), encoding="utf-8")
    failed = 0
    while True:
        try:
            run_stream(spark, tmp_path, table_format, "dying_lake", deaths=str(deaths))
        except PySparkException:
            failed += 1
            continue
        break
    assert deaths.read_text(encoding="utf-8") == ""
    assert failed >= len(STEPS)  # Spark itself may have tried the task again
    assert_offsets(spark, tmp_path / "table", table_format, range(FILES * ROWS))
    assert not list((tmp_path / "table").glob(".staging-*"))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_stream_goes_on_while_its_table_is_compacted_and_grows_a_column(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    table = tmp_path / "table"
    prepare(spark, tmp_path, files=3)
    run_stream(spark, tmp_path, table_format)
    report = compact(str(table))
    assert report.files_after < report.files_before
    prepare(spark, tmp_path, first=3, files=1)
    run_stream(spark, tmp_path, table_format)
    assert_offsets(spark, table, table_format, range(4 * ROWS))

    more = numbered(spark, 4 * ROWS, 5 * ROWS).withColumn("quality", F.lit(1.5))
    more.write.format("millstream_lake").mode("append").save(str(table))
    assert_offsets(spark, table, table_format, range(5 * ROWS))
    assert read_lake(spark, str(table)).where("quality = 1.5").count() == ROWS
    assert {row[0] for row in read_lake(spark, str(table)).select("queue").distinct().collect()} == {
        "press/0",
        "press/1",
        "press/2",
    }


def test_a_batch_write_under_a_name_adds_its_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        writer = numbered(spark, 0, 100).write.format("millstream_lake").option("txnAppId", "nightly")
        writer.option("txnVersion", "7").mode("append").save(str(tmp_path / "table"))
    assert_offsets(spark, tmp_path / "table", "parquet", range(100))


def test_a_failed_task_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    broken = numbered(spark, 0, 100).withColumn(
        "payload", F.when(F.col("offset") == 99, F.raise_error(F.lit("no"))).otherwise(F.col("payload"))
    )
    with pytest.raises(PySparkException):
        broken.write.format("millstream_lake").mode("append").save(str(tmp_path / "table"))
    numbered(spark, 0, 50).write.format("millstream_lake").mode("append").save(str(tmp_path / "table"))
    assert_offsets(spark, tmp_path / "table", "parquet", range(50))


def test_wrong_input_is_one_sentence_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    rows = numbered(spark, 0, 10)
    rows.write.format("millstream_lake").mode("append").save(str(table))
    files = files_of(str(table))

    def write(frame: DataFrame, mode: str = "append", **options: str) -> str:
        writer = frame.write.format("millstream_lake").options(**options).mode(mode)
        return refusal(lambda: writer.save(str(table)))

    told = {
        write(
            rows, partitionBi="queue"
        ): "millstream_lake has no option `partitionbi`. Did you mean partitionBy?",
        write(
            rows, tableFormat="hudi"
        ): "tableFormat=hudi is not known. Choose one of parquet, delta, iceberg.",
        write(
            rows, tableFormat="delta"
        ): "holds a table of the format parquet, not delta. Set tableFormat=parquet.",
        write(rows, partitionBy="queue"): "is partitioned by date(timestamp),queue, not by queue.",
        write(rows, mode="overwrite"): "the lake only adds rows; it does not overwrite a table.",
        write(rows.withColumn("offset", F.lit("x"))): "the column `offset` is string, but int64 in the table",
    }
    for line, sentence in told.items():
        assert sentence in line
        assert "Traceback" not in line
    assert files_of(str(table)) == files
