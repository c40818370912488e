"""The same facts for a fold, in memory, and for a checkpoint, in a table."""

from __future__ import annotations

from millstream.storage.log.format import Record
from millstream.storage.records.fold import Fold
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.table.check import check_table
from millstream.storage.table.checkpoint import Checkpoint, load_table
from simulation.disk import SimulatedDisk
from simulation.failpoints import DeadlyFailpoints
from simulation.table import SimulatedTable


class FoldAndCheckpoint:
    """Tells both; that they agree is for the test to see."""

    def __init__(self) -> None:
        self.fold = Fold(0)
        self.table = SimulatedTable()
        segments = SegmentWriter(SimulatedDisk(0), DeadlyFailpoints(), 1 << 20)
        self.checkpoint = Checkpoint(self.table, segments)
        self._sequence = 0

    def tell(self, kind: int, body: bytes) -> None:
        self._sequence += 1
        self.fold.apply(Record(self._sequence, kind, body))
        self.checkpoint.apply(Record(self._sequence, kind, body))

    def load(self) -> Fold:
        """What the table holds; nothing in it is bad."""
        self.checkpoint.finish(1)
        loaded = Fold(0)
        load_table(self.table, loaded)
        assert not check_table(self.table).bad
        return loaded
