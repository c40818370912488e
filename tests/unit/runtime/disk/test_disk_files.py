"""Real files, beyond the contract: rights, limits of the system, and what is never called a lack of room."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.runtime.disk.files import RealDisk, RealFile
from millstream.storage.disk import DiskFault


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    disk = RealDisk(tmp_path)
    disk.make_folder("log")
    return disk


SIZE_MAX = 8192


@contextmanager
def small_files() -> Iterator[None]:
    """This process may not write files beyond SIZE_MAX; the signal that goes with it is ignored by Python. Only around the
    calls in question: the report of the tests may be a file as well."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_MAX, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_files_and_folders_are_for_their_owner_only(disk: RealDisk, tmp_path: Path) -> None:
    disk.create("log/a", 10).close()
    assert stat.S_IMODE((tmp_path / "log" / "a").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) & 0o077 == 0


def test_room_is_reserved_when_a_file_is_made(disk: RealDisk, tmp_path: Path) -> None:
    disk.create("log/a", 1 << 20).close()
    assert (tmp_path / "log" / "a").stat().st_blocks * 512 >= 1 << 20


def test_a_file_without_room_is_not_left_behind(disk: RealDisk) -> None:
    with small_files(), pytest.raises(DiskFault) as caught:
        disk.create("log/a", SIZE_MAX + 1)
    assert caught.value.is_full
    assert disk.names("log") == []
    with small_files():
        disk.create("log/a", SIZE_MAX).close()


def test_a_write_without_room_is_called_full(disk: RealDisk) -> None:
    file = disk.create("log/a", SIZE_MAX)
    with small_files(), pytest.raises(DiskFault) as caught:
        file.write_at(SIZE_MAX, b"x")
    assert caught.value.is_full
    with small_files(), pytest.raises(DiskFault) as caught:
        file.write_parts(SIZE_MAX - 1, b"x", b"y")
    assert caught.value.is_full
    file.close()


def test_a_fault_names_the_file_and_not_the_machine(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(DiskFault) as caught:
        disk.open("log/missing")
    assert "log/missing" in caught.value.text
    assert str(tmp_path) not in caught.value.text


def test_a_file_that_cannot_be_opened_is_not_missing(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "log" / "loop").symlink_to("loop")
    disk.make_folder("log/folder")
    for name in ("log/loop", "log/folder"):
        with pytest.raises(DiskFault, match=name) as caught:
            disk.open(name)
        assert not caught.value.is_missing


def test_a_descriptor_gone_bad_is_a_fault_and_not_a_lack_of_room(disk: RealDisk, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(descriptor)
    file = RealFile(descriptor, "log/a")
    for call in (
        lambda: file.write_at(0, b"x"),
        lambda: file.read_at(0, 1),
        file.sync,
        lambda: file.truncate(1),
    ):
        with pytest.raises(DiskFault) as caught:
            call()
        assert not caught.value.is_full


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_sync_is_never_a_lack_of_room(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What is full is tried again; a sync that failed must not be."""

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    file = disk.create("log/a", 10)
    monkeypatch.setattr(os, "fdatasync", refuse)
    monkeypatch.setattr(os, "fsync", refuse)
    for call in (file.sync, lambda: disk.sync_folder("log")):
        with pytest.raises(DiskFault) as caught:
            call()
        assert caught.value.is_sync
        assert not caught.value.is_full
    monkeypatch.undo()
    file.close()


def test_every_new_folder_is_made_safe_in_its_own_parent(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    disk.make_folder("queues/7")
    assert {str(tmp_path), str(tmp_path / "queues")} <= set(synced)


def test_large_data_is_written_and_read_whole(disk: RealDisk) -> None:
    data = bytes(range(256)) * 4096 * 4
    file = disk.create("log/a", 0)
    file.write_at(3, data)
    assert file.read_at(3, len(data) + 10) == data
    file.close()


def test_what_the_system_takes_in_pieces_is_written_whole(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    file = disk.create("log/a", 0)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: real(descriptor, data[:3], at))
    file.write_at(2, b"0123456789")
    assert file.read_at(2, 20) == b"0123456789"
    file.close()


@pytest.mark.parametrize("taken", [0, 3, 4, 7, 10])
def test_two_parts_are_written_one_behind_the_other_however_many_pieces_the_system_takes(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    real = os.pwrite
    file = disk.create("log/a", 0)
    monkeypatch.setattr(
        os, "pwritev", lambda descriptor, parts, at: real(descriptor, b"".join(parts)[:taken], at)
    )
    file.write_parts(2, b"0123", b"456789")
    monkeypatch.undo()
    assert file.read_at(2, 20) == b"0123456789"
    file.write_parts(12, b"ab", b"")
    assert file.read_at(2, 20) == b"0123456789ab"
    file.close()


def test_a_file_that_gets_no_room_and_cannot_be_removed_is_a_fault_of_the_disk_and_made_again_later(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_room(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def refuse_removal(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as planted:
        planted.setattr(os, "posix_fallocate", refuse_room)
        planted.setattr(Path, "unlink", refuse_removal)
        with pytest.raises(DiskFault) as caught:
            disk.create("log/a", 4096)
    assert "Read-only file system" in caught.value.text
    disk.create("log/a", 4096).close()
    assert disk.names("log") == ["log/a"]
