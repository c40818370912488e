"""The sparse index of one segment in memory: where to begin reading for an offset or a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import final

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.segments.format import (
    BLOCK,
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_MAGIC,
    OFFSET_MAX,
    PLACE,
    SEALED,
    decode_entry,
    encode_entry,
    encode_header,
    entry_seed,
    find_header_fault,
    index_name,
)


@final
class SegmentIndex:
    """Offsets and positions rise strictly, times never fall. Damaged entries are left out, the others stay good."""

    def __init__(self, queue: int, first: int) -> None:
        self.queue = queue
        self.first = first
        self.seed = entry_seed(queue, first)
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.positions: list[int] = []
        self.marks: list[int] = []  # positions behind which a record begins, if there is one
        self.is_packed = False  # the segment is compressed
        self.blocks: list[
            tuple[int, int]
        ] = []  # positions at which its blocks begin, and where those lie in the file
        self.safe_position = HEADER_SIZE  # every record before it was synced, as far as entries tell
        self.safe_offset = first - 1  # and this is not below the last of them
        self.size = 0  # of the file
        self.latest = 0  # time, as far as entries tell
        self.is_sealed = False
        self.is_damaged = False

    def add(self, offset: int, time_ns: int, position: int) -> bool:
        """False if it does not fit behind what is there."""
        if self.offsets and (offset <= self.offsets[-1] or position <= self.positions[-1]):
            return False
        if offset < self.first or position < HEADER_SIZE:
            return False
        self.latest = max(self.latest, time_ns)
        self.offsets.append(offset)
        self.times.append(self.latest)
        self.positions.append(position)
        return True

    def decode(self, data: bytes, end: int = OFFSET_MAX) -> None:
        """Take what the file says about offsets below `end`."""
        self.size = len(data)
        if find_header_fault(data, INDEX_MAGIC, self.queue, self.first) is not None:
            self.is_damaged = True
        for at in range(HEADER_SIZE, len(data), ENTRY_SIZE):
            entry = decode_entry(self.seed, data, at)
            if entry is not None and entry[0] == BLOCK:
                self.blocks.append((entry[1], entry[3]))
                continue
            if entry is None or entry[1] >= end:
                self.is_damaged = True
                continue
            kind, offset, time_ns, position = entry
            if kind == PLACE:
                if self.add(offset, time_ns, position):
                    offset -= 1
                else:
                    self.is_damaged = True
                    continue
            elif not self.marks or position > self.marks[-1]:
                self.marks.append(position)
            if position >= self.safe_position:
                self.safe_position = position
                self.safe_offset = offset
                self.latest = max(self.latest, time_ns)
                self.is_sealed = kind == SEALED

    def encode(self) -> bytes:
        """Header and places; what it knew of marks must be written behind them."""
        parts = [encode_header(INDEX_MAGIC, self.queue, self.first, self.is_packed)]
        for at in range(len(self.offsets)):
            parts.append(encode_entry(self.seed, PLACE, self.offsets[at], self.times[at], self.positions[at]))
        for position, place in self.blocks:
            parts.append(encode_entry(self.seed, BLOCK, position, 0, place))
        return b"".join(parts)

    def put_places(self, places: dict[int, tuple[int, int]]) -> None:
        """Take these, by position (offset, time), in place of all it has."""
        self.offsets = []
        self.times = []
        self.positions = []
        latest = 0
        for position in sorted(places):
            offset, time_ns = places[position]
            if not self.offsets or offset > self.offsets[-1]:
                latest = max(latest, time_ns)
                self.offsets.append(offset)
                self.times.append(latest)
                self.positions.append(position)

    def cut(self, position: int) -> None:
        """Forget what lies behind a position."""
        count = bisect_left(self.positions, position)
        del self.offsets[count:], self.times[count:], self.positions[count:]
        self.blocks = [block for block in self.blocks if block[0] < position]

    def forget(self) -> None:
        """All it says: it is that of another segment."""
        self.put_places({})
        self.marks = []
        self.blocks = []
        self.safe_position = HEADER_SIZE
        self.safe_offset = self.first - 1
        self.latest = 0
        self.is_sealed = False
        self.is_damaged = True

    def find_offset(self, offset: int) -> int:
        """The entry to begin at for an offset; -1: at the first record."""
        return bisect_right(self.offsets, offset) - 1

    def find_time(self, time_ns: int) -> int:
        """The entry to begin at for the first record at or after a time; -1: at the first record."""
        return bisect_left(self.times, time_ns) - 1

    def position_of(self, at: int) -> int:
        return self.positions[at] if at >= 0 else HEADER_SIZE

    def offset_before(self, at: int) -> int:
        """An offset below that of the record at an entry."""
        return self.offsets[at] - 1 if at >= 0 else self.first - 1

    def position_behind(self, position: int, end: int) -> int:
        """Where the next record begins that an entry tells of, before `end`; -1 if none does."""
        at = bisect_right(self.positions, position)
        mark = bisect_right(self.marks, position)
        if at < len(self.positions) and self.positions[at] < end:
            end = self.positions[at]
        elif mark == len(self.marks) or self.marks[mark] >= end:
            return -1
        return min(end, self.marks[mark]) if mark < len(self.marks) else end


def load_index(disk: Disk, queue: int, first: int, end: int = OFFSET_MAX) -> SegmentIndex:
    """What can be read of it; an empty and damaged one if nothing can."""
    index = SegmentIndex(queue, first)
    try:
        file = disk.open(index_name(queue, first))
    except DiskFault:
        index.is_damaged = True  # it is missing: a hint more or less
        return index
    try:
        index.decode(file.read_at(0, file.size()), end)
    except DiskFault:
        index.is_damaged = True
    finally:
        file.close()
    return index
