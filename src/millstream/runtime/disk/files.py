"""The disk port on real files."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from mypy_extensions import i64, mypyc_attr

from millstream.storage.disk import Disk, DiskFault, DiskFile

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refuse(error: OSError, name: str) -> NoReturn:
    """What the system has refused, as a fault of the disk."""
    raise DiskFault(
        f"{name}: {error.strerror or error}", error.errno in _FULL, is_missing=error.errno == errno.ENOENT
    ) from error


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Of what cannot be looked at whoever opens it is told why."""
    try:
        return entry.is_file()
    except OSError:
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class RealFile(DiskFile):
    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name

    def write_at(self, offset: i64, data: bytes) -> None:
        rest: bytes | memoryview = data
        at = int(offset)
        try:
            while (written := os.pwrite(self._descriptor, rest, at)) < len(rest):
                rest = memoryview(rest)[written:]
                at += written
        except OSError as error:
            refuse(error, self._name)

    def write_parts(self, offset: i64, head: bytes, rest: bytes) -> None:
        """Without a copy of what may be large."""
        try:
            written = os.pwritev(self._descriptor, (head, rest), int(offset))
        except OSError as error:
            refuse(error, self._name)
        if written < len(head) + len(rest):
            self.write_at(offset + written, (head + rest)[written:])

    def read_at(self, offset: i64, size: i64) -> bytes:
        parts: list[bytes] = []
        at, left = int(offset), int(size)
        try:
            while left > 0:
                part = os.pread(self._descriptor, min(left, 1 << 26), at)
                if not part:
                    break
                parts.append(part)
                at += len(part)
                left -= len(part)
        except OSError as error:
            refuse(error, self._name)
        return b"".join(parts)

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:  # never "try again": the system may have forgotten what it could not write
            raise DiskFault(f"{self._name}: {error.strerror or error}", is_sync=True) from error

    def descriptor(self) -> i64:
        return self._descriptor

    def truncate(self, size: i64) -> None:
        try:
            os.ftruncate(self._descriptor, int(size))
        except OSError as error:
            refuse(error, self._name)

    def size(self) -> i64:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            refuse(error, self._name)

    def close(self) -> None:
        try:
            os.close(self._descriptor)
        except OSError as error:  # what could not be written until now shows here on some file systems
            raise DiskFault(f"{self._name}: {error.strerror or error}", is_sync=True) from error


@mypyc_attr(allow_interpreted_subclasses=True)
class RealDisk(Disk):
    """Everything below one directory, which belongs to this process alone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unfinished: dict[str, None] = {}  # files without their room that could not be removed again

    def create(self, name: str, size: i64) -> DiskFile:
        path = self._root / name
        if name in self._unfinished:
            self.remove(name)
            del self._unfinished[name]
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            refuse(error, name)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, int(size))
        except OSError as error:
            os.close(descriptor)
            self._unfinished[name] = None
            with suppress(OSError):  # the first fault is told, and the next try removes what is left of it
                path.unlink(missing_ok=True)
                del self._unfinished[name]
            refuse(error, name)
        return RealFile(descriptor, name)

    def open(self, name: str) -> DiskFile:
        try:
            return RealFile(os.open(self._root / name, os.O_RDWR | os.O_CLOEXEC), name)
        except OSError as error:
            refuse(error, name)

    def names(self, folder: str) -> list[str]:
        path = self._root / folder
        try:
            entries = list(os.scandir(path))
        except FileNotFoundError as error:
            if os.path.islink(path):
                raise DiskFault(f"{folder}: it is a link to what is not there") from error
            return []
        except OSError as error:
            refuse(error, folder)
        return sorted([f"{folder}/{entry.name}" for entry in entries if _may_be_file(entry)])

    def make_folder(self, folder: str) -> None:
        try:
            (self._root / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            refuse(error, folder)
        parent = Path(folder).parent
        while True:
            self.sync_folder(str(parent))
            if parent == Path("."):
                return
            parent = parent.parent

    def rename(self, old: str, new: str) -> None:
        try:
            os.replace(self._root / old, self._root / new)
        except OSError as error:
            refuse(error, old)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self._root / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            refuse(error, name)

    def sync_folder(self, folder: str) -> None:
        try:
            descriptor = os.open(self._root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:  # nothing was synced: no descriptor, or no folder
            refuse(error, folder)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise DiskFault(f"{folder}: {error.strerror or error}", is_sync=True) from error
        finally:
            os.close(descriptor)

    def remove_folder(self, folder: str) -> bool:
        try:
            (self._root / folder).rmdir()
        except OSError:
            return False  # not empty, or not there
        return True
