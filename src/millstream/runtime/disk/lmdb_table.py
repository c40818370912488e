"""The table of small state on LMDB: one write transaction, made safe by its commit.

LMDB trusts its pages, so every value ends with a checksum of key and value, and one entry holds the number and the sum of all
others: neither a flipped bit nor an entry that a damaged page hides goes unseen.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Final

import lmdb
from google_crc32c import extend
from google_crc32c import value as checksum_of

from millstream.runtime.disk.files import RealDisk, refuse
from millstream.storage.disk import DiskFault
from millstream.storage.table.check import CheckedTable
from millstream.storage.table.pages import TablePages
from millstream.storage.table.port import Table

MAP_SIZE: Final = 1 << 40  # address space, not memory: LMDB grows its file as needed
FILE_NAME: Final = "data.mdb"
LOCK_NAME: Final = "lock.mdb"
LOCK_SIZE: Final = 8192
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
REFUSALS: Final = (
    *NO_ROOM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EACCES,
    errno.EROFS,
)
SUM: Final = b"\0sum"
_CHECKSUM: Final = struct.Struct("<I")
_SUM: Final = struct.Struct("<QI")
HINT: Final = "`millstream storage repair` drops what cannot be trusted"


def find_table_fault(folder: Path) -> str:
    """Why the library must not be let at the file in this folder, which would end the process; empty: it may."""
    file = RealDisk(folder).open(FILE_NAME)
    try:
        return TablePages(file).fault
    finally:
        file.close()


class LmdbTable(Table):
    """`is_lenient`: damaged entries are given as they are, for whoever looks for them."""

    def __init__(self, folder: Path, is_lenient: bool = False) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            refuse(error, folder.name)
        self._is_lenient = is_lenient
        file = folder / FILE_NAME
        is_new = _is_absent(file)
        _reserve_lock(folder / LOCK_NAME)
        try:
            self._environment = lmdb.open(str(folder), map_size=MAP_SIZE, max_dbs=0, mode=0o600)
            self._transaction = self._environment.begin(write=True)
            stored: bytes | None = self._transaction.get(SUM)
        except lmdb.Error as error:
            if is_new:
                file.unlink(missing_ok=True)  # part of one would be taken for one that is damaged
            raise DiskFault(f"{folder.name}: {error}") from error
        self._count, self._sum = _SUM.unpack_from(stored) if stored is not None else (0, 0)

    def get(self, key: bytes) -> bytes | None:
        stored: bytes | None = self._transaction.get(key)
        return None if stored is None else self._open(key, stored)

    def put(self, key: bytes, value: bytes) -> None:
        self._forget(key)
        checksum = _seal(key, value)
        self._count += 1
        self._sum ^= checksum
        self._write(key, value + _CHECKSUM.pack(checksum))

    def delete(self, key: bytes) -> None:
        if self._forget(key):
            self._transaction.delete(key)

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with self._transaction.cursor() as cursor:
            if not cursor.set_range(prefix):
                return found
            for key, stored in cursor:
                if not key.startswith(prefix):
                    break
                if key != SUM:
                    found.append((bytes(key), self._open(bytes(key), bytes(stored))))
        return found

    def is_damaged(self, key: bytes) -> bool:
        stored: bytes | None = self._transaction.get(key)
        return stored is not None and not _is_sealed(key, stored)

    def find_fault(self) -> str:
        """Why the whole cannot be trusted although each entry can; empty: it can."""
        count, total = self._add_up()
        if (count, total) == (self._count, self._sum):
            return ""
        return f"it holds {count} entries where it should hold {self._count}, or others than it should"

    def _add_up(self) -> tuple[int, int]:
        count, total = 0, 0
        with self._transaction.cursor() as cursor:
            for key, stored in cursor:
                if bytes(key) != SUM and len(stored) >= _CHECKSUM.size:
                    count += 1
                    total ^= _CHECKSUM.unpack_from(stored, len(stored) - _CHECKSUM.size)[0]
        return count, total

    def commit(self) -> None:
        self._write(SUM, _SUM.pack(self._count, self._sum))
        try:
            self._transaction.commit()
            self._transaction = self._environment.begin(write=True)
        except lmdb.Error as error:
            raise DiskFault(f"state: {error}") from error

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()

    def _forget(self, key: bytes) -> bool:
        """Take it out of the sum; whether it is there."""
        old: bytes | None = self._transaction.get(key)
        if old is not None and len(old) >= _CHECKSUM.size:
            self._count -= 1
            self._sum ^= _CHECKSUM.unpack_from(old, len(old) - _CHECKSUM.size)[0]
        return old is not None

    def _write(self, key: bytes, stored: bytes) -> None:
        try:
            self._transaction.put(key, stored)
        except lmdb.Error as error:
            raise DiskFault(
                f"state: {error}", isinstance(error, lmdb.DiskError | lmdb.MapFullError)
            ) from error

    def _open(self, key: bytes, stored: bytes) -> bytes:
        if not self._is_lenient and not _is_sealed(key, stored):
            raise DiskFault(f"state: the entry {key[:40].hex()} is damaged; {HINT}")
        return stored[: -_CHECKSUM.size]


def _is_absent(path: Path) -> bool:
    """Or empty. What cannot be looked at, and a link, is there."""
    try:
        return path.lstat().st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _reserve_lock(path: Path) -> None:
    """The library writes to this file through memory: without room for it that would end the process by a signal."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_blocks * 512 < LOCK_SIZE:
                os.posix_fallocate(descriptor, 0, LOCK_SIZE)
        finally:
            os.close(descriptor)
    except OSError as error:
        name = f"{path.parent.name}/{path.name}"
        raise DiskFault(f"{name}: {error.strerror or error}", error.errno in NO_ROOM) from error


def is_of_system(fault: DiskFault) -> bool:
    """Whether the system let nobody at the table, which says nothing about what is in it."""
    # compiled code keeps no cause: there it is what was being handled when the fault was raised
    error = fault.__cause__ or fault.__context__
    return isinstance(error, OSError) or any([os.strerror(number) in fault.text for number in REFUSALS])


def open_entry(key: bytes, stored: bytes) -> bytes | None:
    """The value of an entry as the file has it; None if it is damaged."""
    return stored[: -_CHECKSUM.size] if _is_sealed(key, stored) else None


def salvage_entries(folder: Path) -> tuple[dict[bytes, bytes], bool]:
    """(what can be read of a table that must not be opened and has the right checksum, whether that is of its last commit)."""
    try:
        file = RealDisk(folder).open(FILE_NAME)
    except DiskFault as fault:
        if not fault.is_missing:
            raise
        return {}, False
    try:
        pages = TablePages(file, keeps_entries=True)
    finally:
        file.close()
    entries: dict[bytes, bytes] = {}
    for key, stored in pages.entries:
        value = open_entry(key, stored)
        if key != SUM and key not in entries and value is not None:
            entries[key] = value
    return entries, pages.is_newest


def find_good_entries(folder: Path, checked: CheckedTable) -> dict[bytes, bytes]:
    """Of a table that may be opened and has bad ones."""
    entries = salvage_entries(folder)[0]
    for entry in checked.bad:
        entries.pop(entry.key, None)
    return entries


def _seal(key: bytes, value: bytes) -> int:
    checksum: int = extend(checksum_of(key), value)
    return checksum


def _is_sealed(key: bytes, stored: bytes) -> bool:
    if len(stored) < _CHECKSUM.size:
        return False
    found: int = _CHECKSUM.unpack_from(stored, len(stored) - _CHECKSUM.size)[0]
    return found == _seal(key, stored[: -_CHECKSUM.size])
