"""How the write-ahead log looks on disk: files of batches, batches of records.

    file    header (32 bytes), then batches one behind the other, then zeros up to the reserved size
    header  magic, version, number of the file, epoch, checksum of these and the salt, salt
    batch   head (40 bytes): magic, checksum of the rest of the head, size of the records, count, number of the
            file, sequence of the first record, epoch; then the records. Its checksum is mixed with the salt of the
            file, which nobody outside knows: a payload that looks like a batch is never taken for one.
    record  head (9 bytes): size of the body, checksum of kind and body, kind; then the body

A file of format 2 is written without a sync per batch: what lies behind the last sync may reach the disk in any order,
or not at all. So after a sync the next batch is preceded by a mark, a head without records whose place of the first
sequence holds the position up to which the file was synced. A fault before such a position is corruption; one behind
all of them belongs to the last moments before the power went. In format 1 every batch says that of all before it.

A batch is one atom: it counts only if all of it is there. Its records are checked one by one, so that damage in the
middle of a file can be told from a write that was cut short at its end, and named exactly. The number of the file in
every batch keeps what an older file left in reused blocks from being taken for new.

To change the format: raise VERSION, go on reading the old one for a release, add a golden file of it to the tests.
"""

from __future__ import annotations

import struct
from typing import Final, final

from google_crc32c import extend, value
from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64, mypyc_attr, u8

from millstream.storage.little_endian import read_u32, write_u32

VERSION: Final = 2  # the highest that is read
SYNCED_FORMAT: Final = 1  # each batch was synced before the next was written
MARKED_FORMAT: Final = 2  # batches are synced now and then, and marks say when
FILE_MAGIC: Final = 0x4C57534D  # MSWL
BATCH_MAGIC: Final = 0x4257534D  # MSWB
FILE_HEADER_SIZE: Final = 32
BATCH_HEAD_SIZE: Final = 40
RECORD_HEAD_SIZE: Final = 9
BATCH_SIZE_MAX: Final = 1 << 30

_FILE_HEADER: Final = struct.Struct("<IIQQ")
_BATCH_HEAD: Final = struct.Struct("<IIIIQQQ")
_SALT: Final = struct.Struct("<I")
_CHECKSUM: Final = struct.Struct("<II")
# names of this module's own are found at once, those of others are looked up for every record
_EXTEND: Final = extend
_VALUE: Final = value
_KIND_CHECKSUMS: Final = [value(bytes([kind])) for kind in range(256)]


@final
@mypyc_attr(acyclic=True)
class Record:
    """A fact as the log keeps it: its place in the order of all facts, its kind, its body."""

    def __init__(self, sequence: i64, kind: i64, body: bytes) -> None:
        self.sequence: i64 = sequence
        self.kind: i64 = kind
        self.body = body


@final
class BatchHead:
    def __init__(self, size: i64, count: i64, number: i64, first: i64, epoch: i64) -> None:
        self.size: i64 = size  # of the records behind the head
        self.count: i64 = count
        self.number: i64 = number
        self.first: i64 = first
        self.epoch: i64 = epoch


def encode_file_header(number: int, epoch: int, salt: int = 0, version: int = SYNCED_FORMAT) -> bytes:
    head = _FILE_HEADER.pack(FILE_MAGIC, version, number, epoch)
    return head + _CHECKSUM.pack(value(head + _SALT.pack(salt)), salt)


def find_salt(data: bytes, number: int, is_header_good: bool) -> int:
    """The salt of a file; where its header is damaged, what its first batch was made with."""
    if is_header_good:
        salt: int = _CHECKSUM.unpack_from(data, _FILE_HEADER.size)[1]
        return salt
    if len(data) < FILE_HEADER_SIZE + BATCH_HEAD_SIZE:
        return 0
    _, checksum = struct.unpack_from("<II", data, FILE_HEADER_SIZE)
    made_of: int = value(data[FILE_HEADER_SIZE + 8 : FILE_HEADER_SIZE + BATCH_HEAD_SIZE])
    return int(checksum) ^ made_of


def find_file_header_fault(data: bytes, number: int) -> str | None:
    if len(data) < FILE_HEADER_SIZE:
        return "the file is too short for its header"
    magic, version, found, _ = _FILE_HEADER.unpack_from(data)
    checksum, salt = _CHECKSUM.unpack_from(data, _FILE_HEADER.size)
    if magic != FILE_MAGIC or value(data[: _FILE_HEADER.size] + _SALT.pack(salt)) != checksum:
        return "the header of the file is damaged"
    if version > VERSION:
        return f"the file has format {version}; this release reads up to {VERSION}"
    if found != number:
        return f"the file says it is number {found}"
    return None


def file_version(data: bytes) -> int:
    """Of a header without fault."""
    version: int = _FILE_HEADER.unpack_from(data)[1]
    return version


def append_record(writer: BytesWriter, kind: int, body: bytes) -> None:
    append_head(writer, kind, body)
    writer.write(body)


def append_head(writer: BytesWriter, kind: int, body: bytes) -> None:
    """What stands before the body of a record."""
    checksum: int = _EXTEND(_KIND_CHECKSUMS[kind], body)
    write_u32(writer, len(body))
    write_u32(writer, checksum)
    writer.append(u8(kind))


def encode_batch_head(size: i64, count: i64, number: i64, first: i64, epoch: i64, salt: i64 = 0) -> bytes:
    out = BytesWriter()
    write_u32(out, size)
    write_u32(out, count)
    write_i64_le(out, number)
    write_i64_le(out, first)
    write_i64_le(out, epoch)
    rest = out.getvalue()
    checksum: int = _VALUE(rest)
    out.truncate(0)
    write_u32(out, BATCH_MAGIC)
    write_u32(out, checksum ^ salt)
    out.write(rest)
    return out.getvalue()


def encode_mark(position: int, number: int, epoch: int, salt: int = 0) -> bytes:
    """Everything before `position` was synced before this was written."""
    return encode_batch_head(0, 0, number, position, epoch, salt)


def decode_batch_head(data: bytes, position: int, number: int, salt: int = 0) -> BatchHead | None:
    """The head at `position`, None if there is no whole and unharmed one of this file."""
    if position + BATCH_HEAD_SIZE > len(data):
        return None
    magic, checksum, size, count, found, first, epoch = _BATCH_HEAD.unpack_from(data, position)
    if magic != BATCH_MAGIC or found != number or size > BATCH_SIZE_MAX:
        return None
    if value(data[position + 8 : position + BATCH_HEAD_SIZE]) ^ salt != checksum:
        return None
    return BatchHead(size, count, number, first, epoch)


def decode_records(data: bytes, position: int, head: BatchHead) -> tuple[list[Record], int]:
    """The records behind a head at `position`, and where the first damaged one begins (-1: none is)."""
    records: list[Record] = []
    at: i64 = position
    end: i64 = position + head.size
    if end > len(data):
        end = len(data)
    sequence: i64 = head.first
    last: i64 = head.first + head.count
    while sequence < last:
        if at + RECORD_HEAD_SIZE > end:
            return records, int(at)
        size: i64 = read_u32(data, at)
        kind = data[at + 8]
        body_at: i64 = at + RECORD_HEAD_SIZE
        if body_at + size > end:
            return records, int(at)
        body = data[body_at : body_at + size]
        checksum: int = _EXTEND(_KIND_CHECKSUMS[kind], body)
        if checksum != read_u32(data, at + 4):
            return records, int(at)
        records.append(Record(sequence, kind, body))
        at = body_at + size
        sequence += 1
    return records, -1 if at == position + head.size else int(at)
