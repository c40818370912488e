"""One Arrow batch in, one batch per folder out.

Most batches belong to one folder: that costs two minima and maxima and copies nothing. A mixed batch is
ordered once by a small integer per row (stable, so offsets stay in order) and then sliced.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.partitioning import DATE, HOUR, PartitionField, Values

_EPOCH_DATE: Final = date(1970, 1, 1)
_EPOCH_TIME: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = (date.min - _EPOCH_DATE).days
_LAST_DAY: Final = (date.max - _EPOCH_DATE).days
_SPAN_US: Final = {DATE: 86_400_000_000, HOUR: 3_600_000_000}
_SMALL_CODES: Final = 32_767  # numpy sorts 16-bit integers by radix

Codes = npt.NDArray[np.int64]


class Splitter:
    """Cuts batches by the values of the partition fields; drops the columns that the folder names hold."""

    def __init__(self, fields: Sequence[PartitionField], keep_sources: bool) -> None:
        self._fields = tuple(fields)
        self._dropped = set() if keep_sources else {field.source for field in fields if not field.is_derived}

    def split(self, batch: pa.RecordBatch) -> list[tuple[Values, pa.RecordBatch]]:
        if batch.num_rows == 0:
            return []
        keys = [_key_column(batch, field) for field in self._fields]
        single = [_single_value(key) for key in keys]
        if all(is_single for is_single, _ in single):
            values = tuple(_text(f, value) for f, (_, value) in zip(self._fields, single, strict=True))
            return [(values, self._without_keys(batch))]
        return self._split_mixed(batch, keys)

    def _split_mixed(
        self, batch: pa.RecordBatch, keys: list[pa.Array]
    ) -> list[tuple[Values, pa.RecordBatch]]:
        codes, dictionaries = _codes_of(keys)
        data = self._without_keys(batch)
        steps = np.diff(codes)
        if (steps < 0).any():
            small = codes.astype(np.int16) if codes.max() < _SMALL_CODES else codes
            order = np.argsort(small, kind="stable")
            data = data.take(pa.array(order))
            codes = codes[order]
            steps = np.diff(codes)
        edges = [0, *(np.flatnonzero(steps) + 1).tolist(), batch.num_rows]
        parts = []
        for first, end in itertools.pairwise(edges):
            values = self._values_of(int(codes[first]), dictionaries)
            parts.append((values, data.slice(first, end - first)))
        return parts

    def _values_of(self, code: int, dictionaries: list[pa.Array]) -> Values:
        texts: list[str | None] = []
        for field, dictionary in zip(reversed(self._fields), reversed(dictionaries), strict=True):
            code, place = divmod(code, len(dictionary))
            texts.append(_text(field, dictionary[place].as_py()))
        return tuple(reversed(texts))

    def _without_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._dropped:
            return batch
        return batch.select([name for name in batch.schema.names if name not in self._dropped])


def _key_column(batch: pa.RecordBatch, field: PartitionField) -> pa.Array:
    column = batch.column(field.source)
    if not field.is_derived:
        return column
    # Whole days or hours since 1970: floor, so that times before it fall into the right one.
    unit = pc.cast(column, pa.timestamp("us", column.type.tz)).view(pa.int64())
    span = _SPAN_US[field.transform]
    least_most = pc.min_max(unit)
    least, most = least_most["min"].as_py(), least_most["max"].as_py()
    if least is not None and least // span == most // span and unit.null_count == 0:
        return pa.array([least // span], pa.int64())  # one value stands for all rows
    floored = np.floor_divide(pc.fill_null(unit, 0).to_numpy(zero_copy_only=False), span)
    mask = None if unit.null_count == 0 else unit.is_null().to_numpy(zero_copy_only=False)
    return pa.array(floored, pa.int64(), mask=mask)


def _single_value(key: pa.Array) -> tuple[bool, object]:
    if key.null_count:
        return key.null_count == len(key), None
    least_most = pc.min_max(key)
    least = least_most["min"].as_py()
    return least == least_most["max"].as_py(), least


def _codes_of(keys: list[pa.Array]) -> tuple[Codes, list[pa.Array]]:
    """One integer per row, and the dictionaries it is made of (mixed radix, the last field counts fastest)."""
    rows = max(len(key) for key in keys)
    codes: Codes = np.zeros(rows, np.int64)
    dictionaries: list[pa.Array] = []
    combinations = 1
    for key in keys:
        encoded = pc.dictionary_encode(key, null_encoding="encode")
        dictionaries.append(encoded.dictionary)
        combinations *= len(encoded.dictionary)
        if combinations >= 1 << 62:
            raise LakeError("partitionBy has too many combinations of values", "Name fewer columns.")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy().astype(np.int64)
    return codes, dictionaries


def _text(field: PartitionField, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and field.is_derived:
        return _date_text(value) if field.transform == DATE else _hour_text(value)
    return str(value)


# What no calendar has goes to its first or last day: one row from a broken clock must not stop a stream.


def _date_text(days: int) -> str:
    return (_EPOCH_DATE + timedelta(days=min(max(days, _FIRST_DAY), _LAST_DAY))).isoformat()


def _hour_text(hours: int) -> str:
    hours = min(max(hours, _FIRST_DAY * 24), _LAST_DAY * 24 + 23)
    return (_EPOCH_TIME + timedelta(hours=hours)).isoformat(sep="-", timespec="hours")
