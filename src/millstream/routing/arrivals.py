"""Members of share groups that have come back: told to the groups when they look for one that is present.

Only those that are still there: what is remembered here lives on, with its subscriptions and whatever it holds, and one
object that lives on keeps a whole arena of memory. Bounded: who has not looked for very long has to look at all of its
members again.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet

KEPT_MAX: Final[i64] = 4096


@final
class Arrivals:
    """Each has a number; from `first` on all are kept that have not left."""

    def __init__(self) -> None:
        self.first: i64 = 0
        self._end: i64 = 0
        self._numbers: dict[Outlet, int] = {}  # in the order they came

    def add(self, outlet: Outlet) -> None:
        numbers = self._numbers
        numbers.pop(outlet, None)
        if len(numbers) >= KEPT_MAX:
            self.first = self._end
            numbers.clear()
        numbers[outlet] = int(self._end)
        self._end += 1

    def forget(self, outlet: Outlet) -> None:
        """It has left; it will be told again when it comes back."""
        self._numbers.pop(outlet, None)

    def count(self) -> i64:
        return len(self._numbers)

    def end(self) -> i64:
        return self._end

    def since(self, number: i64) -> list[Outlet]:
        """Those that came from that number on, which is not below `first`."""
        found: list[Outlet] = []
        for outlet in reversed(self._numbers):
            if self._numbers[outlet] < number:
                break
            found.append(outlet)
        found.reverse()
        return found
