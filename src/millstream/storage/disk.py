"""The port to files. Real ones and a simulated disk that forgets, tears and fills implement it alike.

Names are relative to the data directory, with `/` between folder and file. A write is in the page cache when the
call returns; it is safe after `sync`. A new, renamed or removed file is safe after `sync_folder` of its folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr


class DiskFault(Exception):
    """The disk refused. `is_full` when room is all that is missing; then the same call may succeed later.

    `is_sync`: what was written before may be lost although a later sync says nothing. It must never be tried again.
    `is_missing`: there is no such file. Only that means so: one that cannot be looked at is not missing.
    """

    def __init__(
        self, text: str, is_full: bool = False, is_sync: bool = False, is_missing: bool = False
    ) -> None:
        super().__init__(text)
        self.text = text
        self.is_full = is_full
        self.is_sync = is_sync
        self.is_missing = is_missing


@mypyc_attr(allow_interpreted_subclasses=True)
class DiskFile(ABC):
    @abstractmethod
    def write_at(self, offset: i64, data: bytes) -> None: ...

    def write_parts(self, offset: i64, head: bytes, rest: bytes) -> None:
        """One behind the other."""
        self.write_at(offset, head + rest)

    @abstractmethod
    def read_at(self, offset: i64, size: i64) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    @abstractmethod
    def sync(self) -> None: ...

    def descriptor(self) -> i64:
        """What the system knows it by, for those who sync it in another way; -1: it has none."""
        return -1

    @abstractmethod
    def truncate(self, size: i64) -> None: ...

    @abstractmethod
    def size(self) -> i64: ...

    @abstractmethod
    def close(self) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Disk(ABC):
    @abstractmethod
    def create(self, name: str, size: i64) -> DiskFile:
        """A new file of `size` zero bytes, its room reserved; an existing one is a fault."""

    @abstractmethod
    def open(self, name: str) -> DiskFile: ...

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Full names of the files in a folder, sorted; none when there is no such folder."""

    @abstractmethod
    def make_folder(self, folder: str) -> None: ...

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    @abstractmethod
    def remove(self, name: str) -> None: ...

    @abstractmethod
    def sync_folder(self, folder: str) -> None: ...

    def remove_folder(self, folder: str) -> bool:
        """Whether an empty folder went. One that stays does no harm, so a disk need not."""
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class Failpoints(ABC):
    """Named places where a test may let the process die. Outside tests they do nothing."""

    @abstractmethod
    def hit(self, name: str) -> None: ...
