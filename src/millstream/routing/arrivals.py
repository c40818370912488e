"""Members of share groups that have come back: told to the groups when they look for one that is present.

A bounded list: who has not looked for very long has to look at all of its members again.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet

KEPT_MAX: Final[i64] = 4096


@final
class Arrivals:
    """Each has a number; `first` is that of the first one that is kept."""

    def __init__(self) -> None:
        self.first: i64 = 0
        self.outlets: list[Outlet] = []

    def add(self, outlet: Outlet) -> None:
        if len(self.outlets) >= KEPT_MAX:
            self.first += len(self.outlets)
            self.outlets = []
        self.outlets.append(outlet)

    def end(self) -> i64:
        return self.first + len(self.outlets)
