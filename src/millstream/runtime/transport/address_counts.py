"""How often something happened, by address, between two looks."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

ADDRESSES_MAX: Final = 10_000  # counted one by one; more of them count in the total only


@final
class AddressCounts:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.total: i64 = 0

    def add(self, address: str, times: i64 = 1) -> None:
        self.total += times
        count = self._counts.get(address, 0)
        if count or len(self._counts) < ADDRESSES_MAX:
            self._counts[address] = count + int(times)

    def take(self) -> dict[str, int]:
        counts = self._counts
        self._counts = {}
        self.total = 0
        return counts
