"""A batch is part of the table once, wherever the process that commits it dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from lake_rows import FORMATS, assert_offsets, lake_at, read_offsets, rows, stage

from pyspark_millstream.lake.faults import LakeError, TableDamagedError
from pyspark_millstream.lake.journal import STALE_S
from pyspark_millstream.lake.manifest import Manifest
from pyspark_millstream.lake.store import Lake


def die_before_the_promise(lake: Lake, manifest: Manifest) -> None:
    lake.fit_columns(manifest)


def die_after_the_promise(lake: Lake, manifest: Manifest) -> None:
    die_before_the_promise(lake, manifest)
    lake.journal.begin(manifest)


def die_between_two_moves(lake: Lake, manifest: Manifest) -> None:
    die_after_the_promise(lake, manifest)
    lake.journal.move(Manifest("query", 1, manifest.schema, manifest.partition_by, manifest.files[:1]))


def die_after_the_moves(lake: Lake, manifest: Manifest) -> None:
    die_after_the_promise(lake, manifest)
    lake.journal.move(manifest)


def die_after_the_commit_of_the_format(lake: Lake, manifest: Manifest) -> None:
    die_after_the_moves(lake, manifest)
    lake.table.publish(manifest)


def die_before_the_manifest_goes(lake: Lake, manifest: Manifest) -> None:
    die_after_the_commit_of_the_format(lake, manifest)
    lake.journal.finish(manifest)
    lake.journal.begin(manifest)  # the file as it was before it was removed


def die_before_the_sweep(lake: Lake, manifest: Manifest) -> None:
    die_after_the_promise(lake, manifest)
    lake.complete(manifest)


DEATHS = (
    die_before_the_promise,
    die_after_the_promise,
    die_between_two_moves,
    die_after_the_moves,
    die_after_the_commit_of_the_format,
    die_before_the_manifest_goes,
    die_before_the_sweep,
)


def hidden_files(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.glob(".staging-*"))


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("die", DEATHS, ids=lambda die: die.__name__)
def test_every_row_is_there_once_after_a_death_and_a_second_run(
    tmp_path: Path, table_format: str, die: Callable[[Lake, Manifest], None]
) -> None:
    table = tmp_path / "table"
    first = lake_at(table, table_format)
    assert first.commit(stage(first, 0, rows(0, 40)))
    dying = lake_at(table, table_format)
    die(dying, stage(dying, 1, rows(40, 40)))

    again = lake_at(table, table_format)
    again.commit(stage(again, 1, rows(40, 40)))
    assert_offsets(table, table_format, range(80))
    after = lake_at(table, table_format)
    assert after.commit(stage(after, 2, rows(80, 10)))
    assert_offsets(table, table_format, range(90))
    assert hidden_files(table) == []
    assert not list((table / "_millstream").glob("batch-*"))


@pytest.mark.parametrize("die", DEATHS, ids=lambda die: die.__name__)
def test_a_reader_between_death_and_second_run_sees_no_row_twice(
    tmp_path: Path, die: Callable[[Lake, Manifest], None]
) -> None:
    lake = lake_at(tmp_path / "table")
    lake.commit(stage(lake, 0, rows(0, 40)))
    die(lake, stage(lake, 1, rows(40, 40)))
    for reader, offsets in read_offsets(tmp_path / "table", "parquet").items():
        assert len(offsets) == len(set(offsets)), reader
        assert offsets[:40] == list(range(40)), reader


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_batch_that_is_there_is_not_added_again_and_leaves_nothing(
    tmp_path: Path, table_format: str
) -> None:
    table = tmp_path / "table"
    for _ in range(3):
        lake = lake_at(table, table_format)
        lake.commit(stage(lake, 0, rows(0, 20)))
    lake = lake_at(table, table_format)
    assert not lake.commit(stage(lake, 0, rows(0, 20)))
    assert_offsets(table, table_format, range(20))
    assert hidden_files(table) == []


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_format_itself_knows_a_batch_whose_journal_was_lost(tmp_path: Path, table_format: str) -> None:
    lake = lake_at(tmp_path, table_format)
    lake.commit(stage(lake, 4, rows(0, 20)))
    for file in (tmp_path / "_millstream").glob("done-*"):
        file.unlink()
    again = lake_at(tmp_path, table_format)
    assert not again.commit(stage(again, 4, rows(0, 20)))
    assert_offsets(tmp_path, table_format, range(20))


def test_two_queries_count_their_batches_apart(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    assert lake.commit(stage(lake, 7, rows(0, 10), query="one"))
    assert lake.commit(stage(lake, 0, rows(10, 10), query="two"))
    assert not lake.commit(stage(lake, 6, rows(20, 10), query="one"))
    assert_offsets(tmp_path, "parquet", range(20))


def test_a_query_does_not_sweep_what_another_one_is_writing(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    other = stage(lake, 3, rows(10, 10), query="query-2")  # its name begins with that of the first
    lake.commit(stage(lake, 5, rows(0, 10), query="query"))
    assert lake.commit(other)
    assert_offsets(tmp_path, "parquet", range(20))


def test_what_a_query_left_a_day_ago_is_swept_by_any_other(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    left = stage(lake, 3, rows(10, 10), query="gone")
    folder = (tmp_path / left.files[0].staged).parent
    for place in [*folder.iterdir(), folder]:
        changed_s = place.stat().st_mtime - STALE_S - 60
        os.utime(place, (changed_s, changed_s))
    lake.commit(stage(lake, 0, rows(0, 10)))
    assert not folder.exists()


def test_a_lost_file_of_a_begun_batch_is_named(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    manifest = stage(lake, 0, rows(0, 10))
    die_after_the_promise(lake, manifest)
    (tmp_path / manifest.files[0].staged).unlink()
    with pytest.raises(TableDamagedError, match=r"lost the file \.staging-query-0/part-"):
        lake_at(tmp_path).commit(stage(lake, 1, rows(10, 10)))


def test_a_damaged_manifest_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    lake.commit(stage(lake, 0, rows(0, 10)))
    (tmp_path / "_millstream" / "batch-other-3.json").write_text("{", encoding="utf-8")
    with pytest.raises(TableDamagedError, match=r"batch-other-3\.json cannot be read"):
        lake.commit(stage(lake, 1, rows(10, 10)))
    assert_offsets(tmp_path, "parquet", range(10))


def test_who_waits_too_long_for_the_lock_is_told(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    other = lake_at(tmp_path).journal
    refused = pytest.raises(LakeError, match="another process has held the table")
    with lake.journal.lock(), refused, other.lock(wait_s=0.0):
        pytest.fail("two have the lock")


def test_a_query_name_that_would_leave_the_folder_stays_inside(tmp_path: Path) -> None:
    lake = lake_at(tmp_path / "table")
    lake.commit(stage(lake, 0, rows(0, 10), query="up/../../there"))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["table"]
    assert_offsets(tmp_path / "table", "parquet", range(10))
