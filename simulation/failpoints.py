"""Failpoints of a simulated machine."""

from __future__ import annotations

from millstream.storage.disk import Failpoints
from simulation.disk import PowerCut


class DeadlyFailpoints(Failpoints):
    """Counts every place that is reached and cuts the power at one of them."""

    def __init__(self, name: str = "", count: int = 1) -> None:
        self.seen: dict[str, int] = {}
        self._name = name
        self._count = count

    def hit(self, name: str) -> None:
        self.seen[name] = self.seen.get(name, 0) + 1
        if name == self._name and self.seen[name] == self._count:
            raise PowerCut(name)
