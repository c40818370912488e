"""Ranges of a stream queue as Arrow record batches, straight from the segments.

The columns come from `storage.segments.columns` in Arrow's own memory layout; here they only get their types. Nothing is
copied, and no object is made for a row.

    plain   string and binary: what every reader knows
    view    string_view and binary_view: equal topics and names stand once in a batch; payloads that are most of their
            records stay where they are, in the piece that was read from the segment

Invariants
- Rows are those of the offsets asked for, in order, each once: what is gone raises `Trimmed`, what is damaged `Damaged`
  (unless damage is to be skipped; then it is listed): after the rows before the hole, before any behind it.
- Columns are always in the order of COLUMNS, whatever order they were asked for in; headers come last.
- A batch holds no more than `rows` rows and `bytes_max` bytes of records, or a single row that is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.column_buffers import Buffers
from millstream.storage.segments.columns import (
    CLIENT_ID,
    CONTENT_TYPE,
    EVENT_TIME,
    HEADERS,
    OFFSET,
    PAYLOAD,
    PRODUCER_SEQUENCE,
    QOS,
    TIMESTAMP,
    TOPIC,
    ColumnBatch,
    RowFilter,
)
from millstream.storage.segments.format import OFFSET_MAX
from millstream.storage.segments.pieces import PIECE_SIZE, Damaged, Piece, SegmentPieces, Trimmed
from millstream.storage.segments.property_columns import HEADERS_LIST, HEADERS_MAP, HEADERS_NONE

QUEUE: Final = "queue"
PARTITION: Final = "partition"
COLUMNS: Final = (
    QUEUE,
    PARTITION,
    OFFSET,
    TIMESTAMP,
    EVENT_TIME,
    TOPIC,
    PAYLOAD,
    CONTENT_TYPE,
    CLIENT_ID,
    QOS,
    PRODUCER_SEQUENCE,
)
PLAIN: Final = "plain"
VIEW: Final = "view"
LAYOUTS: Final = (PLAIN, VIEW)
HEADERS_KINDS: Final = {"none": HEADERS_NONE, "map": HEADERS_MAP, "array": HEADERS_LIST}
ROWS: Final = 10_000
ROWS_MAX: Final = 1 << 20
BYTES_MAX: Final = 16 * 1024 * 1024

_TIME: Final = pa.timestamp("us", tz="UTC")
_NUMBERS: Final = {
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: _TIME,
    EVENT_TIME: _TIME,
    QOS: pa.int32(),
    PRODUCER_SEQUENCE: pa.int64(),
}
_PAIR: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
_HEADERS: Final = {"map": pa.map_(pa.string(), pa.string()), "array": pa.list_(_PAIR)}


class ColumnFault(ValueError):
    """What was asked for does not exist; the text says what does."""


def schema_of(columns: Sequence[str] = COLUMNS, layout: str = PLAIN, headers: str = "none") -> pa.Schema:
    for name in columns:
        if name not in COLUMNS:
            raise ColumnFault(f"there is no column {name!r:.80}; there are {', '.join(COLUMNS)}")
    if layout not in LAYOUTS:
        raise ColumnFault(f"there is no layout {layout!r:.80}; there are {', '.join(LAYOUTS)}")
    if headers not in HEADERS_KINDS:
        raise ColumnFault(f"headers cannot be {headers!r:.80}; they are one of {', '.join(HEADERS_KINDS)}")
    fields = [pa.field(name, _type_of(name, layout)) for name in COLUMNS if name in columns]
    if headers != "none":
        fields.append(pa.field(HEADERS, _HEADERS[headers]))
    if not fields:
        raise ColumnFault(f"no column is asked for; there are {', '.join(COLUMNS)}")
    return pa.schema(fields)


def _type_of(name: str, layout: str) -> pa.DataType:
    if name in _NUMBERS:
        return _NUMBERS[name]
    if layout == VIEW:
        return pa.binary_view() if name == PAYLOAD else pa.string_view()
    return pa.binary() if name == PAYLOAD else pa.string()


class SegmentBatches(Iterator[pa.RecordBatch]):
    """The rows of one queue with `first` <= offset < `end`. Times are nanoseconds of the wall clock, the end excluded.

    `close` it if it was not read to its end.
    """

    def __init__(
        self,
        disk: Disk,
        queue: int,
        name: str,
        first: int,
        end: int,
        *,
        columns: Sequence[str] = COLUMNS,
        rows: int = ROWS,
        layout: str = PLAIN,
        headers: str = "none",
        since_ns: int = 0,
        until_ns: int = OFFSET_MAX,
        topic_filter: bytes = b"",
        skips_damage: bool = False,
        bytes_max: int = BYTES_MAX,
        piece_size: int = PIECE_SIZE,
    ) -> None:
        self.schema: pa.Schema = schema_of(columns, layout, headers)
        names = list(self.schema.names)
        rows = min(max(rows, 1), ROWS_MAX)
        chosen = RowFilter(first, end, since_ns, until_ns, topic_filter)
        self._batch = ColumnBatch(names, layout == VIEW, HEADERS_KINDS[headers], chosen, rows, bytes_max)
        self._pieces = SegmentPieces(disk, queue, first, end, since_ns, skips_damage, piece_size)
        self._piece: Piece | None = None
        self._position = 0
        self._fault: Trimmed | Damaged | DiskFault | None = None
        self._constants = _Constants(name, layout)
        self._makers: list[Callable[[ColumnBatch], pa.Array]] = [self._maker_of(name) for name in names]

    @property
    def damage(self) -> list[Damage]:
        """What was skipped so far, and headers of segments that could not be read although their records could."""
        return self._pieces.damage

    def __iter__(self) -> SegmentBatches:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self._batch
        batch.begin()
        if self._fault is None:
            try:
                self._fill(batch)
            except (Trimmed, Damaged, DiskFault) as fault:
                self._fault = fault  # told when the rows before it are out
        if not batch.rows:
            self.close()
            if self._fault is not None:
                raise self._fault
            raise StopIteration
        return pa.RecordBatch.from_arrays([make(batch) for make in self._makers], schema=self.schema)

    def close(self) -> None:
        self._piece = None
        self._pieces.close()

    def _fill(self, batch: ColumnBatch) -> None:
        while not batch.is_full:
            if self._piece is None:
                self._piece = self._pieces.take()
                self._position = 0
                if self._piece is None:
                    return
            self._add(batch, self._piece)
            if batch.is_done:
                self.close()
                return

    def _add(self, batch: ColumnBatch, piece: Piece) -> None:
        self._position = batch.add(piece.data, self._position, piece.size)
        if batch.faulty_end:
            start, self._position = self._position, batch.faulty_end
            self._pieces.on_senseless(piece, start, self._position)
        if self._position >= piece.size:
            self._piece = None

    # ------------------------------------------------------------------------ columns

    def _maker_of(self, name: str) -> Callable[[ColumnBatch], pa.Array]:
        kind = self.schema.field(name).type
        if name in (QUEUE, PARTITION):
            return lambda batch: self._constants.take(name, batch.rows)
        if name == HEADERS:
            return lambda batch: _headers_array(kind, batch)
        if name in (OFFSET, TIMESTAMP, QOS):
            return lambda batch: _array(kind, batch.rows, batch.take_fixed(name))
        if name in (EVENT_TIME, PRODUCER_SEQUENCE):
            return lambda batch: _array(kind, batch.rows, batch.take_numbers(name))
        if name == PAYLOAD:
            return lambda batch: _payload_array(kind, batch)
        return lambda batch: _array(kind, batch.rows, batch.take_texts(name))


def _array(kind: pa.DataType, rows: int, column: Buffers, data: Sequence[pa.Buffer] = ()) -> pa.Array:
    buffers: list[pa.Buffer | None] = [None if column.validity is None else pa.py_buffer(column.validity)]
    buffers.append(pa.py_buffer(column.values))
    buffers += [pa.py_buffer(part) for part in column.data]
    buffers += data
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def _payload_array(kind: pa.DataType, batch: ColumnBatch) -> pa.Array:
    data = [
        pa.py_buffer(piece).slice(start, end - start)
        for piece, (start, end) in zip(batch.pieces, batch.spans, strict=True)
    ]
    return _array(kind, batch.rows, batch.take_texts(PAYLOAD), data)


def _headers_array(kind: pa.DataType, batch: ColumnBatch) -> pa.Array:
    lists, keys, values = batch.take_headers()
    pairs = len(keys.values) // 4 - 1
    children = [_array(pa.string(), pairs, keys), _array(pa.string(), pairs, values)]
    fields = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else list(_PAIR)
    pair = pa.StructArray.from_arrays(children, fields=fields)
    validity = None if lists.validity is None else pa.py_buffer(lists.validity)
    return pa.Array.from_buffers(
        kind, batch.rows, [validity, pa.py_buffer(lists.values)], lists.nulls, children=[pair]
    )


class _Constants:
    """Columns that hold the same in every row: made once, as long as the longest batch so far."""

    def __init__(self, name: str, layout: str) -> None:
        self._name = name
        self._kind = _type_of(QUEUE, layout)
        self._arrays: dict[str, pa.Array] = {}

    def take(self, name: str, rows: int) -> pa.Array:
        array = self._arrays.get(name)
        if array is None or len(array) < rows:
            array = self._arrays[name] = self._make(name, rows)
        return array.slice(0, rows)

    def _make(self, name: str, rows: int) -> pa.Array:
        if name == PARTITION:
            return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))], 0)
        return pa.repeat(pa.scalar(self._name, pa.string()), rows).cast(self._kind)
