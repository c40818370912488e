"""Columns of a table while they grow, in the memory layout of Arrow; no library of Arrow is needed for that.

A column is used for one batch after the other: `begin`, then rows, then `take`. The memory it grows in stays.

    numbers   one behind the other, little-endian; rows without a value are holes, told by a bit a row
    plain     of texts: their bytes one behind the other, and where each begins (32 bits)
    view      of texts: 16 bytes a row. The size (32 bits), then the text itself if it has up to twelve bytes, zeros
              behind it; otherwise its first four bytes, the number of a data buffer and the place in it (32 bits each)

A view column keeps equal texts of one piece once: topics and names of clients come again and again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_le,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from librt.vecs import vec
from mypy_extensions import i32, i64, u8

INLINE_MAX: Final[i64] = 12
_WORDS_MAX: Final[i64] = 512  # longer texts are copied faster through an object
# The lowest bytes of a word, by their number. Not a shift: compiled, a constant is shifted in 32 bits.
_BITS: Final = bytes([1 << bit for bit in range(8)])  # a table: compiled, a constant is shifted in 32 bits
_MASKS: Final = b"".join([((1 << 8 * count) - 1).to_bytes(8, "little") for count in range(8)])
_KEPT_MAX: Final[i64] = 32 * 1024 * 1024
_SLOTS: Final = 1024
_SLOT_MASK: Final[i64] = _SLOTS - 1
_NO_SLOTS: Final[list[i64]] = [-1] * (3 * _SLOTS)
_MIX: Final[i64] = 0x45D9F3B
_WORD_MASK: Final[i64] = 0x7FFFFFFF


@final
class Buffers:
    """One column, done. `validity` is None if no row is without a value."""

    def __init__(self, validity: bytes | None, nulls: int, values: bytes, data: list[bytes]) -> None:
        self.validity = validity
        self.nulls = nulls
        self.values = values  # numbers, views, or where plain texts begin
        self.data = data


@final
class Validity:
    """One bit a row, set where there is a value. Only the rows that differ from the others are told, in order."""

    def __init__(self, is_mostly_set: bool) -> None:
        self._bits = BytesWriter()
        self._is_mostly_set = is_mostly_set
        self._told: i64 = 0

    def begin(self) -> None:
        self._bits.truncate(0)
        self._told = 0

    def tell(self, row: i64) -> None:
        bits = self._bits
        at: i64 = row >> 3
        self._fill(at + 1)
        bits[at] = bits[at] ^ u8(_BITS[row & 7])
        self._told += 1

    def nulls(self, rows: i64) -> int:
        return int(self._told if self._is_mostly_set else rows - self._told)

    def take(self, rows: i64) -> bytes | None:
        """None if all rows have a value."""
        if self.nulls(rows) == 0:
            return None
        self._fill((rows + 7) >> 3)
        return self._bits.getvalue()

    def _fill(self, size: i64) -> None:
        bits = self._bits
        usual: u8 = 255 if self._is_mostly_set else 0
        while len(bits) < size:
            bits.append(usual)


@final
class NumberColumn:
    """Numbers of which some are missing; only rows with one are told, in order."""

    def __init__(self) -> None:
        self._numbers = BytesWriter()
        self._validity = Validity(False)

    def begin(self) -> None:
        self._numbers.truncate(0)
        self._validity.begin()

    def set(self, row: i64, number: i64) -> None:
        self._fill(row)
        write_i64_le(self._numbers, number)
        self._validity.tell(row)

    def take(self, rows: i64) -> Buffers:
        self._fill(rows)
        return Buffers(self._validity.take(rows), self._validity.nulls(rows), self._numbers.getvalue(), [])

    def _fill(self, rows: i64) -> None:
        numbers = self._numbers
        while len(numbers) < rows << 3:
            write_i64_le(numbers, 0)


class TextColumn(ABC):
    """Texts or bytes. `spans` tells for every row where its text lies in the piece."""

    @abstractmethod
    def begin(self) -> None:
        """Forget all rows."""

    @abstractmethod
    def add(self, piece: bytes, spans: Spans) -> None: ...

    @abstractmethod
    def take(self) -> Buffers: ...


@final
class Spans:
    """Pairs of numbers (32 bits) in a table of rows: `lead` bytes before a text begins, `gap` bytes behind its end.

    A row in which the first is below 0 has no text; with `is_empty_null`, neither has one whose text is empty.
    """

    def __init__(
        self, table: bytes, stride: i64, start: i64, end: i64, gap: i64, lead: i64, is_empty_null: bool
    ) -> None:
        self.table = table
        self.stride: i64 = stride
        self.start: i64 = start
        self.end: i64 = end
        self.gap: i64 = gap
        self.lead: i64 = lead
        self.is_empty_null = is_empty_null


def _emptied(writer: BytesWriter) -> BytesWriter:
    if len(writer) > _KEPT_MAX:
        return BytesWriter()  # one huge text is no reason to keep so much for ever
    writer.truncate(0)
    return writer


def append_bytes(writer: BytesWriter, piece: bytes, at: i64, size: i64) -> None:
    """piece[at : at + size], without an object for what is short."""
    if size > _WORDS_MAX:
        writer.write(piece[at : at + size])
        return
    end: i64 = at + size
    while at + 8 <= end:
        write_i64_le(writer, read_i64_le(piece, at))
        at += 8
    if size & 4 != 0:
        write_i32_le(writer, read_i32_le(piece, at))
        at += 4
    if size & 2 != 0:
        write_i16_le(writer, read_i16_le(piece, at))
        at += 2
    if size & 1 != 0:
        writer.append(piece[at])


def append_inline(views: BytesWriter, piece: bytes, at: i64, size: i64) -> None:
    """The view of a text of up to twelve bytes."""
    if at + 16 > len(piece):
        piece = piece[at : at + size] + bytes(16)
        at = 0
    first: i64 = i64(read_i32_le(piece, at))
    if size <= 4:
        if size < 4:
            first &= read_i64_le(_MASKS, 8 * size)
        write_i64_le(views, size | (first << 32))
        write_i64_le(views, 0)
        return
    rest: i64 = read_i64_le(piece, at + 4)
    if size < INLINE_MAX:
        rest &= read_i64_le(_MASKS, 8 * (size - 4))
    write_i64_le(views, size | (first << 32))
    write_i64_le(views, rest)


def same_bytes(piece: bytes, one: i64, other: i64, size: i64) -> bool:
    """Whether two texts of more than eight bytes are equal."""
    if read_i64_le(piece, one + size - 8) != read_i64_le(piece, other + size - 8):
        return False
    at: i64 = 0
    while at + 8 < size:
        if read_i64_le(piece, one + at) != read_i64_le(piece, other + at):
            return False
        at += 8
    return True


@final
class PlainColumn(TextColumn):
    """`is_rare`: few rows have a text."""

    def __init__(self, is_rare: bool = False) -> None:
        self._places = BytesWriter()
        self._data = BytesWriter()
        self._validity = Validity(not is_rare)
        self._is_rare = is_rare
        self._rows: i64 = 0
        self.begin()

    def begin(self) -> None:
        self._places.truncate(0)
        write_i32_le(self._places, 0)
        self._data = _emptied(self._data)
        self._validity.begin()
        self._rows = 0

    def add(self, piece: bytes, spans: Spans) -> None:
        places, data, table = self._places, self._data, spans.table
        start: i64 = spans.start
        end: i64 = spans.end
        gap: i64 = spans.gap
        lead: i64 = spans.lead
        stride: i64 = spans.stride
        is_empty_null = spans.is_empty_null
        is_rare = self._is_rare
        row: i64 = self._rows
        place: i64 = 0
        limit: i64 = len(table)
        while place < limit:
            at: i64 = i64(read_i32_le(table, place + start)) + lead
            size: i64 = i64(read_i32_le(table, place + end)) - gap - at
            if size > 0:
                append_bytes(data, piece, at, size)
            if (at < 0 or (size == 0 and is_empty_null)) != is_rare:
                self._validity.tell(row)
            write_i32_le(places, i32(len(data)))
            place += stride
            row += 1
        self._rows = row

    def append(self, piece: bytes, at: i64, size: i64) -> None:
        append_bytes(self._data, piece, at, size)
        write_i32_le(self._places, i32(len(self._data)))
        self._rows += 1

    def take(self) -> Buffers:
        nulls = self._validity.nulls(self._rows)
        data = [self._data.getvalue()]
        return Buffers(self._validity.take(self._rows), nulls, self._places.getvalue(), data)


@final
class ViewColumn(TextColumn):
    """Its texts are copied into a buffer of its own; with `is_repeating` equal ones of a piece mostly once.

    `is_rare`: few rows have a text.
    """

    def __init__(self, is_repeating: bool, is_rare: bool = False) -> None:
        self._views = BytesWriter()
        self._data = BytesWriter()
        self._validity = Validity(not is_rare)
        self._is_rare = is_rare
        self._rows: i64 = 0
        self._is_repeating = is_repeating
        # By hash: where an equal text may lie in this piece, its size, and where it lies in the data.
        self._slots = vec[i64](_NO_SLOTS if is_repeating else [])

    def begin(self) -> None:
        self._views.truncate(0)
        self._data = _emptied(self._data)
        self._validity.begin()
        self._rows = 0

    def add(self, piece: bytes, spans: Spans) -> None:
        views, data, table = self._views, self._data, spans.table
        start: i64 = spans.start
        end: i64 = spans.end
        gap: i64 = spans.gap
        lead: i64 = spans.lead
        stride: i64 = spans.stride
        is_empty_null = spans.is_empty_null
        is_repeating = self._is_repeating
        is_rare = self._is_rare
        slots = self._forget_slots()
        row: i64 = self._rows
        place: i64 = 0
        limit: i64 = len(table)
        slot: i64 = 0
        while place < limit:
            at: i64 = i64(read_i32_le(table, place + start)) + lead
            size: i64 = i64(read_i32_le(table, place + end)) - gap - at
            if (at < 0 or (size == 0 and is_empty_null)) != is_rare:
                self._validity.tell(row)
            place += stride
            row += 1
            if size <= 0:
                write_i64_le(views, 0)
                write_i64_le(views, 0)
                continue
            if size <= INLINE_MAX:
                append_inline(views, piece, at, size)
                continue
            found: i64 = len(data)
            if is_repeating:
                tail: i64 = read_i64_le(piece, at + size - 8) ^ i64(read_i32_le(piece, at + size - 12))
                slot = 3 * (((((tail ^ (tail >> 32) ^ size) & _WORD_MASK) * _MIX) >> 20) & _SLOT_MASK)
            if is_repeating and slots[slot + 1] == size and same_bytes(piece, slots[slot], at, size):
                found = slots[slot + 2]
            else:
                append_bytes(data, piece, at, size)
                if is_repeating:
                    slots[slot] = at
                    slots[slot + 1] = size
                    slots[slot + 2] = found
            write_i64_le(views, size | (i64(read_i32_le(piece, at)) << 32))
            write_i64_le(views, found << 32)
        self._rows = row

    def take(self) -> Buffers:
        nulls = self._validity.nulls(self._rows)
        data = [self._data.getvalue()] if len(self._data) else []
        return Buffers(self._validity.take(self._rows), nulls, self._views.getvalue(), data)

    def _forget_slots(self) -> vec[i64]:
        """Places in the piece before mean nothing in this one."""
        slots = self._slots
        at: i64 = 1
        while at < len(slots):
            slots[at] = -1
            at += 3
        return slots


@final
class PieceViewColumn(TextColumn):
    """Nothing is copied: the data buffers are pieces of the segment, in the order they were added."""

    def __init__(self) -> None:
        self._views = BytesWriter()
        self._buffer: i64 = 0
        self._base: i64 = 0

    def begin(self) -> None:
        self._views.truncate(0)

    def begin_buffer(self, buffer: i64, base: i64) -> None:
        """Views added from now on lie in this buffer, which begins at `base` of the piece."""
        self._buffer = buffer
        self._base = base

    def add(self, piece: bytes, spans: Spans) -> None:
        views, table = self._views, spans.table
        start: i64 = spans.start
        end: i64 = spans.end
        gap: i64 = spans.gap
        lead: i64 = spans.lead
        stride: i64 = spans.stride
        base: i64 = self._base
        buffer: i64 = self._buffer
        place: i64 = 0
        limit: i64 = len(table)
        while place < limit:
            at: i64 = i64(read_i32_le(table, place + start)) + lead
            size: i64 = i64(read_i32_le(table, place + end)) - gap - at
            if size <= INLINE_MAX:
                append_inline(views, piece, at, size)
            else:
                write_i64_le(views, size | (i64(read_i32_le(piece, at)) << 32))
                write_i64_le(views, buffer | ((at - base) << 32))
            place += stride

    def take(self) -> Buffers:
        return Buffers(None, 0, self._views.getvalue(), [])
