"""Walks over the records of a segment, one by one, each checked; and finds the way behind damage.

A record counts only if its size fits the file, its checksum fits its body, it is of this queue, and its offset is above
that of the record before. Behind a record that does not count, the sizes lead on as long as they lead to one that
does; otherwise the next place in the index is taken. Bytes are never searched for what looks like a record: a payload
could hold anything.
"""

from __future__ import annotations

from typing import Final, final

from google_crc32c import value
from mypy_extensions import i64

from millstream.storage.disk import DiskFile
from millstream.storage.segments.format import PLACE_SIZE, RECORD_HEAD_SIZE, RECORD_PREFIX
from millstream.storage.segments.index import SegmentIndex

PIECE_SIZE: Final = 256 * 1024
_PREFIX_SIZE: Final = RECORD_HEAD_SIZE + PLACE_SIZE
_HOPS_MAX: Final = 4096


@final
class SegmentScan:
    """`last` is the offset of the record found last, or one below the first to be found."""

    def __init__(
        self, file: DiskFile, queue: i64, size: i64, position: i64, last: i64, piece_size: i64 = PIECE_SIZE
    ) -> None:
        self._file = file
        self._piece_size: i64 = piece_size
        self.expected: i64 = -1  # offset of the record that must come next; -1: any
        self._queue: i64 = queue
        self.size: i64 = size  # of the file
        self.start: i64 = position  # of the record found last
        self.position: i64 = position  # behind it
        self.last: i64 = last
        self.time: i64 = 0
        self.body = b""
        self._piece = b""
        self._piece_at: i64 = position

    def next(self) -> bool:
        """Find the next record. False at the end, and where there is none: `position` stays."""
        position: i64 = self.position
        at: i64 = position - self._piece_at
        if at < 0 or at + _PREFIX_SIZE > len(self._piece):
            if position + _PREFIX_SIZE > self.size or not self._fill(_PREFIX_SIZE):
                return False
            at = 0
        size: i64
        queue: i64
        offset: i64
        time_ns: i64
        size, checksum, queue, offset, time_ns = RECORD_PREFIX.unpack_from(self._piece, at)
        if size < PLACE_SIZE or position + RECORD_HEAD_SIZE + size > self.size:
            return False
        if queue != self._queue or offset <= self.last or (self.expected >= 0 and offset != self.expected):
            return False
        if at + RECORD_HEAD_SIZE + size > len(self._piece):
            if not self._fill(RECORD_HEAD_SIZE + size):
                return False
            at = 0
        body = self._piece[at + RECORD_HEAD_SIZE : at + RECORD_HEAD_SIZE + size]
        if value(body) != checksum:
            return False
        self.expected = -1
        self.start = position
        self.position = position + RECORD_HEAD_SIZE + size
        self.last = offset
        self.time = time_ns
        self.body = body
        return True

    def is_at_end(self) -> bool:
        return self.position >= self.size

    def find_behind(self, index: SegmentIndex) -> int:
        """Where to go on behind the bytes at `position` that are no record; -1: nowhere."""
        entry: i64 = index.position_behind(int(self.position), int(self.size))
        limit: i64 = entry if entry >= 0 else self.size
        position: i64 = self.position
        for _ in range(_HOPS_MAX):
            position = self._frame_end(position)
            if position < 0 or position >= limit:
                break
            if self._is_record(position):
                return int(position)
        return int(entry)

    def go_on(self, index: SegmentIndex) -> bool:
        """Leave out what is no record; False if nothing can be read behind it."""
        behind = self.find_behind(index) if self.position < self.size else -1
        if behind < 0:
            return False
        self.skip_to(behind)
        return True

    def skip_to(self, position: i64) -> None:
        self.position = position
        self.expected = -1

    def _frame_end(self, position: i64) -> i64:
        """Where the size at `position` says its record ends; -1 if it says nothing sensible."""
        if position + _PREFIX_SIZE > self.size:
            return -1
        head = self._file.read_at(position, RECORD_HEAD_SIZE)
        if len(head) < RECORD_HEAD_SIZE:
            return -1
        size: i64 = int.from_bytes(head[:4], "little")
        return position + RECORD_HEAD_SIZE + size if size >= PLACE_SIZE else -1

    def _is_record(self, position: i64) -> bool:
        scan = SegmentScan(self._file, self._queue, self.size, position, self.last, _PREFIX_SIZE)
        return scan.next()

    def _fill(self, needed: i64) -> bool:
        wanted: i64 = max(needed, self._piece_size)
        left: i64 = self.size - self.position
        self._piece = self._file.read_at(self.position, min(wanted, left))
        self._piece_at = self.position
        return len(self._piece) >= needed


def scan_from(file: DiskFile, index: SegmentIndex, size: i64, at: int) -> SegmentScan:
    """A scan that begins at an entry of the index; -1: at the first record."""
    scan = SegmentScan(file, index.queue, size, index.position_of(at), index.offset_before(at))
    if at >= 0:
        scan.expected = index.offsets[at]
    return scan
