"""Field tables: named, typed values, nested tables and arrays among them, with RabbitMQ's type letters.

    t bool   b B s u I i l L integers of 1, 1, 2, 2, 4, 4, 8, 8 bytes (B u i unsigned)   f d floats   D decimal
    T seconds since 1970   V nothing   S text or bytes   x bytes   A array   F table

Invariants
- `check_table` is the only place that decides what is well formed: every length lies inside what is left, tables
  nest at most DEPTH_MAX deep and hold at most VALUES_MAX values, those in nested ones counted. Building comes after.
- What is wrong with received bytes raises Violation; what cannot be written raises ValueError: the caller's error.
- Numbers come out as they are, not as they were written: a short integer is written back as a longer one.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_f64_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i32, i64, u8

from millstream.protocols.amqp091.wire.codes import SYNTAX_ERROR
from millstream.protocols.amqp091.wire.violation import Violation

FieldTable: TypeAlias = dict[bytes, object]

DEPTH_MAX: Final[i64] = 32
VALUES_MAX: Final[i64] = 8192  # a letter that died a hundred times, and what it had before
NAME_LENGTH_MAX: Final[i64] = 255

_ARRAY: Final[i64] = 0x41  # A
_UNSIGNED_8: Final[i64] = 0x42  # B
_DECIMAL: Final[i64] = 0x44  # D
_TABLE: Final[i64] = 0x46  # F
_SIGNED_32: Final[i64] = 0x49  # I
_LONG_STRING: Final[i64] = 0x53  # S
_TIMESTAMP: Final[i64] = 0x54  # T
_SIGNED_8: Final[i64] = 0x62  # b
_FLOAT_64: Final[i64] = 0x64  # d
_FLOAT_32: Final[i64] = 0x66  # f
_UNSIGNED_32: Final[i64] = 0x69  # i
_SIGNED_64: Final[i64] = 0x6C  # l
_SIGNED_16: Final[i64] = 0x73  # s
_BOOLEAN: Final[i64] = 0x74  # t
_UNSIGNED_16: Final[i64] = 0x75  # u
_BYTE_ARRAY: Final[i64] = 0x78  # x
_VOID: Final[i64] = 0x56  # V

_FIXED: Final[dict[str, int]] = {
    "t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "f": 4, "d": 8, "D": 5, "T": 8, "V": 0,
}  # fmt: skip
_COUNTED: Final[i64] = 0xFE
_UNKNOWN: Final[i64] = 0xFF


def _make_widths() -> bytes:
    widths = bytearray(b"\xff" * 256)
    for letter, width in _FIXED.items():
        widths[ord(letter)] = width
    for letter in "SxAF":
        widths[ord(letter)] = 0xFE
    return bytes(widths)


_WIDTHS: Final = _make_widths()  # bytes a value takes, by its letter


@final
class Decimal091:
    """`value` shifted right by `scale` decimal places; both unsigned."""

    def __init__(self, scale: int, value: int) -> None:
        self.scale = scale
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decimal091) and self.scale == other.scale and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.scale, self.value))

    def __repr__(self) -> str:
        return f"Decimal091({self.scale}, {self.value})"


@final
class Timestamp:
    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.seconds == other.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __repr__(self) -> str:
        return f"Timestamp({self.seconds})"


@final
class Long:
    """An integer to be written with eight bytes, however small it is."""

    def __init__(self, value: int) -> None:
        self.value = value


@final
class ByteArray:
    """Bytes that are no text: letter x, where `bytes` stands for letter S."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteArray) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"ByteArray({self.data!r})"


# ------------------------------------------------------------- reading


def decode_table(buffer: bytes, position: i64, end: i64) -> tuple[FieldTable, i64]:
    """The table at `position`, which begins with its length, and the position after it."""
    after: i64 = check_table(buffer, position, end)
    return _build_table(buffer, position + 4, after), after


def check_table(buffer: bytes, position: i64, end: i64) -> i64:
    """The position after the table at `position`, whose every byte is then known to be well formed."""
    if position + 4 > end:
        raise Violation(SYNTAX_ERROR, "the length of a table is cut short")
    after: i64 = position + 4 + (i64(read_i32_be(buffer, position)) & 0xFFFFFFFF)
    if after > end:
        raise Violation(SYNTAX_ERROR, "a table is longer than what is left")
    _check_values(buffer, position + 4, after, True, 1, 0)
    return after


def _check_values(buffer: bytes, at: i64, end: i64, is_named: bool, depth: i64, count: i64) -> i64:
    """Checks the inside of a table (named values) or of an array, and gives `count` plus the values in it."""
    if depth > DEPTH_MAX:
        raise Violation(SYNTAX_ERROR, f"tables and arrays nest deeper than {int(DEPTH_MAX)}")
    while at < end:
        count += 1
        if count > VALUES_MAX:
            raise Violation(SYNTAX_ERROR, f"a table has more than {int(VALUES_MAX)} values")
        if is_named:
            at += 1 + i64(buffer[at])
            if at >= end:
                raise Violation(SYNTAX_ERROR, "a table ends inside the name of a value")
        letter: i64 = buffer[at]
        at += 1
        width: i64 = _WIDTHS[letter]
        if width < _COUNTED:
            at += width
        elif width == _UNKNOWN:
            raise Violation(SYNTAX_ERROR, f"there is no type 0x{int(letter):02x} of table values")
        else:
            if at + 4 > end:
                raise Violation(SYNTAX_ERROR, "a table ends inside the length of a value")
            at += 4
            after: i64 = at + (i64(read_i32_be(buffer, at - 4)) & 0xFFFFFFFF)
            if after <= end and (letter in (_TABLE, _ARRAY)):
                count = _check_values(buffer, at, after, letter == _TABLE, depth + 1, count)
            at = after
        if at > end:
            raise Violation(SYNTAX_ERROR, "a table ends inside a value")
    return count


def after_value(buffer: bytes, at: i64) -> i64:
    """The position after the value whose letter stands at `at`, in a checked table."""
    width: i64 = _WIDTHS[buffer[at]]
    if width < _COUNTED:
        return at + 1 + width
    return at + 5 + (i64(read_i32_be(buffer, at + 1)) & 0xFFFFFFFF)


def _build_table(buffer: bytes, at: i64, end: i64) -> FieldTable:
    table: FieldTable = {}
    while at < end:
        value_at: i64 = at + 1 + i64(buffer[at])
        name = buffer[at + 1 : value_at]
        at = after_value(buffer, value_at)
        table[name] = _build_value(buffer, value_at, at)
    return table


def _build_array(buffer: bytes, at: i64, end: i64) -> list[object]:
    values: list[object] = []
    while at < end:
        value_at: i64 = at
        at = after_value(buffer, value_at)
        values.append(_build_value(buffer, value_at, at))
    return values


def _build_value(buffer: bytes, letter_at: i64, end: i64) -> object:
    letter: i64 = buffer[letter_at]
    at: i64 = letter_at + 1
    if letter == _LONG_STRING:
        return buffer[at + 4 : end]
    if letter == _TABLE:
        return _build_table(buffer, at + 4, end)
    if letter == _ARRAY:
        return _build_array(buffer, at + 4, end)
    if letter == _BYTE_ARRAY:
        return ByteArray(buffer[at + 4 : end])
    if letter == _BOOLEAN:
        return buffer[at] != 0
    if letter == _TIMESTAMP:
        return Timestamp(_unsigned_64(buffer, at))
    if letter == _DECIMAL:
        return Decimal091(buffer[at], int(i64(read_i32_be(buffer, at + 1)) & 0xFFFFFFFF))
    if letter == _FLOAT_64:
        return read_f64_be(buffer, at)
    if letter == _FLOAT_32:
        return read_f32_be(buffer, at)
    if letter == _VOID:
        return None
    return int(_integer(buffer, letter, at))


def _integer(buffer: bytes, letter: i64, at: i64) -> i64:
    if letter == _SIGNED_32:
        return i64(read_i32_be(buffer, at))
    if letter == _UNSIGNED_32:
        return i64(read_i32_be(buffer, at)) & 0xFFFFFFFF
    if letter == _SIGNED_16:
        return i64(read_i16_be(buffer, at))
    if letter == _UNSIGNED_16:
        return i64(read_i16_be(buffer, at)) & 0xFFFF
    if letter == _UNSIGNED_8:
        return i64(buffer[at])
    if letter == _SIGNED_8:
        byte: i64 = buffer[at]
        return byte - 256 if byte > 127 else byte
    return read_i64_be(buffer, at)


def _unsigned_64(buffer: bytes, at: i64) -> int:
    value = int(read_i64_be(buffer, at))
    return value if value >= 0 else value + (1 << 64)


# ------------------------------------------------------------- writing


def encode_table(table: FieldTable) -> bytes:
    """The table with its length in front."""
    return _with_length(encode_entries(table))


def encode_entries(table: FieldTable, depth: int = 1) -> bytes:
    """The named values of a table one after the other, without a length: to be put into another table."""
    _check_depth(depth)
    writer = BytesWriter()
    for name, value in table.items():
        if len(name) > NAME_LENGTH_MAX:
            raise ValueError(f"a name of {len(name)} bytes does not fit into a table, 255 is the most")
        writer.append(u8(len(name)))
        writer.write(name)
        _write_value(writer, value, depth)
    return writer.getvalue()


def _encode_array(values: list[object], depth: int) -> bytes:
    _check_depth(depth)
    writer = BytesWriter()
    for value in values:
        _write_value(writer, value, depth)
    return writer.getvalue()


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"tables and arrays nest deeper than {int(DEPTH_MAX)}")


def _with_length(inside: bytes) -> bytes:
    return encode_number(len(inside), 4) + inside


def _write_value(writer: BytesWriter, value: object, depth: int) -> None:
    if isinstance(value, bytes):
        _write_counted(writer, _LONG_STRING, value)
    elif isinstance(value, str):
        _write_counted(writer, _LONG_STRING, value.encode("utf-8"))
    elif isinstance(value, bool):
        writer.append(u8(_BOOLEAN))
        writer.append(u8(1 if value else 0))
    elif isinstance(value, int):
        _write_integer(writer, value)
    elif isinstance(value, float):
        writer.append(u8(_FLOAT_64))
        write_f64_be(writer, value)
    elif isinstance(value, dict):
        _write_counted(writer, _TABLE, encode_entries(value, depth + 1))
    elif isinstance(value, list):
        _write_counted(writer, _ARRAY, _encode_array(value, depth + 1))
    elif value is None:
        writer.append(u8(_VOID))
    elif isinstance(value, Timestamp):
        writer.append(u8(_TIMESTAMP))
        writer.write(encode_number(value.seconds, 8))
    elif isinstance(value, ByteArray):
        _write_counted(writer, _BYTE_ARRAY, value.data)
    elif isinstance(value, Long):
        writer.append(u8(_SIGNED_64))
        write_i64_be(writer, i64(value.value))
    elif isinstance(value, Decimal091):
        writer.append(u8(_DECIMAL))
        writer.write(encode_number(value.scale, 1))
        writer.write(encode_number(value.value, 4))
    else:
        raise ValueError(f"a table cannot hold a value of type {type(value).__name__}")


def _write_counted(writer: BytesWriter, letter: i64, data: bytes) -> None:
    writer.append(u8(letter))
    write_i32_be(writer, i32(len(data)))
    writer.write(data)


def _write_integer(writer: BytesWriter, value: int) -> None:
    if -(1 << 31) <= value < 1 << 31:
        writer.append(u8(_SIGNED_32))
        write_i32_be(writer, i32(value))
    elif -(1 << 63) <= value < 1 << 63:
        writer.append(u8(_SIGNED_64))
        write_i64_be(writer, i64(value))
    else:
        raise ValueError(f"{value} does not fit into the eight bytes of a table's integer")


def encode_number(value: int, size: int) -> bytes:
    """Unsigned, most significant byte first."""
    if not 0 <= value < 1 << (8 * size):
        raise ValueError(f"{value} does not fit into {size} bytes")
    return value.to_bytes(size, "big")
