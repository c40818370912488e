"""The newest records of a queue, in memory: everything the segments do not hold yet.

Records are kept as the bytes the log has, in blocks, so that one costs little more than its size and whole blocks can
be let go when they have been folded or settled.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

SHIFT: Final[i64] = 8  # of an offset: 256 records to a block


@final
class Block:
    def __init__(self, first: i64) -> None:
        self.first: i64 = first
        self.bodies: list[bytes] = []
        self.last_sequence: i64 = 0
        self.sequences = BytesWriter()  # of each record, 64 bits; empty where nobody asks

    def end_folded(self, sequence: i64) -> i64:
        """One past the last offset whose fact is not behind `sequence`."""
        sequences = self.sequences.getvalue()
        low: i64 = 0
        high: i64 = len(sequences) >> 3
        while low < high:
            middle: i64 = (low + high) >> 1
            if read_i64_le(sequences, middle << 3) <= sequence:
                low = middle + 1
            else:
                high = middle
        return self.first + low


@final
class Tail:
    """`first` is the oldest offset here; older ones are in segments or gone. All below `sealed` that are kept are in
    segments, and some of them still here; it is known to the record only where `is_exact`."""

    def __init__(self, first: i64, is_exact: bool = False) -> None:
        self.first: i64 = first
        self.end: i64 = first
        self.sealed: i64 = first
        self._is_exact = is_exact
        self._blocks: dict[int, Block] = {}

    def add(self, offset: i64, sequence: i64, body: bytes) -> None:
        """Append; a gap before it (damage) is filled with nothing."""
        while self.end < offset:
            self._append(self.end, sequence, b"")
        self._append(offset, sequence, body)

    def _append(self, offset: i64, sequence: i64, body: bytes) -> None:
        key = int(offset >> SHIFT)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = Block(offset)
        block.bodies.append(body)
        block.last_sequence = sequence
        if self._is_exact:
            write_i64_le(block.sequences, sequence)
        self.end = offset + 1

    def get(self, offset: i64) -> bytes:
        """The record at `first` <= offset < `end`; empty: it was lost to damage."""
        block = self._blocks[int(offset >> SHIFT)]
        return block.bodies[offset - block.first]

    def size_between(self, first: i64, end: i64) -> i64:
        """Bytes of the records with first <= offset < end, all of which are here."""
        size: i64 = 0
        while first < end:
            size += len(self.get(first))
            first += 1
        return size

    def forget_folded(self, sequence: i64, low: i64) -> i64:
        """All facts up to `sequence` are in segments: let go of whole blocks of them. Gives the bytes of those from
        `low` on."""
        size: i64 = 0
        while self._blocks:
            key = next(iter(self._blocks))
            block = self._blocks[key]
            if block.last_sequence > sequence or not self._is_whole(key):
                self._seal(block.end_folded(sequence))
                break
            end: i64 = block.first + len(block.bodies)
            self._seal(end)
            size += self.size_between(low if low > block.first else block.first, end)
            self._drop(key, block)
        return size

    def _seal(self, end: i64) -> None:
        if end > self.sealed:
            self.sealed = end

    def forget_below(self, offset: i64) -> None:
        """Nobody needs what is below any more."""
        while self._blocks:
            key = next(iter(self._blocks))
            block = self._blocks[key]
            if block.first + len(block.bodies) > offset:
                return
            if not self._is_whole(key):
                return
            self._drop(key, block)

    def _is_whole(self, key: int) -> bool:
        """Whether nothing will be appended to it any more."""
        return self.end >> SHIFT != key

    def _drop(self, key: int, block: Block) -> None:
        del self._blocks[key]
        self.first = block.first + len(block.bodies)
