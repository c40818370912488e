"""A table in memory: of entries that are good, where nobody may change the file they were read from."""

from __future__ import annotations

from bisect import bisect_left
from typing import final

from millstream.storage.table.port import Table


@final
class EntryTable(Table):
    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries = entries
        self._keys: list[bytes] | None = None  # in order; None: not known

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self._entries:
            self._keys = None
        self._entries[key] = value

    def delete(self, key: bytes) -> None:
        if self._entries.pop(key, None) is not None:
            self._keys = None

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        if self._keys is None:
            self._keys = sorted(self._entries)
        found: list[tuple[bytes, bytes]] = []
        for at in range(bisect_left(self._keys, prefix), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                break
            found.append((key, self._entries[key]))
        return found

    def commit(self) -> None:
        """Nothing lasts."""

    def close(self) -> None:
        """Nothing is held."""
