"""Compaction: fewer files, the same rows, beside writers and wherever it dies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds
import pytest
from lake_rows import FORMATS, assert_offsets, lake_at, rows, stage

from pyspark_millstream.lake import compaction
from pyspark_millstream.lake.compaction import compact, plan_bins
from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.manifest import StagedFile
from pyspark_millstream.lake.store import files_of
from pyspark_millstream.lake.table import TableFile

DAY_FILES = 2  # two queues


def fill(path: Path, table_format: str, batches: int, first: int = 0) -> None:
    lake = lake_at(path, table_format)
    for batch in range(first, first + batches):
        lake.commit(stage(lake, batch, rows(batch * 4, 4)))


@pytest.mark.parametrize("table_format", FORMATS)
def test_small_files_become_one_per_folder_and_the_report_says_so(tmp_path: Path, table_format: str) -> None:
    table = tmp_path / "table"
    fill(table, table_format, 5)  # offsets 0 to 19: two days, two queues
    report = compact(str(table))
    assert (report.files_before, report.files_after) == (12, 4)
    assert report.bytes_after < report.bytes_before
    assert report.bytes_after == sum(Path(file).stat().st_size for file in files_of(str(table)))
    assert_offsets(table, table_format, range(20))
    fill(table, table_format, 2, first=5)
    assert_offsets(table, table_format, range(28))
    assert [entry.name for entry in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_second_compaction_changes_nothing(tmp_path: Path, table_format: str) -> None:
    fill(tmp_path, table_format, 3)
    compact(str(tmp_path))
    files = files_of(str(tmp_path))
    compact(str(tmp_path))
    assert files_of(str(tmp_path)) == files


@pytest.mark.parametrize("table_format", FORMATS)
def test_columns_that_came_later_are_null_in_the_old_rows(tmp_path: Path, table_format: str) -> None:
    fill(tmp_path, table_format, 1)
    lake = lake_at(tmp_path, table_format)
    batch = rows(4, 4)
    wider = pa.RecordBatch.from_arrays(
        [*batch.columns, pa.array([7] * 4)], names=[*batch.schema.names, "seven"]
    )
    lake.commit(stage(lake, 1, wider))
    compact(str(tmp_path))
    assert_offsets(tmp_path, table_format, range(8))
    found = pds.dataset(files_of(str(tmp_path))).to_table(columns=["offset", "seven"]).sort_by("offset")
    assert found["seven"].to_pylist() == [None] * 4 + [7] * 4


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_begun_batch_is_finished_first(tmp_path: Path, table_format: str) -> None:
    fill(tmp_path, table_format, 2)
    lake = lake_at(tmp_path, table_format)
    manifest = stage(lake, 2, rows(8, 4))
    lake.journal.begin(manifest)
    compact(str(tmp_path))
    assert_offsets(tmp_path, table_format, range(12))
    again = lake_at(tmp_path, table_format)
    assert not again.commit(stage(again, 2, rows(8, 4)))
    assert_offsets(tmp_path, table_format, range(12))


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_batch_committed_while_files_are_rewritten_stays(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    fill(table, table_format, 2)
    merge = compaction._merged

    def merge_slowly(*arguments: Any) -> list[StagedFile]:
        merged = merge(*arguments)
        lake = lake_at(table, table_format)
        lake.commit(stage(lake, 2, rows(8, 2)))  # known the second time
        return merged

    monkeypatch.setattr(compaction, "_merged", merge_slowly)
    compact(str(table))
    assert_offsets(table, table_format, range(10))


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_a_compaction_that_dies_before_it_replaces_leaves_the_table_as_it_was(
    tmp_path: Path, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    fill(table, table_format, 3)
    files = files_of(str(table))

    class Died(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a dead process tidies nothing
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "exchange", die)
        from pyspark_millstream.lake.iceberg_table import IcebergLakeTable

        patch.setattr(IcebergLakeTable, "replace", die)
        with pytest.raises(Died):
            compact(str(table))
    assert files_of(str(table)) == files
    assert_offsets(table, table_format, range(12))
    monkeypatch.undo()
    compact(str(table))
    assert_offsets(table, table_format, range(12))
    assert [entry.name for entry in tmp_path.iterdir()] == ["table"]


def test_a_compaction_that_dies_after_the_exchange_leaves_all_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    fill(table, "parquet", 3)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    compact(str(table))
    assert_offsets(table, "parquet", range(12))
    monkeypatch.undo()
    compact(str(table))
    assert [entry.name for entry in tmp_path.iterdir()] == ["table"]


def test_a_table_without_folders_says_why_it_is_not_compacted(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    for batch in range(2):
        lake.commit(stage(lake, batch, rows(batch * 4, 4), partition_by="none"))
    with pytest.raises(LakeError, match="has no partition folders"):
        compact(str(tmp_path))
    assert_offsets(tmp_path, "parquet", range(8))


def test_where_there_is_no_table_compaction_says_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no table in"):
        compact(str(tmp_path))


def test_bins_hold_small_files_of_one_folder_up_to_the_target() -> None:
    sizes = {"x/1": 40, "x/2": 50, "x/3": 60, "x/4": 90, "y/1": 10, "z/1": 10, "z/2": 10}
    files = [TableFile(path, size, ()) for path, size in sizes.items()]
    assert [[file.path for file in one] for one in plan_bins(files, 100)] == [["x/1", "x/2"], ["z/1", "z/2"]]
