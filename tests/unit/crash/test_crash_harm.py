"""The harm that is done to a dead broker's files is found by a start, and takes away nothing that was confirmed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from librt.strings import BytesWriter

from crash.harm import find_last_batch, spoil_log, tear_last_batch
from millstream.runtime.disk.data_folder import recover_folder
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import append_record
from millstream.storage.log.write_ahead_log import Batch
from millstream.storage.records import session_records

FILE_SIZE = 512


def write(data_dir: Path, count: int) -> RealDisk:
    """So many sessions, each in a batch of its own, some four to a file."""
    disk = RealDisk(data_dir)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, NoFailpoints(), FILE_SIZE, 1, 0, salt=77)
    for sequence in range(1, count + 1):
        fact = session_records.SessionFact(sequence, "default", f"client-{sequence}", "u", 60, 0)
        writer = BytesWriter()
        append_record(writer, session_records.SESSION_SAVED, session_records.encode_session(fact))
        files.write(Batch(sequence, 1, writer.getvalue()))
    files.close()
    return disk


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_batch_is_cut_and_only_that_one(tmp_path: Path, seed: int) -> None:
    disk = write(tmp_path, 3)
    start, _ = find_last_batch(disk, file_name(1))
    assert tear_last_batch(tmp_path, random.Random(seed))
    found = recover_folder(disk, tmp_path)
    assert found.fold.last_sequence == 2
    assert [cut.start for cut in found.cuts] == [start]
    assert not found.damage


def test_garbage_behind_a_file_is_named_and_takes_nothing_away(tmp_path: Path) -> None:
    disk = write(tmp_path, 12)
    assert spoil_log(tmp_path, random.Random(1))
    found = recover_folder(disk, tmp_path)
    assert found.fold.last_sequence == 12
    assert [damage.name for damage in found.damage] == [file_name(1)]
    assert disk.names("quarantine") == ["quarantine/000000000001.log"]


def test_nothing_is_harmed_where_there_is_nothing_to_harm(tmp_path: Path) -> None:
    RealDisk(tmp_path).make_folder(FOLDER)
    assert not tear_last_batch(tmp_path, random.Random(1))
    assert not spoil_log(tmp_path, random.Random(1))
    disk = write(tmp_path, 1)
    assert not spoil_log(tmp_path, random.Random(1)), "the last file is the one that was being written"
    assert recover_folder(disk, tmp_path).damage == []
