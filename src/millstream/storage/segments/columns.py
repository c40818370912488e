"""Records of a segment as columns of a table, in the memory layout of Arrow, for those who read many at once.

Records are checked before they come here (`pieces`). A piece is walked once to choose rows and to find the
parts of their bodies, which are checked to lie inside; then each column that is wanted takes its part of all rows. No
object is made for a row.

Invariants
- All columns of a batch have the same rows, in the order of the records.
- A batch ends at its number of rows or at its bytes, whichever comes first, but holds at least one row if there is one.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from millstream.model.topic import matches
from millstream.storage.records.queue_records import HEAD_SIZE
from millstream.storage.segments.column_buffers import (
    Buffers,
    NumberColumn,
    PieceViewColumn,
    PlainColumn,
    Spans,
    TextColumn,
    ViewColumn,
)
from millstream.storage.segments.format import OFFSET_MAX, RECORD_HEAD_SIZE
from millstream.storage.segments.property_columns import HEADERS_NONE, PropertyColumns

OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
EVENT_TIME: Final = "event_time"
TOPIC: Final = "topic"
PAYLOAD: Final = "payload"
CONTENT_TYPE: Final = "content_type"
CLIENT_ID: Final = "client_id"
QOS: Final = "qos"
PRODUCER_SEQUENCE: Final = "producer_sequence"
HEADERS: Final = "headers"

_TOPICS_KNOWN_MAX: Final = 4096
_MESSAGE_HEAD: Final[i64] = 14  # guarantee, retain, expiry, size of the topic
_RECORD_HEAD: Final[i64] = RECORD_HEAD_SIZE

# A row in the table of places: where its parts begin in the piece, 32 bits each.
_BODY: Final[i64] = 0
_MESSAGE: Final[i64] = 4
_PROPERTIES: Final[i64] = 8
_PUBLISHER: Final[i64] = 12
_PAYLOAD: Final[i64] = 16
_END: Final[i64] = 20
_ROW: Final[i64] = 24


@final
class RowFilter:
    """Which records become rows. Times are nanoseconds of the wall clock; an empty filter takes every topic."""

    def __init__(
        self, first: i64, end: i64, since_ns: i64 = 0, until_ns: i64 = OFFSET_MAX, topic_filter: bytes = b""
    ) -> None:
        self.first: i64 = first
        self.end: i64 = end
        self.since_ns: i64 = since_ns
        self.until_ns: i64 = until_ns
        self._filter = topic_filter
        self.has_filter = topic_filter != b""
        self.is_sparse = self.has_filter or since_ns > 0 or until_ns < OFFSET_MAX
        self._known: dict[bytes, bool] = {}

    def takes(self, topic: bytes) -> bool:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= _TOPICS_KNOWN_MAX:
                self._known.clear()
            known = self._known[topic] = matches(self._filter, topic)
        return known


@final
class Places:
    """The rows chosen from a piece."""

    def __init__(self) -> None:
        self.table = b""
        self.rows: i64 = 0
        self.size: i64 = 0  # of their records
        self.position: i64 = 0  # behind the last record looked at
        self.faulty_end: i64 = 0  # behind a record whose body makes no sense, at `position`; 0: there is none
        self.is_done = False  # the end that was asked for is reached

    def end(self, table: bytes, rows: i64, size: i64, position: i64) -> None:
        self.table = table
        self.rows = rows
        self.size = size
        self.position = position


def find_places(
    piece: bytes, start: i64, limit: i64, chosen: RowFilter, rows_max: i64, size_max: i64, is_begun: bool
) -> Places:
    """Choose rows among the records of piece[start:limit], which are whole and checked.

    The first row is taken whatever its size, unless others came before it.
    """
    found = Places()
    table = BytesWriter()
    position: i64 = start
    rows: i64 = 0
    size: i64 = 0
    end: i64 = chosen.end
    has_filter = chosen.has_filter
    while position < limit and rows < rows_max:
        body: i64 = position + _RECORD_HEAD
        behind: i64 = body + i64(read_i32_le(piece, position))
        offset: i64 = read_i64_le(piece, body + 8)
        time_ns: i64 = read_i64_le(piece, body + 16)
        if offset >= end:
            found.is_done = True
            break
        if offset < chosen.first or time_ns < chosen.since_ns or time_ns >= chosen.until_ns:
            position = behind
            continue
        # The parts of the body, each behind its size. A part that would not end inside the body ends the walk.
        message: i64 = body + HEAD_SIZE
        if message <= behind and piece[message - 1] != 0:  # the size of a producer's name
            message += i64(piece[message - 1]) + 8
        topic: i64 = message + _MESSAGE_HEAD
        properties: i64 = -1  # and no conditional expression, which would make an object for every row
        if topic <= behind:
            properties = topic + 4 + i64(read_i32_le(piece, topic - 4))
        publisher: i64 = -1
        payload: i64 = -1
        parts_end: i64 = -1
        if topic + 4 <= properties <= behind:
            publisher = properties + 4 + i64(read_i32_le(piece, properties - 4))
            if properties + 4 <= publisher <= behind:
                payload = publisher + 4 + i64(read_i32_le(piece, publisher - 4))
                if publisher + 4 <= payload <= behind:
                    parts_end = payload + i64(read_i32_le(piece, payload - 4))
        if payload < 0 or parts_end < payload or parts_end > behind:
            found.faulty_end = behind
            break
        if has_filter and not chosen.takes(piece[topic : properties - 4]):
            position = behind
            continue
        if (rows != 0 or is_begun) and size + (behind - position) > size_max:
            break
        write_i64_le(table, body | (message << 32))
        write_i64_le(table, properties | (publisher << 32))
        write_i64_le(table, payload | (parts_end << 32))
        rows += 1
        size += behind - position
        position = behind
    found.end(table.getvalue(), rows, size, position)
    return found


@final
class ColumnBatch:
    """The columns of a batch while it grows, piece by piece; of one batch after the other."""

    def __init__(
        self,
        columns: list[str],
        is_view: bool,
        headers_kind: int,
        chosen: RowFilter,
        rows_max: i64,
        size_max: i64,
    ) -> None:
        self._chosen = chosen
        self._rows_max: i64 = rows_max
        self._size_max: i64 = size_max
        self.rows: i64 = 0
        self.size: i64 = 0  # of the records in it
        self.faulty_end: i64 = 0  # behind a senseless record, at which the last `add` ended; 0: there is none
        self.is_full = False
        self.is_done = False
        # Data buffers of the payloads where these are not copied: pieces, and which part of them.
        self.pieces: list[bytes] = []
        self.spans: list[tuple[int, int]] = []
        self._is_view = is_view
        self._offsets = BytesWriter() if OFFSET in columns else None
        self._times = BytesWriter() if TIMESTAMP in columns else None
        self._guarantees = BytesWriter() if QOS in columns else None
        self._sequences = NumberColumn() if PRODUCER_SEQUENCE in columns else None
        self._topics = _text_column(TOPIC in columns, is_view, False)
        self._client_ids = _text_column(CLIENT_ID in columns, is_view, False)
        self._content_types = _text_column(CONTENT_TYPE in columns, is_view, True)
        self._has_payload = PAYLOAD in columns
        self._copied: TextColumn = ViewColumn(False) if is_view else PlainColumn()
        self._in_pieces = PieceViewColumn()
        self._is_copied = True  # the payloads of this batch are
        self._properties: PropertyColumns | None = None
        if EVENT_TIME in columns or CONTENT_TYPE in columns or headers_kind != HEADERS_NONE:
            self._properties = PropertyColumns(headers_kind)

    def begin(self) -> None:
        """Forget all rows; what was taken stays as it is."""
        self.rows = 0
        self.size = 0
        self.faulty_end = 0
        self.is_full = False
        self.is_done = False
        self.pieces = []
        self.spans = []
        for writer in (self._offsets, self._times, self._guarantees):
            if writer is not None:
                writer.truncate(0)
        for column in (self._topics, self._client_ids, self._content_types, self._copied, self._in_pieces):
            if column is not None:
                column.begin()
        if self._sequences is not None:
            self._sequences.begin()
        if self._properties is not None:
            self._properties.begin()

    def add(self, piece: bytes, start: i64, limit: i64) -> i64:
        """Take rows from the records of piece[start:limit]; gives where it ended."""
        rows_left: i64 = self._rows_max - self.rows
        size_left: i64 = self._size_max - self.size
        found = find_places(piece, start, limit, self._chosen, rows_left, size_left, self.rows != 0)
        self.is_done = found.is_done
        self.faulty_end = found.faulty_end
        if found.rows != 0:
            self._add_rows(piece, found, start)
        self.is_full = self.rows >= self._rows_max or (
            not found.is_done and found.faulty_end == 0 and found.position < limit
        )
        return found.position

    def _add_rows(self, piece: bytes, found: Places, start: i64) -> None:
        table = found.table
        if self._offsets is not None:
            _add_offsets(self._offsets, piece, table)
        if self._times is not None:
            _add_times(self._times, piece, table)
        if self._guarantees is not None:
            _add_guarantees(self._guarantees, piece, table)
        if self._sequences is not None:
            _add_sequences(self._sequences, piece, table, self.rows)
        if self._topics is not None:
            self._topics.add(piece, Spans(table, _ROW, _MESSAGE, _PROPERTIES, 4, _MESSAGE_HEAD, False))
        if self._properties is not None:
            blocks = Spans(table, _ROW, _PROPERTIES, _PUBLISHER, 4, 0, False)
            types = self._properties.add(piece, self.rows, blocks)
            if self._content_types is not None:
                self._content_types.add(piece, Spans(types, 8, 0, 4, 0, 0, False))
        if self._client_ids is not None:
            self._client_ids.add(piece, Spans(table, _ROW, _PUBLISHER, _PAYLOAD, 4, 0, True))
        if self._has_payload:
            self._add_payloads(piece, found, start)
        self.rows += found.rows
        self.size += found.size

    def _add_payloads(self, piece: bytes, found: Places, start: i64) -> None:
        spans = Spans(found.table, _ROW, _PAYLOAD, _END, 0, 0, False)
        if self.rows == 0:
            self._is_copied = not self._is_view or self._is_copy_shorter(found)
        if self._is_copied:
            self._copied.add(piece, spans)
            return
        self._in_pieces.begin_buffer(len(self.pieces), start)
        self.pieces.append(piece)
        self.spans.append((int(start), int(found.position)))
        self._in_pieces.add(piece, spans)

    def _is_copy_shorter(self, found: Places) -> bool:
        """Where most of a record is payload the piece can go out as it is; else payloads are copied, for less to go."""
        end: i64 = i64(read_i32_le(found.table, _END))
        payload: i64 = end - i64(read_i32_le(found.table, _PAYLOAD))
        record: i64 = end - i64(read_i32_le(found.table, _BODY))
        return self._chosen.is_sparse or 4 * payload < 3 * record

    # ------------------------------------------------------------------- what came of it

    def take_fixed(self, name: str) -> Buffers:
        """Of offsets and times (64 bits), guarantees (32 bits)."""
        writer = self._offsets if name == OFFSET else self._times if name == TIMESTAMP else self._guarantees
        assert writer is not None, f"{name} was not asked for"
        return Buffers(None, 0, writer.getvalue(), [])

    def take_numbers(self, name: str) -> Buffers:
        if name == PRODUCER_SEQUENCE:
            assert self._sequences is not None, "producer sequences were not asked for"
            return self._sequences.take(self.rows)
        assert self._properties is not None, "event times were not asked for"
        return self._properties.event_times.take(self.rows)

    def take_texts(self, name: str) -> Buffers:
        column: TextColumn | None = self._copied if self._is_copied else self._in_pieces
        if name == TOPIC:
            column = self._topics
        elif name == CLIENT_ID:
            column = self._client_ids
        elif name == CONTENT_TYPE:
            column = self._content_types
        assert column is not None, f"{name} was not asked for"
        return column.take()

    def take_headers(self) -> tuple[Buffers, Buffers, Buffers]:
        """(lists, names, values)"""
        assert self._properties is not None, "headers were not asked for"
        headers = self._properties.headers
        return headers.take(), headers.keys.take(), headers.values.take()


def _text_column(is_wanted: bool, is_view: bool, is_rare: bool) -> TextColumn | None:
    if not is_wanted:
        return None
    return ViewColumn(True, is_rare) if is_view else PlainColumn(is_rare)


def _add_offsets(writer: BytesWriter, piece: bytes, table: bytes) -> None:
    place: i64 = 0
    limit: i64 = len(table)
    while place < limit:
        write_i64_le(writer, read_i64_le(piece, i64(read_i32_le(table, place)) + 8))
        place += _ROW


def _add_times(writer: BytesWriter, piece: bytes, table: bytes) -> None:
    """In microseconds."""
    place: i64 = 0
    limit: i64 = len(table)
    while place < limit:
        write_i64_le(writer, read_i64_le(piece, i64(read_i32_le(table, place)) + 16) // 1000)
        place += _ROW


def _add_guarantees(writer: BytesWriter, piece: bytes, table: bytes) -> None:
    place: i64 = _MESSAGE
    limit: i64 = len(table)
    while place < limit:
        guarantee: i64 = piece[i64(read_i32_le(table, place))]
        write_i32_le(writer, i32(guarantee))
        place += _ROW


def _add_sequences(column: NumberColumn, piece: bytes, table: bytes, row: i64) -> None:
    place: i64 = 0
    limit: i64 = len(table)
    while place < limit:
        message: i64 = i64(read_i32_le(table, place + _MESSAGE))
        if piece[i64(read_i32_le(table, place)) + HEAD_SIZE - 1] != 0:
            column.set(row, read_i64_le(piece, message - 8))
        place += _ROW
        row += 1
