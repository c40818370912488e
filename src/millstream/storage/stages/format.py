"""How a stage looks on disk: rows a writer has left with the broker, which nobody sees before their batch is committed.

    file    header, blocks one behind the other, footer
    header  magic, version, size and checksum of the rest; batch, partition, attempt; account, owner, query, queue
    block   magic, checksum of all that follows it, size of the rows, count; then the rows. One block is published at once
    row     guarantee, retain, expiry in seconds (0: none), sizes of topic, properties and payload; then these
    footer  magic, checksum, rows, blocks, size of the largest row

A stage is written once, under a name that ends in `.part`, and gets its own name when it is whole and safe.

To change the format: raise VERSION, go on reading the old one for a release, add a golden file of it to the tests.
"""

from __future__ import annotations

import struct
from typing import Final, final

from google_crc32c import value as checksum_of
from librt.strings import BytesWriter
from mypy_extensions import i64

from millstream.storage.little_endian import read_u32
from millstream.storage.records.session_records import FactFault, Reader

FOLDER: Final = "stages"
SUFFIX: Final = ".stage"
UNFINISHED_SUFFIX: Final = ".part"
ID_LENGTH: Final = 32
VERSION: Final = 1
HEADER_SIZE_MAX: Final = 64 * 1024
BLOCK_ROWS_MAX: Final[i64] = 256
BLOCK_BYTES_MAX: Final[i64] = 256 * 1024  # a larger row has a block of its own
ROW_HEAD_SIZE: Final[i64] = 18
FILE_MAGIC: Final = 0x4753534D  # MSSG
BLOCK_MAGIC: Final = 0x4253534D  # MSSB
FOOTER_MAGIC: Final = 0x4653534D  # MSSF

_START: Final = struct.Struct("<IIII")
_NUMBERS: Final = struct.Struct("<QIQ")
_U32: Final = struct.Struct("<I")
_BLOCK: Final = struct.Struct("<IIII")
_BLOCK_REST: Final = struct.Struct("<II")
_ROW: Final = struct.Struct("<BBIIII")
_FOOTER: Final = struct.Struct("<IIQII")
_FOOTER_REST: Final = struct.Struct("<QII")
START_SIZE: Final = _START.size
BLOCK_HEAD_SIZE: Final = _BLOCK.size
FOOTER_SIZE: Final = _FOOTER.size


class StageFault(Exception):
    """A stage that cannot be used: a clause that says why."""


def stage_name(stage: str) -> str:
    return f"{FOLDER}/{stage}{SUFFIX}"


def is_stage_id(text: str) -> bool:
    return len(text) == ID_LENGTH and not text.strip("0123456789abcdef")


def find_stage_id(name: str) -> str:
    """The id in the name of a file; empty: it is no whole stage."""
    stage = name.rpartition("/")[2].removesuffix(SUFFIX)
    return stage if name == stage_name(stage) and is_stage_id(stage) else ""


@final
class StageHeader:
    def __init__(
        self,
        account: str,
        owner: str,
        query: str,
        queue: str,
        batch: int,
        partition: int,
        attempt: int,
    ) -> None:
        self.account = account
        self.owner = owner
        self.query = query
        self.queue = queue  # empty: each row names its topic
        self.batch = batch
        self.partition = partition
        self.attempt = attempt


@final
class StageFooter:
    def __init__(self, rows: int, blocks: int, largest: int) -> None:
        self.rows = rows
        self.blocks = blocks
        self.largest = largest  # bytes of topic, properties and payload together


@final
class StagedRow:
    def __init__(
        self, topic: bytes, properties: bytes, payload: bytes, guarantee: i64, retain: bool, expiry_s: i64
    ) -> None:
        self.topic = topic
        self.properties = properties
        self.payload = payload
        self.guarantee: i64 = guarantee
        self.retain = retain
        self.expiry_s: i64 = expiry_s  # runs from the moment it is published


def encode_header(header: StageHeader) -> bytes:
    parts = [_NUMBERS.pack(header.batch, header.partition, header.attempt)]
    for text in (header.account, header.owner, header.query, header.queue):
        part = text.encode()
        parts.append(_U32.pack(len(part)))
        parts.append(part)
    rest = b"".join(parts)
    return _START.pack(FILE_MAGIC, VERSION, len(rest), checksum_of(rest)) + rest


def decode_header_size(data: bytes) -> int:
    """The size of the whole header, from its first bytes."""
    if len(data) < START_SIZE:
        raise StageFault("the file is too short for its header")
    magic, version, size, _ = _START.unpack_from(data)
    if magic != FILE_MAGIC or size > HEADER_SIZE_MAX:
        raise StageFault("the header of the file is damaged")
    if version > VERSION:
        raise StageFault(f"the file has format {version}; this release reads up to {VERSION}")
    return START_SIZE + int(size)


def decode_header(data: bytes) -> StageHeader:
    end = decode_header_size(data)
    rest = data[START_SIZE:end]
    if len(data) < end or checksum_of(rest) != _START.unpack_from(data)[3]:
        raise StageFault("the header of the file is damaged")
    batch, partition, attempt = _NUMBERS.unpack_from(rest)
    reader = Reader(rest, _NUMBERS.size)
    try:
        account, owner, query, queue = reader.take(), reader.take(), reader.take(), reader.take()
    except FactFault:
        raise StageFault("the header of the file is damaged") from None
    return StageHeader(
        account.decode(), owner.decode(), query.decode(), queue.decode(), batch, partition, attempt
    )


def encode_footer(footer: StageFooter) -> bytes:
    rest = _FOOTER_REST.pack(footer.rows, footer.blocks, footer.largest)
    return struct.pack("<II", FOOTER_MAGIC, checksum_of(rest)) + rest


def decode_footer(data: bytes) -> StageFooter:
    if len(data) != FOOTER_SIZE:
        raise StageFault("the file ends before its footer")
    magic, checksum, rows, blocks, largest = _FOOTER.unpack(data)
    if magic != FOOTER_MAGIC or checksum_of(data[8:]) != checksum:
        raise StageFault("the footer of the file is damaged")
    return StageFooter(rows, blocks, largest)


@final
class BlockHead:
    def __init__(self, checksum: int, size: int, count: int) -> None:
        self.checksum = checksum
        self.size = size
        self.count = count


def decode_block_head(data: bytes, position: int) -> BlockHead:
    if position + BLOCK_HEAD_SIZE > len(data):
        raise StageFault("the file ends inside a block")
    magic, checksum, size, count = _BLOCK.unpack_from(data, position)
    if magic != BLOCK_MAGIC:
        raise StageFault("the head of a block is damaged")
    return BlockHead(checksum, size, count)


def check_block(head: BlockHead, rows: bytes) -> None:
    if len(rows) != head.size:
        raise StageFault("the file ends inside a block")
    if checksum_of(_BLOCK_REST.pack(head.size, head.count) + rows) != head.checksum:
        raise StageFault("the checksum of a block is wrong")


def decode_rows(rows: bytes, count: int) -> list[StagedRow]:
    """The rows of a block whose checksum is right."""
    found: list[StagedRow] = []
    at: i64 = 0
    end: i64 = len(rows)
    for _ in range(count):
        if at + ROW_HEAD_SIZE > end:
            raise StageFault("a block ends inside a row")
        topic_at: i64 = at + ROW_HEAD_SIZE
        properties_at: i64 = topic_at + read_u32(rows, at + 6)
        payload_at: i64 = properties_at + read_u32(rows, at + 10)
        next_at: i64 = payload_at + read_u32(rows, at + 14)
        if next_at > end:
            raise StageFault("a block ends inside a row")
        row = StagedRow(
            rows[topic_at:properties_at],
            rows[properties_at:payload_at],
            rows[payload_at:next_at],
            rows[at],
            rows[at + 1] != 0,
            read_u32(rows, at + 2),
        )
        found.append(row)
        at = next_at
    return found


@final
class StageWriter:
    """Turns rows into the bytes of a stage. `take` gives what is ready to be written; `finish` the rest with the footer."""

    def __init__(self, header: StageHeader) -> None:
        self._ready: list[bytes] = [encode_header(header)]
        self._rows = BytesWriter()
        self._count: i64 = 0
        self._blocks: i64 = 0
        self.rows: i64 = 0
        self.largest: i64 = 0

    def add(
        self, topic: bytes, properties: bytes, payload: bytes, guarantee: int, retain: bool, expiry_s: int
    ) -> None:
        size: i64 = len(topic) + len(properties) + len(payload)
        if self._count and len(self._rows) + ROW_HEAD_SIZE + size > BLOCK_BYTES_MAX:
            self._end_block()
        writer = self._rows
        writer.write(_ROW.pack(guarantee, retain, expiry_s, len(topic), len(properties), len(payload)))
        writer.write(topic)
        writer.write(properties)
        writer.write(payload)
        self._count += 1
        self.rows += 1
        if size > self.largest:
            self.largest = size
        if self._count >= BLOCK_ROWS_MAX:
            self._end_block()

    def add_rows(
        self,
        topics: list[bytes],
        properties: list[bytes],
        payloads: list[bytes],
        guarantees: list[int],
        retains: list[bool],
        expiries_s: list[int],
    ) -> None:
        """Columns of equal length."""
        for at in range(len(payloads)):
            self.add(topics[at], properties[at], payloads[at], guarantees[at], retains[at], expiries_s[at])

    def take(self) -> list[bytes]:
        ready = self._ready
        self._ready = []
        return ready

    def finish(self) -> list[bytes]:
        if self._count:
            self._end_block()
        footer = StageFooter(int(self.rows), int(self._blocks), int(self.largest))
        self._ready.append(encode_footer(footer))
        return self.take()

    def _end_block(self) -> None:
        rows = self._rows.getvalue()
        self._rows.truncate(0)
        rest = _BLOCK_REST.pack(len(rows), int(self._count))
        self._ready.append(struct.pack("<II", BLOCK_MAGIC, checksum_of(rest + rows)) + rest)
        self._ready.append(rows)
        self._count = 0
        self._blocks += 1
