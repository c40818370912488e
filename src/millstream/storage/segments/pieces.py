"""Reads the segments of a queue in large pieces of whole, checked records, for those who read long ranges.

What is good is found for a whole piece at once (`run`); where that fails, `scan` decides as for every
other reader: what is no record is damage and named, unless it stands at the end of the last segment and is not there yet.

Ask for offsets that a commit covers. Segments may be removed meanwhile, from the lowest on: then `Trimmed` is raised,
before a record behind the hole is handed out. Damage is raised too, unless it is to be skipped: then it is listed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from mypy_extensions import i64

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.little_endian import read_u64
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.blocks import complete_index, name_damage, open_records
from millstream.storage.segments.format import (
    HEADER_SIZE,
    RECORD_HEAD_SIZE,
    SEGMENT_MAGIC,
    VERSION,
    decode_names,
    find_header_fault,
    folder_name,
    header_version,
    segment_name,
)
from millstream.storage.segments.index import SegmentIndex, load_index
from millstream.storage.segments.run import find_run
from millstream.storage.segments.scan import SegmentScan

PIECE_SIZE: Final = 512 * 1024
_TRIES_MAX: Final = 8
_DAMAGED: Final = "damaged; the records there cannot be trusted"
_SENSELESS: Final = "the checksum of the record is right, but its body makes no sense"


class Trimmed(Exception):
    """Records that were asked for are no longer there. `first` is the lowest offset that still is."""

    def __init__(self, asked: int, first: int) -> None:
        super().__init__(f"offsets {asked} to {first - 1} are no longer there; the lowest is {first}")
        self.asked = asked
        self.first = first


class Damaged(Exception):
    """Records that were asked for cannot be read. Offsets from `first` up to `end`, without it, are concerned."""

    def __init__(self, damage: Damage, first: int, end: int) -> None:
        super().__init__(f"offsets {first} to {end - 1} cannot be read: {damage.sentence()}")
        self.damage = damage
        self.first = first
        self.end = end


@final
class Piece:
    """Whole, checked records: data[:size]. `start` is its place in the file."""

    def __init__(self, data: bytes, size: i64, name: str, start: i64) -> None:
        self.data = data
        self.size: i64 = size
        self.name = name
        self.start: i64 = start


@final
class _Open:
    """A segment that is being read."""

    def __init__(self, first: int, name: str, file: DiskFile, index: SegmentIndex) -> None:
        self.first = first
        self.name = name
        self.file = file
        self.index = index
        self.size: i64 = file.size()
        self.position: i64 = HEADER_SIZE  # of the next record
        self.last: i64 = first - 1  # an offset below it, not below that of the one before
        self.expected: i64 = -1  # its offset, if an entry of the index says so
        self.is_fresh = True  # just opened: what it says is not older than the files


@final
class SegmentPieces:
    """The records of a queue from offset `first` up to `end`, and some around them; none older than `since_ns` if the
    index can tell."""

    def __init__(
        self,
        disk: Disk,
        queue: int,
        first: int,
        end: int,
        since_ns: int = 0,
        skips_damage: bool = False,
        piece_size: int = PIECE_SIZE,
    ) -> None:
        self._disk = disk
        self._queue = queue
        self._asked = first
        self._end = end
        self._since_ns = since_ns
        self._skips_damage = skips_damage
        self._piece_size: i64 = piece_size
        self._segment: _Open | None = None
        self._firsts: list[int] = []  # of the segments
        self._at = -2  # the one to open next; -2: not looked yet
        self._next: i64 = first  # the lowest offset that may still come
        self._is_at_end = first >= end
        self.damage: list[Damage] = []  # that was skipped

    def take(self) -> Piece | None:
        """None when there are no more."""
        while not self._is_at_end:
            segment = self._segment
            if segment is None:
                self._open_next()
                continue
            piece = self._take_from(segment)
            if piece is not None:
                return piece
        self.close()
        return None

    def close(self) -> None:
        self._is_at_end = True
        self._leave()

    def on_senseless(self, piece: Piece, start: i64, end: i64) -> None:
        """The record at data[start:end] could not be understood."""
        offset: i64 = read_u64(piece.data, start + RECORD_HEAD_SIZE + 8)
        damage = Damage(piece.name, int(piece.start + start), int(piece.start + end), _SENSELESS)
        self._on_damage(damage, int(offset), int(offset) + 1)

    # ------------------------------------------------------------------------ reading

    def _take_from(self, segment: _Open) -> Piece | None:
        """None where the segment ends, or damage was left out."""
        if self._next >= self._end:
            self._is_at_end = True
            return None
        start: i64 = segment.position
        if start == segment.size:
            self._leave()
            return None
        wanted: i64 = self._piece_size
        for _ in range(_TRIES_MAX):
            data = segment.file.read_at(start, min(wanted, segment.size - start))
            run = find_run(data, self._queue, segment.last)
            if run.end and run.is_sound and (segment.expected < 0 or run.first == segment.expected):
                self._go_behind(segment, start + run.end, run.last)
                return Piece(data, run.end, segment.name, start)
            scan = SegmentScan(segment.file, self._queue, segment.size, start, segment.last)
            scan.expected = segment.expected
            if not scan.next():
                self._on_fault(segment, scan)
                return None
            while scan.position - start < run.end and scan.next():
                pass
            wanted = scan.position - start  # what is good before the fault, or one record larger than a piece
        raise DiskFault(f"{segment.name}: it changes faster than it can be read")

    def _go_behind(self, segment: _Open, position: i64, last: i64) -> None:
        segment.position = position
        segment.last = last
        segment.expected = -1
        segment.is_fresh = False
        if last >= self._next:
            self._next = last + 1

    def _on_fault(self, segment: _Open, scan: SegmentScan) -> None:
        """What stands at the position of a segment is no record."""
        if not segment.is_fresh:
            # It may have been cut and written anew since it was opened: look again before blaming it.
            self._reopen(segment)
            return
        start: i64 = min(scan.position, scan.size)
        index = segment.index
        if start >= index.safe_position and self._is_last(segment) and scan.find_behind(index) < 0:
            self._leave()  # not there yet
            return
        is_more = scan.go_on(index)
        end: i64 = scan.position if is_more else max(scan.position, scan.size)
        segment.position = end
        segment.expected = -1
        behind: i64 = self._end
        if is_more and scan.next():
            behind = min(behind, scan.last)
        elif not is_more:
            self._leave()
        self._on_damage(
            name_damage(segment.name, segment.file, int(start), int(end), _DAMAGED),
            int(segment.last + 1),
            int(behind),
        )

    def _on_damage(self, damage: Damage, first: int, end: int) -> None:
        first = max(first, self._asked)
        if first >= end:
            return  # nothing that was asked for
        if not self._skips_damage:
            raise Damaged(damage, first, end)
        self.damage.append(damage)

    # -------------------------------------------------------------------------- files

    def _list(self) -> list[int]:
        return decode_names(self._disk.names(folder_name(self._queue)))[0]

    def _is_last(self, segment: _Open) -> bool:
        return self._list()[-1:] == [segment.first]

    def _leave(self) -> None:
        segment = self._segment
        if segment is not None:
            self._segment = None
            segment.file.close()

    def _begin(self) -> None:
        """Find the segment of the first offset. All up to the end that was asked for are there by now."""
        self._firsts = self._list()
        self._at = bisect_right(self._firsts, self._asked) - 1
        if self._at < 0:
            self._raise_trimmed()

    def _raise_trimmed(self) -> None:
        firsts = self._list()
        wanted = int(self._next)
        raise Trimmed(wanted, max(firsts[0], wanted) if firsts else self._end)

    def _open_next(self) -> None:
        if self._at < -1:
            self._begin()
        if self._at >= len(self._firsts) or self._firsts[self._at] >= self._end:
            self._is_at_end = True
            return
        first = self._firsts[self._at]
        self._at += 1
        segment = self._open(first)
        if segment is None:
            return
        self._segment = segment
        self._find_start(segment)

    def _find_start(self, segment: _Open) -> None:
        index = segment.index
        at = index.find_offset(int(self._next))
        if self._since_ns > 0:
            at = max(at, index.find_time(self._since_ns))
        segment.position = index.position_of(at)
        segment.last = index.offset_before(at)
        segment.expected = index.offsets[at] if at >= 0 else -1

    def _open(self, first: int) -> _Open | None:
        """None if this release cannot read it."""
        name = segment_name(self._queue, first)
        try:
            file = self._disk.open(name)
        except DiskFault:
            if name not in self._disk.names(folder_name(self._queue)):
                self._raise_trimmed()
            raise
        try:
            header = file.read_at(0, HEADER_SIZE)
            index = load_index(self._disk, self._queue, first)
            file = open_records(file, header, index)
            complete_index(file, index)
            segment = _Open(first, name, file, index)
        except DiskFault:
            file.close()
            raise
        fault = find_header_fault(header, SEGMENT_MAGIC, self._queue, first)
        if fault is None:
            return segment
        damage = Damage(name, 0, HEADER_SIZE, fault)
        if header_version(header) <= VERSION:
            self.damage.append(damage)  # its records are read all the same: none of them is lost
            return segment
        file.close()
        behind = self._firsts[self._at] if self._at < len(self._firsts) else self._end
        self._on_damage(damage, max(first, int(self._next)), min(behind, self._end))
        return None

    def _reopen(self, segment: _Open) -> None:
        """Look at the files again; go on where it stood."""
        self._leave()
        again = self._open(segment.first)
        if again is None:
            return
        self._segment = again
        again.position = segment.position
        again.last = segment.last
        again.expected = segment.expected
