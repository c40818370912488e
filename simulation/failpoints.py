"""Failpoints of a simulated machine."""

from __future__ import annotations

from millstream.storage.disk import Failpoints
from simulation.disk import PowerCut, SimulatedDisk


class DeadlyFailpoints(Failpoints):
    """Counts every place that is reached and cuts the power at one of them.

    With a disk to tear, the power goes a little later: in the middle of the next thing that is done to that disk.
    """

    def __init__(self, name: str = "", count: int = 1, torn: SimulatedDisk | None = None) -> None:
        self.seen: dict[str, int] = {}
        self._name = name
        self._count = count
        self._torn = torn

    def hit(self, name: str) -> None:
        self.seen[name] = self.seen.get(name, 0) + 1
        if name == self._name and self.seen[name] == self._count:
            if self._torn is None:
                raise PowerCut(name)
            self._torn.cut_power_at = self._torn.steps + 1
