"""A table of small state in memory: changes are one atom, safe from `commit` on."""

from __future__ import annotations

from bisect import bisect_left

from millstream.storage.table.port import Table


class SimulatedTable(Table):
    def __init__(self, content: dict[bytes, bytes] | None = None) -> None:
        self._safe: dict[bytes, bytes] = dict(content or {})
        self._current = dict(self._safe)

    def get(self, key: bytes) -> bytes | None:
        return self._current.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._current[key] = value

    def delete(self, key: bytes) -> None:
        self._current.pop(key, None)

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        keys = sorted(self._current)
        first = bisect_left(keys, prefix)
        found: list[tuple[bytes, bytes]] = []
        for key in keys[first:]:
            if not key.startswith(prefix):
                break
            found.append((key, self._current[key]))
        return found

    def commit(self) -> None:
        self._safe = dict(self._current)

    def crash(self) -> SimulatedTable:
        return SimulatedTable(self._safe)

    def content(self) -> dict[bytes, bytes]:
        return dict(self._safe)
