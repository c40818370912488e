"""What a data directory lacks is named by its backup and by the restore of that; what a backup lacks is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, ignore, make_directory

from millstream.maintenance.archive import list_files, write_archive
from millstream.maintenance.backup import make_backup, restore_backup
from millstream.maintenance.backup_manifest import Manifest
from millstream.maintenance.pin import pin_files
from millstream.runtime.disk.data_folder import StorageFault
from millstream.storage.manifest import TABLE_FILE


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    return make_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def made(template: DataDirectory, tmp_path: Path) -> DataDirectory:
    return copy_directory(template, tmp_path / "data")


def newest_log(made: DataDirectory) -> Path:
    return sorted((made.folder / "log").glob("*.log"))[-1]


def test_a_backup_of_a_whole_directory_names_nothing(made: DataDirectory, tmp_path: Path) -> None:
    assert make_backup(made.folder, tmp_path / "backup.tar", ignore).damage == []
    assert restore_backup(tmp_path / "backup.tar", tmp_path / "new", ignore).damage == []


@pytest.mark.parametrize("number", [STREAM, WORK])
@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_missing_segment_is_named_by_the_backup_and_by_its_restore(
    made: DataDirectory, tmp_path: Path, number: int, at: int
) -> None:
    path = made.segments(number)[at]
    path.unlink()
    name = f"{path.relative_to(made.folder)} is missing"
    assert name in make_backup(made.folder, tmp_path / "backup.tar", ignore).damage
    assert name in restore_backup(tmp_path / "backup.tar", tmp_path / "new", ignore).damage


def test_a_segment_of_another_directory_is_named_and_not_taken_along(
    made: DataDirectory, tmp_path: Path
) -> None:
    path = made.segments(WORK)[1]
    path.write_bytes(made.segments(STREAM)[1].read_bytes())
    (sentence,) = make_backup(made.folder, tmp_path / "backup.tar", ignore).damage
    assert str(path.relative_to(made.folder)) in sentence
    restore_backup(tmp_path / "backup.tar", tmp_path / "new", ignore)
    assert not (tmp_path / "new" / path.relative_to(made.folder)).exists()


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_of_the_log_is_named_by_the_backup(
    made: DataDirectory, tmp_path: Path, content: bytes | None
) -> None:
    path = newest_log(made)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (sentence,) = make_backup(made.folder, tmp_path / "backup.tar", ignore).damage
    assert path.name in sentence


def test_a_missing_manifest_is_named_by_the_backup(made: DataDirectory, tmp_path: Path) -> None:
    (made.folder / "manifest").unlink()
    assert make_backup(made.folder, tmp_path / "backup.tar", ignore).damage == ["manifest is missing"]


def test_a_backup_that_lacks_a_segment_its_table_names_is_refused(
    made: DataDirectory, tmp_path: Path
) -> None:
    """As one does that was made of such a directory by an earlier release."""
    lacking = str(made.segments(WORK)[1].relative_to(made.folder))
    with pin_files(made.folder) as (folder, plan), (tmp_path / "backup.tar").open("wb") as out:
        planned = [file for file in plan.files if file.name != lacking]
        files = list_files(folder, planned, lambda count: None)
        write_archive(out, False, Manifest("1", 1, plan.last_sequence, files, []), folder, lambda count: None)
    with pytest.raises(StorageFault, match=f"{lacking} is missing"):
        restore_backup(tmp_path / "backup.tar", tmp_path / "new", ignore)
    assert not (tmp_path / "new").exists()


def test_what_is_half_repaired_is_not_backed_up(made: DataDirectory, tmp_path: Path) -> None:
    (made.folder / "repair.unfinished").touch()
    with pytest.raises(StorageFault, match="did not finish"):
        make_backup(made.folder, tmp_path / "backup.tar", ignore)


def test_a_directory_whose_table_is_missing_is_not_backed_up(made: DataDirectory, tmp_path: Path) -> None:
    (made.folder / TABLE_FILE).unlink()
    with pytest.raises(StorageFault, match=f"{TABLE_FILE} is missing"):
        make_backup(made.folder, tmp_path / "backup.tar", ignore)
    assert not (tmp_path / "backup.tar").exists()


def test_a_directory_of_which_nothing_was_folded_yet_is_backed_up(tmp_path: Path) -> None:
    made = DataDirectory(tmp_path / "data")
    made.start()
    made.save_sessions(3)
    made.stop()
    assert make_backup(made.folder, tmp_path / "backup.tar", ignore).damage == []
    assert restore_backup(tmp_path / "backup.tar", tmp_path / "new", ignore).counts["sessions"] == 3
