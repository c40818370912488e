"""Stages that a decided batch needs belong to what `storage verify` looks at and `storage repair` mends."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_directory import DataDirectory

from millstream.maintenance.repair import repair_storage
from millstream.maintenance.survey import survey_storage
from millstream.runtime.disk.data_folder import StorageFault
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.records import session_records
from millstream.storage.records.batch_records import (
    BATCH_ADVANCED,
    BATCH_BEGUN,
    StageFold,
    StoredBatch,
    StoredQuery,
    encode_advanced,
    encode_begun,
    encode_query,
)
from millstream.storage.stages.format import FOLDER, StageHeader, StageWriter, stage_name
from millstream.storage.table.checkpoint import load_stages, query_entry

STAGE = "a" * 32


def make_folder(folder: Path, next_row: int) -> Path:
    """One query with a batch of 600 rows that is begun; gives the file of its stage."""
    (folder / "log").mkdir(parents=True)
    (folder / FOLDER).mkdir()
    writer = StageWriter(StageHeader("default", "spark", "query", "out", 4, 0, 0))
    for at in range(600):
        writer.add(b"t", b"", b"%d" % at, 1, False, 0)
    path = folder / stage_name(STAGE)
    path.write_bytes(b"".join(writer.finish()))
    query = StoredQuery("default", "query", "spark", False)
    query.last_done = 3
    query.begun = StoredBatch(4, "out", [STAGE], 600)
    query.begun.next_row = next_row
    table = LmdbTable(folder / "state")
    table.put(query_entry("default", "query"), encode_query(query))
    table.commit()
    table.close()
    return path


def find_query(folder: Path) -> StoredQuery:
    table = LmdbTable(folder / "state")
    fold = StageFold()
    load_stages(table, fold)
    table.close()
    return fold.queries["default", "query"]


def no_progress(*_: object) -> None:
    pass


def test_a_stage_that_is_whole_is_good(tmp_path: Path) -> None:
    make_folder(tmp_path, 0)
    survey = survey_storage(tmp_path, no_progress)
    rows = [finding.to_row() for finding in survey.findings if finding.file == stage_name(STAGE)]
    assert [(row["count"], row["kind"], row["state"]) for row in rows] == [(600, "rows", "good")]
    assert not survey.is_damaged()


def test_a_batch_of_many_stages_that_ends_while_a_session_does_leaves_a_table_that_is_good(
    tmp_path: Path,
) -> None:
    """Its entry becomes short within one commit, after the session has brought it into the table."""
    query = StoredQuery("default", "query", "spark", False)
    batch = StoredBatch(4, "out", [f"{number:032x}" for number in range(1000)], 600)
    made = DataDirectory(tmp_path / "data")
    made.start()
    made.save_sessions(1)
    made.tell((BATCH_BEGUN, encode_begun(query, batch, 0)))
    made.tell((session_records.SESSION_REMOVED, session_records.encode_number(1)))
    made.tell((BATCH_ADVANCED, encode_advanced(query, 600, True, 0)))
    made.fold()  # and starts again
    made.stop()
    assert made.damaged() == []
    assert find_query(made.folder).last_done == 4


@pytest.mark.parametrize("is_missing", [False, True])
@pytest.mark.parametrize(("next_row", "last_done"), [(0, 3), (256, 4)])
def test_a_batch_whose_rows_are_damaged_is_ended_by_a_repair(
    tmp_path: Path, is_missing: bool, next_row: int, last_done: int
) -> None:
    path = make_folder(tmp_path, next_row)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    if is_missing:
        path.unlink()
    survey = survey_storage(tmp_path, no_progress)
    (bad,) = [finding for finding in survey.findings if finding.is_damaged]
    assert bad.lost == [f"rows from {next_row} on of batch 4 of the query 'query'"]
    done = repair_storage(tmp_path, survey)
    assert any("the batch 4 of the query 'query' was" in step for step in done)
    query = find_query(tmp_path)
    assert (query.last_done, query.begun) == (last_done, None)
    assert not survey_storage(tmp_path, no_progress).is_damaged()
    kept = [file.name for file in (tmp_path / "quarantine").glob("*")] if not is_missing else []
    assert is_missing or any(STAGE in name for name in kept)


def test_a_batch_is_not_ended_because_the_disk_does_not_give_its_rows(tmp_path: Path) -> None:
    path = make_folder(tmp_path, 256)
    path.rename(tmp_path / "kept")
    path.symlink_to("/proc/self/mem")  # whoever reads it gets EIO
    survey = survey_storage(tmp_path, no_progress)
    (bad,) = [finding for finding in survey.findings if finding.is_damaged]
    assert "Input/output error" in bad.state
    assert "unless the disk gives them again" in bad.lost[0]
    with pytest.raises(StorageFault, match=f"does not give {stage_name(STAGE)}"):
        repair_storage(tmp_path, survey)
    assert find_query(tmp_path).begun is not None
    (tmp_path / "kept").rename(path)
    assert not survey_storage(tmp_path, no_progress).is_damaged()
