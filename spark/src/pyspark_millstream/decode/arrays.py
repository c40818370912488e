"""Python values to Arrow arrays, and parts of a batch to the whole; one bad value costs its row, not the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_millstream.decode.faults import Fault, RowError

FAULTS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)

DAYS_MIN: Final = -719_162  # 0001-01-01
DAYS_MAX: Final = 2_932_896  # 9999-12-31
DAY_US: Final = 86_400_000_000

Value = TypeVar("Value")


def has_type(kind: pa.DataType, is_meant: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type, or one inside it, is meant."""
    if is_meant(kind):
        return True
    return any(has_type(kind.field(place).type, is_meant) for place in range(kind.num_fields))


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def check_times(array: pa.Array) -> None:
    """RowError when a timestamp or date, at any depth, is none that Spark and Python can show."""
    kind = array.type
    if not has_type(kind, is_time):
        return
    if pa.types.is_struct(kind):
        for column in array.flatten():
            check_times(column)
    elif pa.types.is_map(kind):
        check_times(pa.ListArray.from_arrays(array.offsets, array.items))
    elif pa.types.is_list(kind):
        check_times(array.flatten())
    else:
        days = pa.types.is_date(kind)
        limits = (DAYS_MIN, DAYS_MAX) if days else (DAYS_MIN * DAY_US, (DAYS_MAX + 1) * DAY_US - 1)
        found = pc.min_max(array.cast(pa.int32() if days else pa.int64())).as_py()
        if found["min"] is not None and (found["min"] < limits[0] or found["max"] > limits[1]):
            raise RowError("a time is not within the years 1 to 9999")


def array_of(values: Sequence[object], target: pa.DataType) -> tuple[pa.Array, list[Fault]]:
    """The values as an array; one that Arrow refuses is null there, and a fault."""
    return build_apart(values, target, lambda some: pa.array(some, type=target))


def build_apart(
    values: Sequence[Value], target: pa.DataType, build: Callable[[Sequence[Value]], pa.Array]
) -> tuple[pa.Array, list[Fault]]:
    """What `build` makes of the values; those it cannot take are found by halves, and are null."""
    try:
        return build(values), []
    except FAULTS as refusal:
        if len(values) == 1:
            return pa.nulls(1, target), [Fault(0, str(refusal) or type(refusal).__name__)]
    half = len(values) // 2
    first, faults = build_apart(values[:half], target, build)
    second, more = build_apart(values[half:], target, build)
    faults += [Fault(half + fault.row, fault.reason) for fault in more]
    return pa.concat_arrays([first, second]), faults


def interleave(parts: Sequence[pa.Array], places: Sequence[numpy.ndarray], count: int) -> pa.Array:
    """One array of `count` rows: row `places[i][j]` is `parts[i][j]`. Every row has one place."""
    if len(parts) == 1 and len(parts[0]) == count:
        return parts[0]
    source = numpy.empty(count, dtype=numpy.int64)
    source[numpy.concatenate(places)] = numpy.arange(count)
    return pa.concat_arrays(parts).take(pa.array(source))


def spread(found: pa.Array, rows: Sequence[int], count: int) -> pa.Array:
    """The array with nulls between, so that its values stand at `rows`."""
    if len(rows) == count:
        return found
    source = numpy.full(count, -1, dtype=numpy.int64)
    source[rows] = numpy.arange(len(rows))
    return found.take(pa.array(source, mask=source < 0))
