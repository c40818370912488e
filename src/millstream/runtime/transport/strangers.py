"""Connections that have not logged in, by address: how many there are, and who gives way when there is no room.

A flood of connections that say nothing takes all places within a moment. So when they are all taken, the address that has
most of them gives up its oldest one for a newcomer from an address that has fewer.

Invariants
- Counts are by the key of an address (`address_key`): an IPv6 network counts as one.
- Which address has most is known at once, however many addresses there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64


@final
class Strangers:
    def __init__(self) -> None:
        self.count: i64 = 0
        self._counts: dict[str, int] = {}
        self._crowds: dict[int, dict[str, None]] = {}  # addresses by how many they have
        self._largest: i64 = 0
        self._leaving: dict[str, dict[object, Callable[[], None]]] = {}  # who can give way, the oldest first

    def of(self, key: str) -> int:
        return self._counts.get(key, 0)

    def add(self, key: str, stranger: object, give_way: Callable[[], None] | None) -> None:
        """`give_way` closes it; None: it cannot be asked to."""
        self.count += 1
        self._move(key, self._counts.get(key, 0), 1)
        if give_way is not None:
            self._leaving.setdefault(key, {})[stranger] = give_way

    def keep(self, key: str, stranger: object) -> None:
        """It has got so far that it need not give way any more; it still counts."""
        leaving = self._leaving.get(key)
        if leaving is not None:
            leaving.pop(stranger, None)
            if not leaving:
                del self._leaving[key]

    def remove(self, key: str, stranger: object) -> None:
        """It has logged in, or left."""
        self.keep(key, stranger)
        self.count -= 1
        self._move(key, self._counts[key], -1)

    def find_oldest_beside(self, key: str) -> Callable[[], None] | None:
        """What makes the oldest stranger of the most crowded address give way, if that has two more than this one at least."""
        if self._largest < self._counts.get(key, 0) + 2:
            return None
        for crowd in self._crowds[int(self._largest)]:
            leaving = self._leaving.get(crowd)
            if leaving:
                return leaving[next(iter(leaving))]
        return None

    def _move(self, key: str, count: i64, change: i64) -> None:
        after: i64 = count + change
        if count:
            crowd = self._crowds[int(count)]
            del crowd[key]
            if not crowd:
                del self._crowds[int(count)]
        if after:
            self._counts[key] = int(after)
            self._crowds.setdefault(int(after), {})[key] = None
        else:
            del self._counts[key]
        if after > self._largest or int(self._largest) not in self._crowds:
            self._largest = after  # it changes by one
