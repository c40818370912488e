"""Segments whose records are compressed, seen as if they were not: every position is one among the records as they were.

    segment  header as of any segment, with format 2; then blocks, one behind the other up to the end of the file
    block    head (48 bytes): magic, checksum of the rest of the head, size of its records, size as stored, checksum as
             stored, kind, position of its first record, offset of that, latest time of any record up to it; then the
             stored bytes

A block holds whole records. It is stored as it is where compressing would not make it smaller, or where it is larger than
anybody is asked to inflate: no size is believed before the checksum of its head has been compared, and none above
`INFLATED_MAX` then. The checksum of a head is mixed with the place of the segment. What is stored is compared with its
own checksum before it is inflated.

A block that is damaged reads as zeros, which are no record: so it costs its own records, and is found and named as
damage in any other segment is. Behind a damaged head the index tells where the next block begins.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import Final, final

from google_crc32c import extend, value
from mypy_extensions import i64
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

from millstream.storage.disk import DiskFault, DiskFile
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.format import (
    HEADER_SIZE,
    PACKED_FORMAT,
    PLACE_SIZE,
    PLAIN_FORMAT,
    RECORD_HEAD_SIZE,
    RECORD_PREFIX,
    entry_seed,
    header_version,
)
from millstream.storage.segments.index import SegmentIndex

BLOCK_MAGIC: Final = 0x4253534D  # MSSB
BLOCK_HEAD_SIZE: Final = 48
INFLATED_MAX: Final = 16 * 1024 * 1024
CACHED_MAX: Final = (
    1024 * 1024
)  # a larger one holds one large record: it is inflated again when it is asked for
LEVEL: Final = 3  # beyond it, time grows faster than anything shrinks

AS_IS: Final = 0
ZSTD: Final = 1

_MAGIC: Final = struct.Struct("<II")
_REST: Final = struct.Struct("<IIIIqqq")


@final
class BlockHead:
    def __init__(
        self, size: int, stored: int, checksum: int, kind: int, position: int, first: int, latest: int
    ) -> None:
        self.size = size  # of its records
        self.stored = stored  # behind the head
        self.checksum = checksum
        self.kind = kind
        self.position = position
        self.first = first
        self.latest = latest


@final
class BlockPacker:
    """Makes blocks, one after the other."""

    def __init__(self) -> None:
        self._zstd = ZstdCompressor(level=LEVEL)

    def pack(self, seed: int, records: bytes, position: int, first: int, latest: int) -> bytes:
        kind = AS_IS
        stored = records
        if len(records) <= INFLATED_MAX:
            packed = self._zstd.compress(records)
            if len(packed) < len(records):
                kind = ZSTD
                stored = packed
        rest = _REST.pack(len(records), len(stored), value(stored), kind, position, first, latest)
        return _MAGIC.pack(BLOCK_MAGIC, extend(seed, rest)) + rest + stored


def decode_block_head(seed: int, data: bytes, at: int) -> BlockHead | None:
    """None if there is no whole, unharmed and sensible one."""
    if at + BLOCK_HEAD_SIZE > len(data):
        return None
    magic, checksum = _MAGIC.unpack_from(data, at)
    if magic != BLOCK_MAGIC or extend(seed, data[at + _MAGIC.size : at + BLOCK_HEAD_SIZE]) != checksum:
        return None
    size, stored, stored_checksum, kind, position, first, latest = _REST.unpack_from(data, at + _MAGIC.size)
    if kind == AS_IS:
        if stored != size:
            return None
    elif kind != ZSTD or size > INFLATED_MAX or stored >= size:
        return None
    return BlockHead(size, stored, stored_checksum, kind, position, first, latest)


def inflate(head: BlockHead, stored: bytes) -> bytes | None:
    """The records of a block; None if it is damaged."""
    if len(stored) != head.stored or value(stored) != head.checksum:
        return None
    if head.kind == AS_IS:
        return stored
    try:
        if frame_content_size(stored) != head.size:
            return None  # what is reserved for it is what it says itself
        records = ZstdDecompressor().decompress(stored, max_output_size=head.size)
    except ZstdError:
        return None
    return records if len(records) == head.size else None


@final
class BlockFile(DiskFile):
    """The records of a compressed segment as a file, to be read and to be cut. It sees what others append meanwhile."""

    def __init__(self, file: DiskFile, index: SegmentIndex) -> None:
        self._file = file
        self._seed = index.seed
        self._hints = sorted(index.blocks)  # (position, place in the file) of blocks
        self._cached_at = -1
        self._cached = b""
        self._forget()

    def _forget(self) -> None:
        self._starts: list[int] = []  # positions of the blocks
        self._places: list[
            int
        ] = []  # where they lie in the file; -1: somewhere in a range that cannot be read
        self._stops: list[int] = []  # and where they end there
        self._firsts: list[int] = []  # offsets
        self._times: list[int] = []
        self._end = HEADER_SIZE  # position behind the last one
        self._stored_end = HEADER_SIZE
        self._has_rest = False  # something lies behind it that is no block
        self._cached_at = -1

    def size(self) -> i64:
        """Of all records; one more if something lies behind them that is no block."""
        self._walk()
        return self._end + 1 if self._has_rest else self._end

    def read_at(self, offset: i64, size: i64) -> bytes:
        if offset + size > self._end:
            self._walk()
        at = int(offset)
        end = at + int(size)
        parts: list[bytes] = []
        if at < HEADER_SIZE:
            parts.append(self._file.read_at(at, min(end, HEADER_SIZE) - at))
            at = HEADER_SIZE
        block = bisect_right(self._starts, at) - 1
        while at < end and 0 <= block < len(self._starts):
            start = self._starts[block]
            behind = self._position_behind(block)
            parts.append(self._records(block)[at - start : min(end, behind) - start])
            at = behind
            block += 1
        if self._has_rest and at == self._end and at < end:
            parts.append(bytes(1))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_at(self, offset: i64, data: bytes) -> None:
        raise DiskFault("records are appended to a compressed segment in blocks only")

    def sync(self) -> None:
        self._file.sync()

    def truncate(self, size: i64) -> None:
        place = self.place_of(int(size))
        if place < 0:
            raise DiskFault(f"a compressed segment cannot be cut in the middle of a block, at {size}")
        self._file.truncate(place)
        self._forget()

    def close(self) -> None:
        self._file.close()

    def place_of(self, position: int) -> int:
        """Where the block that begins at a position lies in the file, -1 if none begins there; its end for the end."""
        self._walk()
        if position >= self._end:
            return self._stored_end
        at = bisect_left(self._starts, position)
        if at == len(self._starts) or self._starts[at] != position:
            return -1
        return self._places[at] if self._places[at] >= 0 else self._stop_before(at)

    def stored_range(self, start: int, end: int) -> tuple[int, int]:
        """The bytes of the file that hold a range of the records."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end) - 1
        begin = self._stop_before(first) if first >= 0 else min(start, HEADER_SIZE)
        behind = self._stops[last] if last >= 0 else min(end, HEADER_SIZE)
        return (
            self._stored_end if start >= self._end else begin,
            int(self._file.size()) if end > self._end else behind,
        )

    def add_places(self, index: SegmentIndex) -> bool:
        """Bring what the heads of blocks say into an index; False if it knew all."""
        self._walk()
        index.is_packed = True
        known = dict.fromkeys(index.blocks)
        places = {
            index.positions[at]: (index.offsets[at], index.times[at]) for at in range(len(index.positions))
        }
        is_new = False
        for at in range(len(self._starts)):
            if self._places[at] >= 0:
                start = self._starts[at]
                if (start, self._places[at]) not in known or start not in places:
                    known[start, self._places[at]] = None
                    places[start] = (self._firsts[at], self._times[at])
                    is_new = True
        if is_new:
            index.blocks = sorted(known)
            index.put_places(places)
        return is_new

    # ------------------------------------------------------------------------- blocks

    def _position_behind(self, block: int) -> int:
        return self._starts[block + 1] if block + 1 < len(self._starts) else self._end

    def _stop_before(self, block: int) -> int:
        return self._stops[block - 1] if block > 0 else HEADER_SIZE

    def _records(self, block: int) -> bytes:
        if block == self._cached_at:
            return self._cached
        size = self._position_behind(block) - self._starts[block]
        place = self._places[block]
        records: bytes | None = None
        if place >= 0:
            data = self._file.read_at(place, self._stops[block] - place)
            head = decode_block_head(self._seed, data, 0)
            if head is not None and head.position == self._starts[block] and head.size == size:
                records = inflate(head, data[BLOCK_HEAD_SIZE:])
        if records is None:
            records = bytes(size)
        if size <= CACHED_MAX:
            self._cached = records
            self._cached_at = block
        return records

    def _walk(self) -> None:
        """Find the blocks behind those that are known."""
        size = int(self._file.size())
        if size < self._stored_end:
            self._forget()  # it was cut
        while self._stored_end < size:
            place = self._stored_end
            head = self._head_at(place, size)
            if head is None or head.position != self._end:
                head, place = self._find_behind(size)
                if head is None:
                    break
                if head.position > self._end:
                    self._add(self._end, -1, place, 0, 0)
            self._add(head.position, place, place + BLOCK_HEAD_SIZE + head.stored, head.first, head.latest)
            self._end = head.position + head.size
        self._has_rest = self._stored_end < size

    def _add(self, start: int, place: int, stop: int, first: int, latest: int) -> None:
        self._starts.append(start)
        self._places.append(place)
        self._stops.append(stop)
        self._firsts.append(first)
        self._times.append(latest)
        self._stored_end = stop

    def _head_at(self, place: int, size: int) -> BlockHead | None:
        head = decode_block_head(self._seed, self._file.read_at(place, BLOCK_HEAD_SIZE), 0)
        if head is None or place + BLOCK_HEAD_SIZE + head.stored > size or head.size == 0:
            return None
        return head

    def _find_behind(self, size: int) -> tuple[BlockHead | None, int]:
        """The next block that the index knows behind the ones found so far."""
        for at in range(bisect_right(self._hints, (self._end, size)), len(self._hints)):
            position, place = self._hints[at]
            if place > self._stored_end:
                head = self._head_at(place, size)
                if head is not None and head.position == position:
                    return head, place
        return None, -1


def open_records(file: DiskFile, header: bytes, index: SegmentIndex) -> DiskFile:
    """A segment as a file of its records. What the header cannot tell any more, the first block does."""
    version = header_version(header)
    if version == 0:
        head = decode_block_head(index.seed, file.read_at(HEADER_SIZE, BLOCK_HEAD_SIZE), 0)
        version = PACKED_FORMAT if head is not None else 0
    return BlockFile(file, index) if version == PACKED_FORMAT else file


def find_first_record(file: DiskFile) -> tuple[bytes, bool]:
    """(head of the first record and place of its body, whether the record is whole)."""
    prefix = file.read_at(HEADER_SIZE, RECORD_PREFIX.size)
    if len(prefix) < RECORD_PREFIX.size:
        return prefix, False
    size, checksum, _, _, _ = RECORD_PREFIX.unpack(prefix)
    if size < PLACE_SIZE or HEADER_SIZE + RECORD_HEAD_SIZE + size > int(file.size()):
        return prefix, False
    return prefix, value(file.read_at(HEADER_SIZE + RECORD_HEAD_SIZE, size)) == checksum


def find_first_head(file: DiskFile, header: bytes, queue: int, first: int) -> bytes:
    """Of a segment, and the place of its first record, without a look at what is behind; empty if its block is damaged."""
    head: BlockHead | None = None
    if header_version(header) != PLAIN_FORMAT:
        head = decode_block_head(entry_seed(queue, first), file.read_at(HEADER_SIZE, BLOCK_HEAD_SIZE), 0)
    if head is None:
        return file.read_at(HEADER_SIZE, RECORD_PREFIX.size)
    records = inflate(head, file.read_at(HEADER_SIZE + BLOCK_HEAD_SIZE, head.stored))
    return b"" if records is None else records[: RECORD_PREFIX.size]


def complete_index(file: DiskFile, index: SegmentIndex) -> bool:
    """Let the segment itself say whether the index is its own, and where its blocks begin; whether the index was wrong or did
    not know."""
    is_wrong = not _is_its_own(file, index)
    if is_wrong:
        index.forget()
    return (isinstance(file, BlockFile) and file.add_places(index)) or is_wrong


def _is_its_own(file: DiskFile, index: SegmentIndex) -> bool:
    """One of another directory may have the same name; but it gives the first record another time."""
    if not index.positions or index.positions[0] != HEADER_SIZE:
        return True
    prefix = file.read_at(HEADER_SIZE, RECORD_PREFIX.size)
    if len(prefix) == RECORD_PREFIX.size:
        _, _, _, offset, time_ns = RECORD_PREFIX.unpack(prefix)
        if (offset, time_ns) == (index.offsets[0], index.times[0]):
            return True
    return not find_first_record(file)[1]  # a damaged record says nothing about its index


def stored_range(file: DiskFile, start: int, end: int) -> tuple[int, int]:
    """The bytes of the file that hold a range of the records."""
    return file.stored_range(start, end) if isinstance(file, BlockFile) else (start, end)


def name_damage(name: str, file: DiskFile, start: int, end: int, text: str) -> Damage:
    """Of a range of the records, by the bytes of the file."""
    return Damage(name, *stored_range(file, start, end), text)
