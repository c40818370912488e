"""A table grows by columns that can be null; anything else is one sentence, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as pds
import pytest
from lake_rows import COLUMNS, FORMATS, assert_offsets, lake_at, rows, stage
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_millstream.lake.columns import arrow_columns, fit
from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.parquet_table import read_table_columns
from pyspark_millstream.lake.store import open_lake


def with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, values], names=[*batch.schema.names, name])


def read_column(path: Path, table_format: str, name: str) -> dict[int, object]:
    """Offset -> value of that column, through a reader of the format."""
    if table_format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(path)).to_pyarrow_table()
    elif table_format == "iceberg":
        from pyspark_millstream.lake.iceberg_table import load_iceberg

        table = load_iceberg(path).scan().to_arrow()
    else:
        columns = read_table_columns(path)
        table = pds.dataset(path, schema=columns, partitioning=None).to_table()
    return dict(zip(table["offset"].to_pylist(), table[name].to_pylist(), strict=True))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_new_column_is_null_in_the_rows_before_it(tmp_path: Path, table_format: str) -> None:
    lake = lake_at(tmp_path, table_format)
    lake.commit(stage(lake, 0, rows(0, 20)))
    wider = with_column(rows(20, 20), "quality", pa.array([1.5] * 20))
    lake.commit(stage(lake, 1, wider))
    lake.commit(stage(lake, 2, rows(40, 10)))  # the old job goes on without it
    seen = read_column(tmp_path, table_format, "quality")
    assert seen == {offset: 1.5 if 20 <= offset < 40 else None for offset in range(50)}
    assert_offsets(tmp_path, table_format, range(50))


def test_duckdb_sees_a_new_column_of_plain_parquet_by_name(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.commit(stage(lake, 0, rows(0, 20)))
    lake.commit(stage(lake, 1, with_column(rows(20, 20), "quality", pa.array([1.5] * 20))))
    found = duckdb.read_parquet(f"{tmp_path}/**/*.parquet", union_by_name=True, hive_partitioning=True)
    assert found.aggregate("count(*), count(quality), count(distinct queue)").fetchall() == [(40, 20, 2)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_another_type_is_refused_before_anything_is_written(tmp_path: Path, table_format: str) -> None:
    lake = lake_at(tmp_path, table_format)
    lake.commit(stage(lake, 0, rows(0, 20)))
    before = sorted(str(file) for file in tmp_path.rglob("*"))
    wrong = rows(20, 20).cast(COLUMNS.set(1, pa.field("offset", pa.string())))
    with pytest.raises(LakeError) as refused:
        stage(lake, 1, wrong)
    assert str(refused.value).startswith(
        f"the column `offset` is string, but int64 in the table {tmp_path}. Cast"
    )
    assert sorted(str(file) for file in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_type_that_changed_while_a_batch_ran_is_refused_at_the_commit(
    tmp_path: Path, table_format: str
) -> None:
    lake = lake_at(tmp_path, table_format)
    lake.commit(stage(lake, 0, rows(0, 20)))
    late = stage(lake, 0, with_column(rows(20, 20), "quality", pa.array(["good"] * 20)), query="late")
    lake.commit(stage(lake, 1, with_column(rows(40, 20), "quality", pa.array([1.5] * 20))))
    with pytest.raises(LakeError, match="the column `quality` is string, but double in the table"):
        lake.commit(late)
    lake.commit(stage(lake, 2, rows(60, 20)))
    assert_offsets(tmp_path, table_format, [*range(20), *range(40, 80)])


def test_a_name_that_differs_only_in_case_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.commit(stage(lake, 0, rows(0, 20)))
    with pytest.raises(LakeError, match="the column `Payload` is called `payload`"):
        stage(lake, 1, rows(20, 20).rename_columns(["queue", "offset", "timestamp", "Payload"]))


@pytest.mark.parametrize("table_format", FORMATS)
def test_other_folders_than_those_of_the_table_are_refused(tmp_path: Path, table_format: str) -> None:
    lake = lake_at(tmp_path, table_format)
    lake.commit(stage(lake, 0, rows(0, 20)))
    again = lake_at(tmp_path, table_format)
    assert again.plan(COLUMNS, "date(timestamp),queue") == again.plan(COLUMNS, None)
    with pytest.raises(LakeError, match=r"is partitioned by date\(timestamp\),queue, not by queue"):
        again.plan(COLUMNS, "queue")


def test_another_format_than_that_of_the_table_is_refused(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, "delta")
    lake.commit(stage(lake, 0, rows(0, 20)))
    with pytest.raises(LakeError, match=r"of the format delta, not parquet\. Set tableFormat=delta"):
        open_lake(str(tmp_path), "parquet")
    assert open_lake(str(tmp_path)).table.find_facts() is not None


def test_a_folder_with_foreign_parquet_files_is_left_alone(tmp_path: Path) -> None:
    pds.write_dataset(rows(0, 10), tmp_path, format="parquet")
    lake = lake_at(tmp_path)
    with pytest.raises(LakeError, match="holds Parquet files that this sink did not write"):
        lake.commit(stage(lake, 0, rows(0, 10)))


def test_a_store_that_is_no_folder_is_refused() -> None:
    with pytest.raises(LakeError, match="not to s3://"):
        open_lake("s3://bucket/events")


def test_every_column_may_be_null_and_times_are_in_utc() -> None:
    required = StructType(
        [
            StructField("offset", LongType(), nullable=False),
            StructField("timestamp", TimestampType(), nullable=False),
            StructField("tags", MapType(StringType(), StringType(), valueContainsNull=False)),
            StructField("values", ArrayType(IntegerType(), containsNull=False), nullable=False),
        ]
    )
    columns = arrow_columns(required)
    assert all(column.nullable for column in columns)
    assert columns.field("timestamp").type == pa.timestamp("us", "UTC")
    assert columns.field("values").type.value_field.nullable
    assert columns.field("tags").type.item_field.nullable


@pytest.mark.parametrize("kind", [NullType(), CalendarIntervalType(), ArrayType(NullType())])
def test_a_type_no_table_can_keep_is_refused(kind: NullType) -> None:
    with pytest.raises(LakeError, match="the column `odd` has the type"):
        arrow_columns(StructType([StructField("odd", kind)]))


def test_times_of_another_zone_are_the_same_moments() -> None:
    berlin = rows(0, 3).cast(COLUMNS.set(2, pa.field("timestamp", pa.timestamp("us", "Europe/Berlin"))))
    assert fit(berlin, COLUMNS).equals(rows(0, 3))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_time_no_calendar_has_does_not_stop_the_table(tmp_path: Path, table_format: str) -> None:
    lake = lake_at(tmp_path, table_format)
    batch = rows(0, 20)
    far = pa.array([9_000_000_000_000_000_000 - number for number in range(20)]).cast(
        pa.timestamp("us", "UTC")
    )
    lake.commit(stage(lake, 0, batch.set_column(2, "timestamp", far)))
    lake.commit(stage(lake, 1, rows(20, 20)))
    assert_offsets(tmp_path, table_format, range(40))
