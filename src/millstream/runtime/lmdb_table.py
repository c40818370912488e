"""The table of small state on LMDB: one write transaction, made safe by its commit."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import lmdb

from millstream.storage.checkpoint import Table
from millstream.storage.disk import DiskFault

MAP_SIZE: Final = 1 << 40  # address space, not memory: LMDB grows its file as needed


class LmdbTable(Table):
    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._environment = lmdb.open(str(folder), map_size=MAP_SIZE, max_dbs=0, mode=0o600)
            self._transaction = self._environment.begin(write=True)
        except lmdb.Error as error:
            raise DiskFault(f"{folder.name}: {error}") from error

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._transaction.get(key)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        try:
            self._transaction.put(key, value)
        except lmdb.Error as error:
            raise DiskFault(
                f"state: {error}", isinstance(error, lmdb.DiskError | lmdb.MapFullError)
            ) from error

    def delete(self, key: bytes) -> None:
        self._transaction.delete(key)

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with self._transaction.cursor() as cursor:
            if not cursor.set_range(prefix):
                return found
            for key, value in cursor:
                if not key.startswith(prefix):
                    break
                found.append((bytes(key), bytes(value)))
        return found

    def commit(self) -> None:
        try:
            self._transaction.commit()
            self._transaction = self._environment.begin(write=True)
        except lmdb.Error as error:
            raise DiskFault(f"state: {error}") from error

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()
