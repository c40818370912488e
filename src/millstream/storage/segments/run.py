"""Checks the records of a piece of a segment all at once: one checksum over the piece instead of one a record.

Checksums of this kind add up. That of two texts, one behind the other, follows from those of the parts and the size of
the second. So from the checksums that stand in the records the one the whole piece must have is worked out, a few
table look-ups a record, and it is computed only once over the bytes as they lie there.

What that finds: a fault in one record is found as surely as by that record's own checksum. Faults in several records
would have to cancel each other out, one chance in 2**32. It does not say which record is bad: then `scan` walks
over the same bytes, one by one, and it alone decides what is damage.
"""

from __future__ import annotations

from typing import Final, final

from google_crc32c import value
from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from millstream.storage.segments.format import PLACE_SIZE, RECORD_HEAD_SIZE

_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final[i64] = 0xFFFFFFFF
_TABLE: Final[i64] = 1024  # bytes of 256 numbers
_LEVEL: Final[i64] = 4096  # bytes of four tables
_LEVELS: Final = 32
_KNOWN_MAX: Final = 768  # 3 MiB of tables, if every size comes up
_PREFIX: Final[i64] = 32  # head of the record and place of the body
_SIZE_MIN: Final[i64] = PLACE_SIZE
_HEAD: Final[i64] = RECORD_HEAD_SIZE


def _byte_table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = (register >> 1) ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return table


def _encode(numbers: list[int]) -> bytes:
    return b"".join([number.to_bytes(4, "little") for number in numbers])


def _make_steps() -> bytes:
    """Eight tables that take the register over eight bytes: the first is for the last of them."""
    first = _byte_table()
    tables = [first]
    for _ in range(7):
        tables.append([(number >> 8) ^ first[number & 255] for number in tables[-1]])
    return b"".join([_encode(table) for table in tables])


def _spread(columns: list[int]) -> list[int]:
    """What comes of every byte, from what comes of its bits."""
    numbers = [0]
    for column in columns:
        numbers += [number ^ column for number in numbers]
    return numbers


def _apply(columns: list[int], number: int) -> int:
    result = 0
    for bit in range(32):
        if (number >> bit) & 1:
            result ^= columns[bit]
    return result


def _make_shifts() -> bytes:
    """For every power of two four tables, by byte of the register, that take it over so many zero bytes."""
    table = _byte_table()
    columns = [(number >> 8) ^ table[number & 255] for number in [1 << bit for bit in range(32)]]
    parts: list[bytes] = []
    for _ in range(_LEVELS):
        for byte in range(4):
            parts.append(_encode(_spread(columns[8 * byte : 8 * byte + 8])))
        columns = [_apply(columns, number) for number in columns]
    return b"".join(parts)


_STEPS: Final = _make_steps()
_SHIFTS: Final = _make_shifts()
_KNOWN: Final[list[bytes]] = [b""] * _KNOWN_MAX  # four tables for each small size, as they come up


def _shift(total: i64, size: i64) -> i64:
    """What a checksum adds to that of a text in which `size` bytes follow. Only the lower 32 bits mean something."""
    shifts = _SHIFTS
    at: i64 = 0
    while size != 0:
        if size & 1 != 0:
            found: i64 = i64(read_i32_le(shifts, at + 4 * (total & 255)))
            found ^= i64(read_i32_le(shifts, at + _TABLE + 4 * ((total >> 8) & 255)))
            found ^= i64(read_i32_le(shifts, at + 2 * _TABLE + 4 * ((total >> 16) & 255)))
            total = found ^ i64(read_i32_le(shifts, at + 3 * _TABLE + 4 * ((total >> 24) & 255)))
        size >>= 1
        at += _LEVEL
    return total


def _learn(size: i64) -> bytes:
    """Make the tables that do the same for this one size in a single step."""
    tables = _KNOWN[size] = b"".join(
        [
            _encode(_spread([int(_shift(1 << bit, size) & _MASK) for bit in range(8 * byte, 8 * byte + 8)]))
            for byte in range(4)
        ]
    )
    return tables


@final
class Run:
    """Good records, one behind the other, at the beginning of a piece."""

    def __init__(self, end: i64, first: i64, last: i64, is_sound: bool) -> None:
        self.end: i64 = end  # behind the last of them
        self.first: i64 = first  # offset of the first of them
        self.last: i64 = last  # and of the last
        self.is_sound = is_sound  # False: some record before `end` is damaged


def find_run(piece: bytes, queue: i64, last: i64) -> Run:
    """All whole records from the start of a piece that are of this queue, with offsets that rise from `last`."""
    limit: i64 = len(piece)
    position: i64 = 0
    total: i64 = 0  # checksum of all before the position, if every record has the one it says
    steps = _STEPS
    known = _KNOWN
    while position + _PREFIX <= limit:
        head: i64 = read_i64_le(piece, position)
        size: i64 = head & _MASK
        offset: i64 = read_i64_le(piece, position + 16)
        if size < _SIZE_MIN or position + _HEAD + size > limit:
            break
        if read_i64_le(piece, position + 8) != queue or offset <= last:
            break
        # Written out, for these lines run once a record: first over the eight bytes of the head,
        low: i64 = total ^ -1 ^ head
        high: i64 = head >> 32
        total = -1 ^ i64(read_i32_le(steps, 7 * _TABLE + 4 * (low & 255)))
        total ^= i64(read_i32_le(steps, 6 * _TABLE + 4 * ((low >> 8) & 255)))
        total ^= i64(read_i32_le(steps, 5 * _TABLE + 4 * ((low >> 16) & 255)))
        total ^= i64(read_i32_le(steps, 4 * _TABLE + 4 * ((low >> 24) & 255)))
        total ^= i64(read_i32_le(steps, 3 * _TABLE + 4 * (high & 255)))
        total ^= i64(read_i32_le(steps, 2 * _TABLE + 4 * ((high >> 8) & 255)))
        total ^= i64(read_i32_le(steps, _TABLE + 4 * ((high >> 16) & 255)))
        total ^= i64(read_i32_le(steps, 4 * ((high >> 24) & 255)))
        if size < _KNOWN_MAX:  # then over the body, whose checksum stands in the head.
            tables = known[size]
            if len(tables) == 0:
                tables = _learn(size)
            low = i64(read_i32_le(tables, 4 * (total & 255)))
            low ^= i64(read_i32_le(tables, _TABLE + 4 * ((total >> 8) & 255)))
            low ^= i64(read_i32_le(tables, 2 * _TABLE + 4 * ((total >> 16) & 255)))
            total = high ^ low ^ i64(read_i32_le(tables, 3 * _TABLE + 4 * ((total >> 24) & 255)))
        else:
            total = high ^ _shift(total, size)
        position += _HEAD + size
        last = offset
    if position == 0:
        return Run(0, -1, last, True)
    rest_sum: i64 = value(piece[position:])
    whole_sum: i64 = value(piece)
    total = _shift(total, limit - position) ^ rest_sum
    return Run(position, read_i64_le(piece, 16), last, (total ^ whole_sum) & _MASK == 0)
