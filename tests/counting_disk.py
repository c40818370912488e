"""A disk that counts what is read of it."""

from __future__ import annotations

from mypy_extensions import i64

from millstream.storage.disk import Disk, DiskFile


class CountingFile(DiskFile):
    def __init__(self, file: DiskFile, disk: CountingDisk) -> None:
        self._file = file
        self._disk = disk

    def read_at(self, offset: i64, size: i64) -> bytes:
        data = self._file.read_at(offset, size)
        self._disk.bytes_read += len(data)
        return data

    def write_at(self, offset: i64, data: bytes) -> None:
        self._file.write_at(offset, data)

    def sync(self) -> None:
        self._file.sync()

    def truncate(self, size: i64) -> None:
        self._file.truncate(size)

    def size(self) -> i64:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class CountingDisk(Disk):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.bytes_read = 0
        self.listed = 0  # how often the names in a folder were asked for

    def create(self, name: str, size: i64) -> DiskFile:
        return CountingFile(self._disk.create(name, size), self)

    def open(self, name: str) -> DiskFile:
        return CountingFile(self._disk.open(name), self)

    def names(self, folder: str) -> list[str]:
        self.listed += 1
        return self._disk.names(folder)

    def make_folder(self, folder: str) -> None:
        self._disk.make_folder(folder)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)

    def remove(self, name: str) -> None:
        self._disk.remove(name)

    def sync_folder(self, folder: str) -> None:
        self._disk.sync_folder(folder)
