"""What a connection has sent and the broker has not handed on: it waits for its share of a turn."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class ReceiveBuffer:
    def __init__(self, data: bytes) -> None:
        self._parts = [data]
        self._at: i64 = 0  # where what was not taken begins in the first of them

    def append(self, data: bytes) -> None:
        self._parts.append(data)

    def is_empty(self) -> bool:
        return not self._parts

    def size(self) -> i64:
        size: i64 = -self._at
        for data in self._parts:
            size += len(data)
        return size

    def take(self, size: i64) -> bytes:
        """The next piece, of so many bytes or less."""
        data = self._parts[0]
        at: i64 = self._at
        end: i64 = at + size
        if end < len(data):
            self._at = end
            return data[at:end]
        self._at = 0
        del self._parts[0]
        return data[at:] if at else data
