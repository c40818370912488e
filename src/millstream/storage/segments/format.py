"""How the segments of a queue look on disk: the records of a range of offsets, and a sparse index beside them.

    queues/<number>/<first offset, 20 digits>.segment and .index

    segment  header (32 bytes): magic, version, number of the queue, first offset, checksum; then records, one behind
             the other up to the end of the file
    record   size of the body, checksum of the body, body. The body is that of the fact that appended the record
             (`records.queue_records`): it begins with queue, offset, time
    index    header as in the segment, with a magic of its own; then entries of 32 bytes: offset, time, position, kind,
             checksum (over the entry and the place of the segment, so that none is taken for that of another)

In format 2 the records are compressed in blocks (`blocks`). Every position is then one among the records as they
were before that, and an entry BLOCK tells where the block that begins at a position (in place of the offset) lies.

Entries of the index by kind: a PLACE is where a record begins, one for about every 64 KiB; a MARK says that everything
before that position was synced, and which offset was the last (what follows it begins there); SEALED is a mark behind which nothing comes. The time in
an entry is the latest of any record in the segment so far: clocks may step back, and so the first record at or after a
time can still be found without reading all. Entries are written after the data they speak of is safe.

The index is a hint. It can be made again from the segment; without it, only damage at the very end of the last segment
can no longer be told from a write that was cut short.

To change the format: raise VERSION, go on reading the old one for a release, add a golden file of it to the tests.
"""

from __future__ import annotations

import struct
from typing import Final

from google_crc32c import extend, value
from librt.strings import BytesWriter

from millstream.storage.little_endian import write_u32

VERSION: Final = 2  # the highest that is read
PLAIN_FORMAT: Final = 1
PACKED_FORMAT: Final = 2  # the records are compressed
SEGMENT_MAGIC: Final = 0x4753534D  # MSSG
INDEX_MAGIC: Final = 0x4953534D  # MSSI
HEADER_SIZE: Final = 32
RECORD_HEAD_SIZE: Final = 8
PLACE_SIZE: Final = 24  # queue, offset and time, with which every body begins
ENTRY_SIZE: Final = 32
INDEX_INTERVAL: Final = 64 * 1024
OFFSET_MAX: Final = (1 << 63) - 1

PLACE: Final = 1
MARK: Final = 2
SEALED: Final = 3
BLOCK: Final = 4

FOLDER: Final = "queues"
SEGMENT_SUFFIX: Final = ".segment"
INDEX_SUFFIX: Final = ".index"

RECORD_PREFIX: Final = struct.Struct("<IIqqq")  # size, checksum; queue, offset, time of the body
_HEADER: Final = struct.Struct("<IIQQ")
_CHECKSUM: Final = struct.Struct("<Q")  # as wide as it takes to fill the header
_VALUE: Final = value  # found at once, for every record
_ENTRY: Final = struct.Struct("<qqqI")
_ENTRY_CHECKSUM: Final = struct.Struct("<I")
_PAIR: Final = struct.Struct("<QQ")


def folder_name(queue: int) -> str:
    return f"{FOLDER}/{queue}"


def segment_name(queue: int, first: int) -> str:
    return f"{FOLDER}/{queue}/{first:020d}{SEGMENT_SUFFIX}"


def index_name(queue: int, first: int) -> str:
    return f"{FOLDER}/{queue}/{first:020d}{INDEX_SUFFIX}"


def decode_names(names: list[str]) -> tuple[list[int], list[int]]:
    """(first offsets of the segments, of the indexes) among the names of a queue's folder, in order. Others are not ours."""
    segments: list[int] = []
    indexes: list[int] = []
    for name in names:
        stem, dot, suffix = name.rpartition("/")[2].partition(".")
        if len(stem) != 20 or not (stem.isascii() and stem.isdecimal()) or int(stem) > OFFSET_MAX:
            continue
        if dot + suffix == SEGMENT_SUFFIX:
            segments.append(int(stem))
        elif dot + suffix == INDEX_SUFFIX:
            indexes.append(int(stem))
    segments.sort()
    indexes.sort()
    return segments, indexes


def encode_header(magic: int, queue: int, first: int, is_packed: bool = False) -> bytes:
    head = _HEADER.pack(magic, PACKED_FORMAT if is_packed else PLAIN_FORMAT, queue, first)
    return head + _CHECKSUM.pack(value(head))


def find_header_fault(data: bytes, magic: int, queue: int, first: int) -> str | None:
    if len(data) < HEADER_SIZE:
        return "the file is too short for its header"
    found_magic, _, found_queue, found_first = _HEADER.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if found_magic != magic or value(data[: _HEADER.size]) != checksum:
        return "the header of the file is damaged"
    if header_version(data) > VERSION:
        return f"the file has format {header_version(data)}; this release reads up to {VERSION}"
    if found_queue != queue or found_first != first:
        return f"the file says it is that of queue {found_queue} from offset {found_first}"
    return None


def header_version(data: bytes) -> int:
    """Of a header without fault; 0 of one that says nothing."""
    if len(data) < HEADER_SIZE or value(data[: _HEADER.size]) != _CHECKSUM.unpack_from(data, _HEADER.size)[0]:
        return 0
    version: int = _HEADER.unpack_from(data)[1]
    return version


def write_record(out: BytesWriter, body: bytes) -> None:
    checksum: int = _VALUE(body)
    write_u32(out, len(body))
    write_u32(out, checksum)
    out.write(body)


def entry_seed(queue: int, first: int) -> int:
    seed: int = value(_PAIR.pack(queue, first))
    return seed


def encode_entry(seed: int, kind: int, offset: int, time_ns: int, position: int) -> bytes:
    entry = _ENTRY.pack(offset, time_ns, position, kind)
    return entry + _ENTRY_CHECKSUM.pack(extend(seed, entry))


def decode_entry(seed: int, data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """(kind, offset, time, position), None if it is damaged."""
    end = at + _ENTRY.size
    if end + _ENTRY_CHECKSUM.size > len(data):
        return None
    if extend(seed, data[at:end]) != _ENTRY_CHECKSUM.unpack_from(data, end)[0]:
        return None
    offset, time_ns, position, kind = _ENTRY.unpack_from(data, at)
    return kind, offset, time_ns, position
