"""The real broker on a disk that misbehaves on command: `python -m crash.faulty serve`.

The file named by CRASH_DISK_CONTROL says how: `full` (no room to write or create), `io_error` (writes fail),
`read_only` (writes fail, as on a file system that was mounted anew after an error), `sync_error` (syncs fail), `stall` (writes and syncs do not return); anything else, or no file: as it should be.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from mypy_extensions import i64

import millstream.app.storage
from millstream.cli import main
from millstream.runtime.disk.files import RealDisk
from millstream.storage.disk import DiskFault, DiskFile

VARIABLE: Final = "CRASH_DISK_CONTROL"
FULL: Final = "full"
IO_ERROR: Final = "io_error"
READ_ONLY: Final = "read_only"
SYNC_ERROR: Final = "sync_error"
STALL: Final = "stall"
POLL_S: Final = 0.01


class Trouble:
    """Asked before every write and sync."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def before_write(self) -> None:
        self._wait_out_stall()
        kind = self._kind()
        if kind == FULL:
            raise DiskFault("No space left on device (planted)", True)
        if kind == IO_ERROR:
            raise DiskFault("Input/output error (planted)")
        if kind == READ_ONLY:
            raise DiskFault("Read-only file system (planted)")

    def before_sync(self) -> None:
        self._wait_out_stall()
        if self._kind() == SYNC_ERROR:
            raise DiskFault("Input/output error at sync (planted)", is_sync=True)

    def _wait_out_stall(self) -> None:
        while self._kind() == STALL:
            time.sleep(POLL_S)

    def _kind(self) -> str:
        try:
            return self._control.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""


class FaultyFile(DiskFile):
    def __init__(self, file: DiskFile, trouble: Trouble) -> None:
        self._file = file
        self._trouble = trouble

    def write_at(self, offset: i64, data: bytes) -> None:
        self._trouble.before_write()
        self._file.write_at(offset, data)

    def read_at(self, offset: i64, size: i64) -> bytes:
        return self._file.read_at(offset, size)

    def sync(self) -> None:
        self._trouble.before_sync()
        self._file.sync()

    def truncate(self, size: i64) -> None:
        self._trouble.before_write()
        self._file.truncate(size)

    def size(self) -> i64:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class FaultyDisk(RealDisk):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._trouble = Trouble(Path(os.environ[VARIABLE]))

    def create(self, name: str, size: i64) -> DiskFile:
        self._trouble.before_write()
        return FaultyFile(super().create(name, size), self._trouble)

    def open(self, name: str) -> DiskFile:
        return FaultyFile(super().open(name), self._trouble)

    def sync_folder(self, folder: str) -> None:
        self._trouble.before_sync()
        super().sync_folder(folder)


if __name__ == "__main__":
    setattr(millstream.app.storage, "RealDisk", FaultyDisk)  # noqa: B010 -- a name of that module
    main()
