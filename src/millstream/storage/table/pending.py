"""Changes to a table that wait in memory for the commit.

Most of what a session is sent is acknowledged before a checkpoint comes: its entries are put, changed and deleted within
one file of the log. Here they meet, and what came and went between two commits never reaches the table.

Invariants
- Who reads here reads what the table would say if every change had been made at once.
- The table gets its changes in the order of their keys, all before its own commit, and nobody else changes it.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.table.port import Table

READ_MAX: Final = 4096  # entries kept as the table gave them
READ_SIZE_MAX: Final = 1024  # of one of them


@final
class PendingTable(Table):
    def __init__(self, table: Table) -> None:
        self._table = table
        self._changes: dict[bytes, bytes | None] = {}  # None: it is to go
        self._new: set[bytes] = set()  # of these: which the table does not hold
        self._read: dict[bytes, bytes] = {}  # what it holds, as far as it was asked

    def get(self, key: bytes) -> bytes | None:
        if key in self._changes:
            return self._changes[key]
        known = self._read.get(key)
        if known is not None:
            return known
        found = self._table.get(key)
        if found is not None and len(found) <= READ_SIZE_MAX:
            if len(self._read) >= READ_MAX:
                self._read.clear()
            self._read[key] = found
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._changes[key] = value

    def add(self, key: bytes, value: bytes) -> None:
        """As `put`, for a key that was never there before: deleted again, it is as if nothing had been."""
        self._changes[key] = value
        self._new.add(key)

    def delete(self, key: bytes) -> None:
        if key in self._new:
            self._new.discard(key)
            del self._changes[key]
        else:
            self._changes[key] = None

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        self._make_changes()
        return self._table.items(prefix)

    def is_damaged(self, key: bytes) -> bool:
        return key not in self._changes and self._table.is_damaged(key)

    def find_fault(self) -> str:
        self._make_changes()
        return self._table.find_fault()

    def commit(self) -> None:
        self._make_changes()
        self._table.commit()

    def _make_changes(self) -> None:
        for key in sorted(self._changes):
            value = self._changes[key]
            if value is None:
                self._table.delete(key)
            else:
                self._table.put(key, value)
        self._changes.clear()
        self._new.clear()
        self._read.clear()
