"""How many bytes the kept records of a queue are: exactly for those in memory, about for those in segments."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.queues.memtable import Memtable
from millstream.storage.offset_gaps import OffsetGaps


@final
class QueueSize:
    def __init__(self, gaps: OffsetGaps) -> None:
        self._gaps = gaps
        self.bytes: i64 = 0
        self._low: i64 = 0  # all below was taken off
        self._in_segments: i64 = 0  # bytes of the kept records that are only there

    def add(self, size: i64) -> None:
        self.bytes += size

    def memory_bytes(self) -> i64:
        """Of the kept records that are in memory."""
        return self.bytes - self._in_segments

    def restore(self, stored: i64, memtable: Memtable, low: i64) -> None:
        """After a start: `stored` is about the size of everything from `low` on."""
        self._low = low
        if low >= memtable.first:
            self.bytes = memtable.size_between(low, memtable.end)
            return
        in_all: i64 = self._gaps.records_between(low, memtable.end)
        self._in_segments = stored * self._gaps.records_between(low, memtable.first) // max(1, in_all)
        self.bytes = self._in_segments + memtable.size_between(memtable.first, memtable.end)

    def count_anew(self, memtable: Memtable) -> None:
        """The size of a record is another one now; of those in segments it stays as it was."""
        first: i64 = self._low if self._low > memtable.first else memtable.first
        self.bytes = self._in_segments + memtable.size_between(first, memtable.end)

    def let_go(self, memtable: Memtable, low: i64) -> None:
        """Nobody needs what is below `low` any more."""
        if self._low < low and self._low < memtable.first:
            end: i64 = low if low < memtable.first else memtable.first
            count: i64 = self._gaps.records_between(self._low, memtable.first)
            gone: i64 = self._in_segments * self._gaps.records_between(self._low, end) // max(1, count)
            self._in_segments -= gone
            self.bytes -= gone
            self._low = end
        if self._low < low:
            self.bytes -= memtable.size_between(self._low, low)
            self._low = low
        memtable.forget_below(low)
        if self._gaps.count:
            self._gaps.forget_below(low)

    def empty(self, memtable: Memtable, first: i64, last: i64) -> None:
        """Nobody needs these, of a queue in memory, though somebody may need what is before them."""
        self.bytes -= memtable.empty(first if first > self._low else self._low, last)

    def on_folded(self, memtable: Memtable, sequence: i64) -> None:
        self._in_segments += memtable.forget_folded(sequence, self._low)

    def find_first_within(self, memtable: Memtable, limit: i64) -> i64:
        """The offset from which on the records are no more than `limit` bytes; in segments by their average."""
        excess: i64 = self.bytes - limit
        offset: i64 = self._low
        if offset < memtable.first and self._in_segments:
            count: i64 = self._gaps.records_between(offset, memtable.first)
            if self._in_segments >= excess:
                records: i64 = (excess * count + self._in_segments - 1) // self._in_segments
                return self._gaps.go_on(offset, records)
            excess -= self._in_segments
            offset = memtable.first
        while offset < memtable.end and excess > 0:
            excess -= memtable.size_of(offset)
            offset += 1
        return offset
