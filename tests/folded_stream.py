"""A queue of the kind stream as checkpoints have left it on a simulated disk."""

from __future__ import annotations

from millstream.model.message import Message
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.log.format import Record
from millstream.storage.records import queue_records
from millstream.storage.segments.format import decode_names, folder_name, index_name, segment_name
from millstream.storage.segments.stream_gaps import find_all_gaps
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.table.checkpoint import Checkpoint
from simulation.disk import SimulatedDisk
from simulation.table import SimulatedTable

QUEUE = 7
COUNT = 40
SEGMENT_SIZE = 600


def make_body(offset: int, word: bytes = b".") -> bytes:
    record = queue_records.QueueRecord(offset, 1000 * len(word) + offset, 0, 0, b"", 0)
    return queue_records.encode_record(QUEUE, record, Message(b"t", word * 30, 1, False, b"", 0, "p"), 0)


class Stream:
    """A queue as checkpoints have left it."""

    def __init__(self, kind: str = "stream", word: bytes = b".", is_packed: bool = False) -> None:
        self._word = word
        self._is_packed = is_packed
        self.disk = SimulatedDisk(1)
        self.table = SimulatedTable()
        self._sequence = 0
        definition = b'{"kind":"%s"}' % kind.encode()
        self._told: list[tuple[int, bytes]] = []
        self.tell(
            queue_records.QUEUE_SAVED, queue_records.encode_queue(QUEUE, "default", "history", definition)
        )
        self.append(range(COUNT))
        self.fold()

    def tell(self, kind: int, body: bytes) -> None:
        self._told.append((kind, body))

    def append(self, offsets: range) -> None:
        for offset in offsets:
            self.tell(queue_records.RECORD_APPENDED, make_body(offset, self._word))

    def fold(self) -> None:
        checkpoint = Checkpoint(
            self.table, SegmentWriter(self.disk, NoFailpoints(), SEGMENT_SIZE, self._is_packed)
        )
        for kind, body in self._told:
            self._sequence += 1
            checkpoint.apply(Record(self._sequence, kind, body))
        self._told.clear()
        checkpoint.finish(self._sequence)
        checkpoint.drop_segments()

    def firsts(self) -> list[int]:
        return decode_names(self.disk.names(folder_name(QUEUE)))[0]

    def lose(self, first: int) -> None:
        self.disk.remove(segment_name(QUEUE, first))
        self.disk.remove(index_name(QUEUE, first))

    def gaps(self) -> list[tuple[int, int]]:
        return [(gap.first, gap.last) for gap in find_all_gaps(self.disk, self.table)]
