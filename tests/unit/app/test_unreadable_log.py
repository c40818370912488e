"""A file of the log that the disk does not give: a start and `verify` name it, and `verify` goes on with what is behind it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, make_directory
from mypy_extensions import i64

from millstream.runtime.disk.data_folder import StorageFault
from millstream.runtime.disk.files import RealDisk
from millstream.storage.disk import DiskFault, DiskFile

COUNT = 50


class BadFile(DiskFile):
    """It can be opened and not read, as one on a bad block."""

    def __init__(self, file: DiskFile, name: str) -> None:
        self._file = file
        self._name = name

    def write_at(self, offset: i64, data: bytes) -> None:
        raise AssertionError("nobody writes to a file that cannot be read")

    def read_at(self, offset: i64, size: i64) -> bytes:
        raise DiskFault(f"{self._name}: {os.strerror(errno.EIO)}")

    def sync(self) -> None: ...

    def truncate(self, size: i64) -> None:
        raise AssertionError("nobody cuts a file that cannot be read")

    def size(self) -> i64:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class BadDisk(RealDisk):
    def __init__(self, root: Path, bad: str) -> None:
        super().__init__(root)
        self._bad = bad

    def open(self, name: str) -> DiskFile:
        file = super().open(name)
        return BadFile(file, name) if name == self._bad else file


@pytest.fixture
def made(tmp_path: Path) -> DataDirectory:
    """Three files of the log: the middle one holds a record of the work queue."""
    made = make_directory(tmp_path / "data")
    made.start()
    made.append(WORK, 1)
    made.seal()
    made.append(STREAM, 1)
    made.stop()
    return made


def logs(made: DataDirectory) -> list[str]:
    return [f"log/{path.name}" for path in sorted((made.folder / "log").glob("*.log"))]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_verify_and_a_start_name_a_file_that_cannot_be_read(made: DataDirectory, at: int) -> None:
    bad = logs(made)[at]
    made.disk = BadDisk(made.folder, bad)
    (found,) = made.damaged()
    assert found.file == bad
    assert "Input/output error" in found.state
    assert "unless the disk gives them again" in found.lost[0]
    before = made.digest()
    with pytest.raises(DiskFault, match=f"{bad} cannot be read.*Input/output error"):
        made.start()
    assert made.digest() == before


def test_verify_reads_on_behind_a_file_that_cannot_be_read(made: DataDirectory) -> None:
    first, _, last = logs(made)
    path = made.folder / last
    data = bytearray(path.read_bytes())
    data[data.index(b"%d of %d" % (COUNT, STREAM))] ^= 0xFF
    path.write_bytes(data)
    missing = made.segments(WORK)[1]
    missing.unlink()
    made.disk = BadDisk(made.folder, first)
    named = {found.file for found in made.damaged()}
    assert named >= {first, str(missing.relative_to(made.folder))}
    assert [found.count for found in made.survey().findings if found.file == last] == [0]


def test_a_repair_changes_nothing_while_the_disk_does_not_give_a_file_of_the_log(made: DataDirectory) -> None:
    made.segments(WORK)[1].unlink()
    made.disk = BadDisk(made.folder, logs(made)[1])
    before = made.digest()
    with pytest.raises(StorageFault, match="does not give log/"):
        made.repair()
    assert made.digest() == before


@pytest.mark.parametrize("gone", [["state/data.mdb"], ["state/data.mdb", "manifest"]])
def test_it_is_named_beside_a_table_that_is_gone(made: DataDirectory, gone: list[str]) -> None:
    for name in gone:
        (made.folder / name).unlink()
    made.disk = BadDisk(made.folder, logs(made)[0])
    assert logs(made)[0] in {found.file for found in made.damaged()}


def test_offsets_given_in_a_file_that_was_moved_away_are_not_given_again(
    made: DataDirectory, tmp_path: Path
) -> None:
    good = copy_directory(made, tmp_path / "good")
    good.start()
    (made.folder / logs(made)[1]).rename(tmp_path / "bad.log")
    made.repair()
    made.start()
    for queue in (STREAM, WORK):
        assert made.next_offset(queue) >= good.next_offset(queue)
