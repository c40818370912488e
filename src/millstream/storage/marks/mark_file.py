"""A mark: one small file beside the log that speaks of all of it, and counts only whole.

    file    magic, version, body; then the checksum of all that

Invariants
- It takes its place in one step: there is the mark from before, the new one or none, unless the disk damages it.
- One that is torn, of another kind or of another version is unclear. What that means is for its owner to say, but it is
  never taken for the body it may once have had.
"""

from __future__ import annotations

import struct
from typing import Final, final

from google_crc32c import value

from millstream.storage.disk import Disk, DiskFault

_ROOT: Final = "."
_HEAD: Final = struct.Struct("<II")
_CHECKSUM: Final = struct.Struct("<I")


class UnclearMark(Exception):
    """There is one, and nobody knows what it says."""


@final
class MarkFile:
    def __init__(self, name: str, magic: int, version: int, body_max: int) -> None:
        self._name = name
        self._unfinished = f"{name}.part"
        self._head = _HEAD.pack(magic, version)
        self._size_max = _HEAD.size + body_max + _CHECKSUM.size

    def encode(self, body: bytes) -> bytes:
        data = self._head + body
        return data + _CHECKSUM.pack(value(data))

    def decode(self, data: bytes) -> bytes:
        end = len(data) - _CHECKSUM.size
        if end < _HEAD.size or len(data) > self._size_max or data[: _HEAD.size] != self._head:
            raise UnclearMark
        if _CHECKSUM.pack(value(data[:end])) != data[end:]:
            raise UnclearMark
        return data[_HEAD.size : end]

    def write(self, disk: Disk, body: bytes) -> None:
        """In place of one that is there."""
        disk.remove(self._unfinished)
        file = disk.create(self._unfinished, 0)
        try:
            file.write_at(0, self.encode(body))
            file.sync()
        finally:
            file.close()
        disk.rename(self._unfinished, self._name)
        disk.sync_folder(_ROOT)

    def find(self, disk: Disk) -> bytes | None:
        """The body; None where there is no mark. DiskFault where nobody can tell: that is not the same."""
        try:
            file = disk.open(self._name)
        except DiskFault as fault:
            if fault.is_missing:
                return None
            raise
        try:
            return self.decode(file.read_at(0, min(int(file.size()), self._size_max + 1)))
        except DiskFault as fault:
            raise UnclearMark from fault
        finally:
            file.close()

    def remove(self, disk: Disk) -> None:
        """For good when it returns."""
        disk.remove(self._name)
        disk.sync_folder(_ROOT)
