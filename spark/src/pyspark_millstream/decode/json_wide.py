"""Whole numbers read as doubles: for batches in which one of them has a point.

The columnar reader refuses a whole batch for one 21.5 in a bigint field, without saying where. Read as doubles, all of
it comes, and a comparison of columns tells the rows that hold something else than whole numbers that a double is exact for.
"""

from __future__ import annotations

from typing import Final

import numpy
import pyarrow as pa

EXACT_MAX: Final = 1 << 53  # below it a double is every whole number


def wide_type(kind: pa.DataType) -> pa.DataType:
    """The type with doubles for whole numbers, at any depth."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(wide_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(wide_type(kind.value_type)))
    return pa.float64() if pa.types.is_integer(kind) else kind


def rows_not_whole(array: pa.Array, kind: pa.DataType) -> numpy.ndarray:
    """A mask of the rows of an array of `wide_type(kind)` that do not fit `kind`."""
    is_bad = numpy.zeros(len(array), dtype=bool)
    if pa.types.is_struct(kind):
        for column, field in zip(array.flatten(), kind, strict=True):
            is_bad |= rows_not_whole(column, field.type)
    elif pa.types.is_list(kind):
        is_bad_element = rows_not_whole(array.flatten(), kind.value_type)
        if is_bad_element.any():
            is_bad[array.value_parent_indices().to_numpy()[is_bad_element]] = True
    elif pa.types.is_integer(kind):
        limit = min(EXACT_MAX, 1 << (kind.bit_width - 1))
        values = array.fill_null(0.0).to_numpy()
        with numpy.errstate(invalid="ignore"):
            is_whole = (values == numpy.trunc(values)) & (values >= -limit) & (values < limit)
        is_bad = ~is_whole
    return is_bad
