"""JSON payloads to columns, in C++, whole batches at once; and the rows that will not, one by one.

Invariants
- What a payload decodes to depends on that payload alone, not on its neighbours: the columnar way is tried on many
  rows, and every row it does not take goes the way of `json_values`, which agrees with it.
- The columnar reader sees only rows that are UTF-8, begin with { and end with }. Such rows cannot melt into each other
  (between two rows stands `}`, a line end and `{`, which no JSON holds outside a text, and a text holds no line end),
  so as many values as rows means one value for each row. It also keeps a bare `null` away, at which the reader crashes.
- The work on a batch of nothing but bad rows is bounded: after some failures all that is left goes one by one.
"""

from __future__ import annotations

import re
from typing import Final

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pyspark_millstream.decode.arrays import array_of, check_times, has_type, interleave
from pyspark_millstream.decode.faults import DecodeOptionError, Fault, RowError
from pyspark_millstream.decode.json_values import make_converter, parse_object
from pyspark_millstream.decode.json_wide import rows_not_whole, wide_type

PIECE_BYTES_MAX: Final = 16 << 20  # joined and parsed at once
FEW_ROWS: Final = 24  # below it the columnar reader costs more to start than it saves
ROWS_PER_FAILURE: Final = 64  # a failed attempt costs about as much as so many rows one by one
# Only the columnar reader knows Inf for Infinity, a NaN with a sign, and things nested by the thousand.
COLUMNAR_ONLY: Final = (b"Inf", b"-NaN", b"[" * 64, b'{"":' * 64)

Taken = tuple[numpy.ndarray, pa.StructArray]  # rows of a batch, and what they hold

_ROW_OF_FAILURE: Final = re.compile(r"in row ([0-9]{1,9})\Z")


class JsonColumns:
    """Decodes payloads to structs of one type."""

    def __init__(self, target: pa.StructType, piece_bytes_max: int = PIECE_BYTES_MAX) -> None:
        _check_map_keys(target)
        self._target = target
        self._piece_bytes_max = piece_bytes_max
        self._convert = make_converter(target)
        self._is_columnar = not has_type(target, _is_unknown)
        self._has_decimals = has_type(target, pa.types.is_decimal)
        self._wire = _wire_type(target)
        self._wide = wide_type(self._wire)
        self._wire_options = _parse_options(self._wire)
        self._wide_options = _parse_options(self._wide)

    def decode(self, payloads: pa.BinaryArray) -> tuple[pa.StructArray, list[Fault]]:
        """One struct for each payload; null and a fault where it cannot be decoded."""
        count = len(payloads)
        taken: list[Taken] = []
        left = numpy.arange(count)
        if self._is_columnar and count > FEW_ROWS:
            taken = self._read_columns(payloads)
            is_left = numpy.ones(count, dtype=bool)
            for rows, _ in taken:
                is_left[rows] = False
            left = numpy.flatnonzero(is_left)
        faults: list[Fault] = []
        if len(left) or not taken:
            part, found = self._decode_rows(payloads.take(pa.array(left)).to_pylist())
            taken.append((left, part))
            faults = [Fault(int(left[fault.row]), fault.reason) for fault in found]
        return interleave([part for _, part in taken], [rows for rows, _ in taken], count), faults

    def _read_columns(self, payloads: pa.BinaryArray) -> list[Taken]:
        """The rows that the columnar reader takes."""
        fit = _fit_rows(payloads)
        taken: list[Taken] = []
        attempts = _Attempts(1 + len(fit) // ROWS_PER_FAILURE)
        waiting = _pieces(payloads, fit, self._piece_bytes_max)
        while waiting:
            rows = waiting.pop()
            if len(rows) > FEW_ROWS:
                self._read_rows(payloads, rows, taken, waiting, attempts)
        return taken

    def _read_rows(
        self,
        payloads: pa.BinaryArray,
        rows: numpy.ndarray,
        taken: list[Taken],
        waiting: list[numpy.ndarray],
        attempts: _Attempts,
    ) -> None:
        """Read these rows, or put parts of them to `waiting`. A row that is in neither is for the slow way."""
        some = payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
        start = 0  # rows from here on are not yet looked at; those before are sound, but for `bad`
        bad: list[int] = []
        while start < len(rows):
            try:
                taken.append((rows[start:], self._read_piece(some.slice(start))))
                break
            except (pa.ArrowInvalid, RowError) as failure:
                place = _place_of(failure)
            if not attempts.may_go_on():
                break
            if place is None or start + place >= len(rows):
                self._read_wide(some.slice(start), rows[start:], taken, waiting)
                break
            bad.append(start + place)
            start += place + 1
        if start:
            waiting.append(numpy.delete(rows[:start], bad))

    def _read_wide(
        self,
        some: pa.BinaryArray,
        rows: numpy.ndarray,
        taken: list[Taken],
        waiting: list[numpy.ndarray],
    ) -> None:
        """All of it is JSON of the right shape, but something does not fit its type."""
        if self._wide != self._wire:
            try:
                part = self._parse_piece(some, self._wide_options, self._wide)
                is_bad = rows_not_whole(part, self._wire)
                part = self._finish(part.filter(pa.array(~is_bad)))
            except (pa.ArrowInvalid, RowError):
                pass
            else:
                taken.append((rows[~is_bad], part))
                return
        middle = len(rows) // 2
        waiting += [rows[middle:], rows[:middle]]

    def _read_piece(self, payloads: pa.BinaryArray) -> pa.StructArray:
        return self._finish(self._parse_piece(payloads, self._wire_options, self._wire))

    def _parse_piece(
        self, payloads: pa.BinaryArray, options: pyarrow.json.ParseOptions, kind: pa.StructType
    ) -> pa.StructArray:
        lines = pa.ListArray.from_arrays(pa.array([0, len(payloads)], pa.int32()), payloads)
        text = pc.binary_join(lines, b"\n")[0].as_buffer()
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=options,
        )
        if table.num_rows != len(payloads):
            raise RowError("a row holds more than one value")
        columns = [column.combine_chunks() for column in table.select(kind.names).columns]
        return pa.StructArray.from_arrays(columns, fields=list(kind))

    def _finish(self, part: pa.StructArray) -> pa.StructArray:
        if self._has_decimals:
            part.validate(full=True)  # the reader lets a decimal have more digits than its type
        if part.type != self._target:
            part = part.cast(self._target)
        check_times(part)
        return part

    def _decode_rows(self, payloads: list[bytes | None]) -> tuple[pa.StructArray, list[Fault]]:
        values: list[object] = []
        faults: list[Fault] = []
        for row, payload in enumerate(payloads):
            try:
                values.append(self._convert(parse_object(payload or b"")))
            except RowError as fault:
                found = self._find_alone(payload or b"")
                values.append(found)
                if found is None:
                    faults.append(Fault(row, str(fault)))
        part, more = array_of(values, self._target)
        return part, faults + more

    def _find_alone(self, payload: bytes) -> object:
        """What the columnar reader makes of a row that Python's reader refuses, if it can be more than nothing."""
        if not (self._is_columnar and any(mark in payload for mark in COLUMNAR_ONLY)):
            return None
        row = pa.array([payload], pa.binary())
        try:
            return self._read_piece(row)[0].as_py() if len(_fit_rows(row)) else None
        except (pa.ArrowInvalid, RowError):
            return None


class _Attempts:
    """How many more failures a batch is worth."""

    def __init__(self, left: int) -> None:
        self._left = left

    def may_go_on(self) -> bool:
        self._left -= 1
        return self._left > 0


def _parse_options(kind: pa.StructType) -> pyarrow.json.ParseOptions:
    return pyarrow.json.ParseOptions(
        explicit_schema=pa.schema(list(kind)), newlines_in_values=False, unexpected_field_behavior="ignore"
    )


def _check_map_keys(target: pa.DataType) -> None:
    if pa.types.is_map(target) and not pa.types.is_string(target.key_type):
        raise DecodeOptionError("payloadSchema has a map whose keys are not strings", "JSON has no other.")
    for place in range(target.num_fields):
        _check_map_keys(target.field(place).type)


def _is_unknown(kind: pa.DataType) -> bool:
    """Maps and base64 are unknown to the columnar reader."""
    return bool(pa.types.is_map(kind) or pa.types.is_binary(kind))


def _wire_type(target: pa.DataType) -> pa.DataType:
    """What the columnar reader is asked for: it takes a date for a number of days, so dates come as text."""
    if pa.types.is_struct(target):
        return pa.struct([pa.field(field.name, _wire_type(field.type)) for field in target])
    if pa.types.is_list(target):
        return pa.list_(target.value_field.with_type(_wire_type(target.value_type)))
    return pa.string() if pa.types.is_date(target) else target


def _fit_rows(payloads: pa.BinaryArray) -> numpy.ndarray:
    """The rows that the columnar reader may see, rising."""
    has_braces = pc.and_(pc.starts_with(payloads, b"{"), pc.ends_with(payloads, b"}"))
    rows = numpy.flatnonzero(pc.fill_null(has_braces, False).to_numpy(zero_copy_only=False))
    fit = payloads if len(rows) == len(payloads) else payloads.take(pa.array(rows))
    not_text = _rows_not_text(fit)
    return numpy.delete(rows, not_text) if not_text else rows


def _rows_not_text(payloads: pa.BinaryArray) -> list[int]:
    """The rows that are not UTF-8."""
    found: list[int] = []
    ranges = [(0, len(payloads))]
    while ranges:
        first, end = ranges.pop()
        try:
            payloads.slice(first, end - first).cast(pa.string())
        except pa.ArrowInvalid:
            if end - first == 1:
                found.append(first)
            else:
                middle = (first + end) // 2
                ranges += [(first, middle), (middle, end)]
    return found


def _pieces(payloads: pa.BinaryArray, rows: numpy.ndarray, bytes_max: int) -> list[numpy.ndarray]:
    """These rows in parts that are joined at once, last first; a part is larger only when it is one row."""
    if payloads.nbytes <= bytes_max or not len(rows):
        return [rows]
    lengths = pc.binary_length(payloads).to_numpy(zero_copy_only=False)[rows]
    ends = numpy.cumsum(lengths, dtype=numpy.int64)
    pieces: list[numpy.ndarray] = []
    first = 0
    while first < len(rows):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(numpy.searchsorted(ends, before + bytes_max, side="right")))
        pieces.append(rows[first:end])
        first = end
    pieces.reverse()
    return pieces


def _place_of(failure: Exception) -> int | None:
    """The row that the failure names, from 0; a conversion that fails names none."""
    match = _ROW_OF_FAILURE.search(str(failure))
    return int(match[1]) if match else None
