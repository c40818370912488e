"""Batches are cut by folder: every row in its own, in the order it came."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_rows import COLUMNS, rows

from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.file_writer import FolderWriter
from pyspark_millstream.lake.partitioning import (
    check_fields,
    default_fields,
    folder_of,
    folder_values,
    parse_partition_by,
)
from pyspark_millstream.lake.splitting import Splitter
from pyspark_millstream.lake.writer_settings import WriterSettings

FIELDS = parse_partition_by("date(timestamp), queue")
MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
NAMES = st.sampled_from(["a", "b/c", "é", "x=1", "007", "%2F", "two words"])


@given(st.lists(st.tuples(st.none() | NAMES, st.none() | MOMENTS), max_size=60))
def test_each_row_goes_to_the_folder_of_its_day_and_queue_in_order(
    pairs: list[tuple[str | None, datetime | None]],
) -> None:
    batch = pa.record_batch(
        [
            pa.array([name for name, _ in pairs], pa.string()),
            pa.array(range(len(pairs)), pa.int64()),
            pa.array([moment for _, moment in pairs], pa.timestamp("us", "UTC")),
            pa.array([b""] * len(pairs), pa.binary()),
        ],
        schema=COLUMNS,
    )
    parts = Splitter(FIELDS, keep_sources=False).split(batch)
    expected: dict[tuple[str | None, str | None], list[int]] = {}
    for number, (name, moment) in enumerate(pairs):
        day = None if moment is None else moment.date().isoformat()
        expected.setdefault((day, name), []).append(number)
    assert {values: part["offset"].to_pylist() for values, part in parts} == expected
    assert len(parts) == len(expected)
    assert all("queue" not in part.schema.names for _, part in parts)


def test_a_batch_of_one_folder_is_not_copied() -> None:
    batch = rows(0, 10, queues=["a"])
    [(values, part)] = Splitter(FIELDS, keep_sources=True).split(batch)
    assert values == ("2026-11-15", "a")
    assert part["payload"].buffers()[2].address == batch["payload"].buffers()[2].address


def test_hours_are_folders_too() -> None:
    parts = Splitter(parse_partition_by("hour(timestamp)"), keep_sources=False).split(rows(0, 12))
    assert [values for values, _ in parts] == [("2026-11-15-12",), ("2026-11-16-12",)]


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_folder_name_gives_its_value_back(value: str) -> None:
    folder = folder_of(parse_partition_by("queue"), (value,))
    assert "/" not in folder
    assert folder_values(folder) == (value,)


def test_readers_of_the_folders_get_the_queue_names_back(tmp_path: Path) -> None:
    names = ["press/1", "ü ñ", "a=b", "50%", "plain"]
    writer = FolderWriter(tmp_path, tmp_path / ".s", COLUMNS, FIELDS, False, "part", WriterSettings())
    writer.add(rows(0, 10, queues=names))
    for file in writer.finish():
        (tmp_path / file.target).parent.mkdir(parents=True)
        (tmp_path / file.staged).rename(tmp_path / file.target)
    table = pds.dataset(tmp_path, partitioning="hive").to_table()
    assert set(table["queue"].to_pylist()) == set(names)


def test_files_and_row_groups_are_bounded(tmp_path: Path) -> None:
    settings = WriterSettings(row_group_rows=100, files_open_max=2, file_bytes_max=1)
    writer = FolderWriter(tmp_path, tmp_path / ".s", COLUMNS, FIELDS, False, "part", settings)
    for first in range(0, 1000, 50):
        writer.add(rows(first, 50, queues=["a", "b", "c"]))
    files = writer.finish()
    assert sum(file.rows for file in files) == 1000
    assert all(pq.read_metadata(tmp_path / file.staged).num_row_groups == 1 for file in files)


@pytest.mark.parametrize(
    ("payload", "codec"),
    [(random.Random(1).randbytes(5000), "UNCOMPRESSED"), (b"21.5 degrees " * 400, "ZSTD")],
)
def test_only_payloads_that_shrink_are_compressed(tmp_path: Path, payload: bytes, codec: str) -> None:
    batch = rows(0, 10, queues=["a"])
    place = batch.schema.get_field_index("payload")
    pieces = pa.array([payload[at : at + 500] for at in range(0, 5000, 500)], pa.binary())
    writer = FolderWriter(tmp_path, tmp_path / ".s", COLUMNS, (), True, "part", WriterSettings())
    writer.add(batch.set_column(place, COLUMNS.field(place), pieces))
    [file] = writer.finish()
    group = pq.read_metadata(tmp_path / file.staged).row_group(0)
    codecs = {
        group.column(at).path_in_schema: group.column(at).compression for at in range(group.num_columns)
    }
    assert codecs.pop("payload") == codec
    assert set(codecs.values()) == {"ZSTD"}
    assert pq.read_table(tmp_path / file.staged)["payload"].to_pylist() == pieces.to_pylist()


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    settings = WriterSettings(row_group_rows=10, files_open_max=1)
    writer = FolderWriter(tmp_path, tmp_path / ".s", COLUMNS, FIELDS, False, "part", settings)
    writer.add(rows(0, 100))
    assert list((tmp_path / ".s").iterdir())
    writer.abandon()
    assert not list((tmp_path / ".s").iterdir())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("queue,,offset", "partitionBy cannot be read at ``"),
        ("year(timestamp)", "partitionBy cannot be read at `year(timestamp)`"),
        ("queue, queue", "partitionBy names the folder `queue` twice"),
        ("device", "partitionBy names `device`, which is no column"),
        ("date(offset)", "partitionBy=date(offset) needs a timestamp, but `offset` is int64"),
        ("payload", "partitionBy names `payload`, but values of type binary cannot name a folder"),
    ],
)
def test_folders_that_cannot_be_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(LakeError) as refused:
        check_fields(parse_partition_by(text), COLUMNS)
    assert str(refused.value).startswith(sentence)


def test_by_default_a_table_has_folders_by_day_and_queue_as_far_as_the_rows_have_them() -> None:
    assert default_fields(COLUMNS) == FIELDS
    assert default_fields(pa.schema([("value", pa.int64())])) == ()
    assert parse_partition_by("none") == parse_partition_by("") == ()
