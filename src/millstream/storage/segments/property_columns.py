"""What of the properties of messages is a column: content type, event time, user properties.

Properties are stored as an MQTT 5 property block without its length (`model/message`), behind what another protocol carries
for itself (`model/carried`). Only what belongs to a message stands in it; at anything else reading of that block ends,
and what was found before stays.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from millstream.model.native_properties import CARRIED
from millstream.storage.segments.column_buffers import Buffers, NumberColumn, PlainColumn, Spans, Validity

HEADERS_NONE: Final = 0
HEADERS_MAP: Final = 1  # of properties with one name only the last
HEADERS_LIST: Final = 2  # all, in order

EVENT_TIME_NAME: Final = b"event-time"
_EVENT_TIME_SIZE: Final[i64] = 10
_DIGITS_MAX: Final[i64] = 15
_YEAR_1_MS: Final[i64] = -62_135_596_800_000
_YEAR_9999_MS: Final[i64] = 253_402_300_799_999
NOT_A_TIME: Final[i64] = -(1 << 62)

_PAYLOAD_FORMAT: Final[i64] = 0x01
_MESSAGE_EXPIRY: Final[i64] = 0x02
_CONTENT_TYPE: Final[i64] = 0x03
_RESPONSE_TOPIC: Final[i64] = 0x08
_CORRELATION_DATA: Final[i64] = 0x09
_USER_PROPERTY: Final[i64] = 0x26


def _text_end(piece: bytes, at: i64, end: i64) -> i64:
    """Behind the text whose size (two bytes) stands at `at`; -1 if it does not end inside."""
    if at + 2 > end:
        return -1
    high: i64 = piece[at]
    low: i64 = piece[at + 1]
    behind: i64 = at + 2 + ((high << 8) | low)
    return behind if behind <= end else -1


def decode_milliseconds(piece: bytes, at: i64, end: i64) -> i64:
    """Decimal digits, `-` before them for times before 1970, as microseconds; or NOT_A_TIME.

    Only the years 1 to 9999: publishers choose it, and readers break on what no calendar of theirs can hold.
    """
    is_negative = at < end and piece[at] == 45
    if is_negative:
        at += 1
    if at >= end or end - at > _DIGITS_MAX:
        return NOT_A_TIME
    found: i64 = 0
    while at < end:
        digit: i64 = piece[at]
        digit -= 48
        if digit < 0 or digit > 9:
            return NOT_A_TIME
        found = found * 10 + digit
        at += 1
    if is_negative:
        found = -found
    return 1000 * found if _YEAR_1_MS <= found <= _YEAR_9999_MS else NOT_A_TIME


@final
class Headers:
    """User properties of all rows, as a list of pairs of texts a row. A row without any has no list."""

    def __init__(self, kind: int) -> None:
        self._is_map = kind == HEADERS_MAP
        self.keys = PlainColumn()
        self.values = PlainColumn()
        self._places = BytesWriter()
        self._validity = Validity(False)
        self._pairs: i64 = 0
        self._rows: i64 = 0
        self.begin()

    def begin(self) -> None:
        self.keys.begin()
        self.values.begin()
        self._places.truncate(0)
        write_i32_le(self._places, 0)
        self._validity.begin()
        self._pairs = 0
        self._rows = 0

    def add_row(self, piece: bytes, found: PropertyReader) -> None:
        count: i64 = found.pair_count
        if count == 1:
            self._append(piece, found.name_at, found.value_at, found.value_end)
        elif count:
            self._add_pairs(piece, found.pairs)
        if count:
            self._validity.tell(self._rows)
        self.skip_row()

    def skip_row(self) -> None:
        write_i32_le(self._places, i32(self._pairs))
        self._rows += 1

    def _add_pairs(self, piece: bytes, pairs: list[int]) -> None:
        at: i64 = 0
        while at < len(pairs) // 3:
            if not (self._is_map and _comes_again(piece, pairs, int(at))):
                self._append(piece, pairs[3 * at], pairs[3 * at + 1], pairs[3 * at + 2])
            at += 1

    def _append(self, piece: bytes, name: i64, value: i64, end: i64) -> None:
        self.keys.append(piece, name, value - 2 - name)
        self.values.append(piece, value, end - value)
        self._pairs += 1

    def take(self) -> Buffers:
        nulls = self._validity.nulls(self._rows)
        return Buffers(self._validity.take(self._rows), nulls, self._places.getvalue(), [])


def _comes_again(piece: bytes, pairs: list[int], at: int) -> bool:
    name = piece[pairs[3 * at] : pairs[3 * at + 1] - 2]
    for later in range(at + 1, len(pairs) // 3):
        if piece[pairs[3 * later] : pairs[3 * later + 1] - 2] == name:
            return True
    return False


@final
class PropertyReader:
    """Reads one block after the other; what it found in the last one stands in its fields.

    Of a user property they tell where its name begins, and where its value begins and ends, with sizes of two bytes before
    both. Mostly there is one: only of several a list is made, with three numbers for each.
    """

    def __init__(self, has_pairs: bool) -> None:
        self._has_pairs = has_pairs
        self.content_type_at: i64 = -1
        self.content_type_end: i64 = -1
        self.event_time: i64 = NOT_A_TIME
        self.pair_count: i64 = 0
        self.name_at: i64 = 0
        self.value_at: i64 = 0
        self.value_end: i64 = 0
        self.pairs: list[int] = []

    def read(self, piece: bytes, at: i64, end: i64) -> None:
        self.content_type_at = -1
        self.content_type_end = -1
        self.event_time = NOT_A_TIME
        self.pair_count = 0
        while at < end:
            kind: i64 = piece[at]
            at += 1
            if kind == _USER_PROPERTY:
                at = self._read_pair(piece, at, end)
            elif kind == _CONTENT_TYPE:
                self.content_type_at = at + 2
                at = self.content_type_end = _text_end(piece, at, end)
                if at < 0:
                    self.content_type_at = -1
            elif kind in (_RESPONSE_TOPIC, _CORRELATION_DATA, CARRIED):  # a size and as many bytes
                at = _text_end(piece, at, end)
            elif kind == _PAYLOAD_FORMAT:
                at += 1
            elif kind == _MESSAGE_EXPIRY:
                at += 4
            else:
                return
            if at < 0:
                return

    def _read_pair(self, piece: bytes, at: i64, end: i64) -> i64:
        name_end: i64 = _text_end(piece, at, end)
        if name_end < 0:
            return -1
        behind: i64 = _text_end(piece, name_end, end)
        if behind < 0:
            return -1
        name: i64 = at + 2
        if name_end - name == _EVENT_TIME_SIZE and piece[name:name_end] == EVENT_TIME_NAME:
            self.event_time = decode_milliseconds(piece, name_end + 2, behind)
        if self._has_pairs:
            self._note_pair(name, name_end + 2, behind)
        return behind

    def _note_pair(self, name: i64, value: i64, end: i64) -> None:
        self.pair_count += 1
        if self.pair_count == 1:
            self.name_at = name
            self.value_at = value
            self.value_end = end
            return
        if self.pair_count == 2:
            self.pairs = [int(self.name_at), int(self.value_at), int(self.value_end)]
        self.pairs.append(int(name))
        self.pairs.append(int(value))
        self.pairs.append(int(end))


@final
class PropertyColumns:
    """Event times, headers, and for content types the spans at which they lie in the piece."""

    def __init__(self, headers_kind: int) -> None:
        self.event_times = NumberColumn()
        self.headers = Headers(headers_kind)
        self._has_headers = headers_kind != HEADERS_NONE
        self._reader = PropertyReader(self._has_headers)

    def begin(self) -> None:
        self.event_times.begin()
        self.headers.begin()

    def add(self, piece: bytes, row: i64, blocks: Spans) -> bytes:
        """Where the content type of every row lies: two numbers a row, -1 where there is none."""
        found = BytesWriter()
        reader, table = self._reader, blocks.table
        place: i64 = 0
        while place < len(table):
            at: i64 = i64(read_i32_le(table, place + blocks.start))
            end: i64 = i64(read_i32_le(table, place + blocks.end)) - blocks.gap
            if at == end:
                write_i64_le(found, -1)
                if self._has_headers:
                    self.headers.skip_row()
            else:
                reader.read(piece, at, end)
                write_i32_le(found, i32(reader.content_type_at))
                write_i32_le(found, i32(reader.content_type_end))
                if reader.event_time != NOT_A_TIME:
                    self.event_times.set(row, reader.event_time)
                if self._has_headers:
                    self.headers.add_row(piece, reader)
            place += blocks.stride
            row += 1
        return found.getvalue()
