"""Rows, and a batch of them brought to a lake table in the steps the sink takes, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as pds

from pyspark_millstream.lake.file_writer import FolderWriter
from pyspark_millstream.lake.manifest import Manifest
from pyspark_millstream.lake.partitioning import fields_text
from pyspark_millstream.lake.store import Lake, open_lake
from pyspark_millstream.lake.writer_settings import WriterSettings

FORMATS = ("parquet", "delta", "iceberg")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        pa.field("queue", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("payload", pa.binary()),
    ]
)


def rows(first: int, count: int, queues: Sequence[str] = ("a/b", "c")) -> pa.RecordBatch:
    """Offsets from `first` on, queues in turn, ten rows to a day."""
    numbers = range(first, first + count)
    return pa.record_batch(
        [
            [queues[number % len(queues)] for number in numbers],
            list(numbers),
            [NOON + timedelta(days=number // 10) for number in numbers],
            [b"%d" % number for number in numbers],
        ],
        schema=COLUMNS,
    )


def stage(
    lake: Lake, batch: int, rows: pa.RecordBatch, query: str = "query", partition_by: str | None = None
) -> Manifest:
    """What the tasks of one batch do."""
    fields = lake.plan(rows.schema, partition_by)
    folder = lake.journal.staging_folder(query, batch)
    writer = FolderWriter(
        lake.root, folder, rows.schema, fields, lake.table.keeps_sources, "part", WriterSettings()
    )
    writer.add(rows)
    return Manifest(query, batch, rows.schema, fields_text(fields), tuple(writer.finish()))


def lake_at(path: Path, table_format: str = "parquet") -> Lake:
    """As a new process would open it."""
    return open_lake(str(path), table_format)


def read_offsets(path: Path, table_format: str) -> dict[str, list[int]]:
    """The offsets each reader sees, sorted."""
    if table_format == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(path)).to_pyarrow_dataset()
        seen = {"polars": polars.read_delta(str(path))["offset"].to_list()}
    elif table_format == "iceberg":
        from pyspark_millstream.lake.iceberg_table import load_iceberg

        found = pds.dataset(load_iceberg(path).scan().to_arrow())
        seen = {}
    else:
        found = pds.dataset(path, partitioning="hive")
        glob = f"{path}/**/*.parquet"
        seen = {
            "polars": polars.scan_parquet(glob, extra_columns="ignore", missing_columns="insert")
            .collect()["offset"]
            .to_list(),
            "duckdb with a glob": [
                row[0] for row in duckdb.read_parquet(glob).project('"offset"').fetchall()
            ],
        }
    seen["arrow"] = found.to_table(columns=["offset"])["offset"].to_pylist()
    seen["duckdb"] = [row[0] for row in duckdb.from_arrow(found).project('"offset"').fetchall()]
    return {reader: sorted(offsets) for reader, offsets in seen.items()}


def assert_offsets(path: Path, table_format: str, expected: Sequence[int]) -> None:
    for reader, offsets in read_offsets(path, table_format).items():
        assert offsets == list(expected), reader
