"""The columns of a table: what Spark's rows are in Arrow, and how a table may grow.

Invariants
- Every column can be null, inside nested ones too: a table outlives the job that called one of them required.
- A column once there keeps its type. What differs is refused with one sentence, before anything is written.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_millstream.lake.faults import LakeError


def arrow_columns(schema: StructType) -> pa.Schema:
    """Spark's schema as the table keeps it."""
    if not schema.fields:
        raise LakeError("the rows have no columns, so there is nothing to write", "Select at least one.")
    lower: dict[str, str] = {}
    for name in schema.fieldNames():
        if name.lower() in lower:
            raise LakeError(
                f"the columns `{lower[name.lower()]}` and `{name}` differ only in case", "Rename one."
            )
        lower[name.lower()] = name
    fields = []
    for field in schema.fields:
        try:
            arrow = to_arrow_schema(StructType([field]), timezone="UTC").field(0)
        except PySparkException:
            raise _unfit(field.name, field.dataType.simpleString()) from None
        if not _can_keep(arrow.type):
            raise _unfit(field.name, field.dataType.simpleString())
        fields.append(pa.field(field.name, nullable_type(arrow.type)))
    return pa.schema(fields)


def _unfit(name: str, kind: str) -> LakeError:
    return LakeError(f"the column `{name}` has the type {kind}, which no table can keep", "Cast or drop it.")


def _can_keep(kind: pa.DataType) -> bool:
    if (
        pa.types.is_null(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_interval(kind)
        or pa.types.is_time(kind)
    ):
        return False
    return all(_can_keep(kind.field(place).type) for place in range(kind.num_fields))


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The same type, where everything inside may be null, and times are in UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, nullable_type(one.type)) for one in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(nullable_type(kind.key_type), nullable_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", nullable_type(kind.value_type)))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def plain_columns(schema: pa.Schema) -> pa.Schema:
    """A schema somebody else's library gave us, in the shape of ours, so that the two compare."""
    return pa.schema([pa.field(field.name, nullable_type(field.type)) for field in schema])


def new_columns(table: pa.Schema, rows: pa.Schema, name: str) -> list[pa.Field]:
    """The columns the rows have and the table has not; LakeError when one of both differs in type or in case."""
    by_lower = {field.name.lower(): field for field in table}
    added = []
    for field in rows:
        known = by_lower.get(field.name.lower())
        if known is None:
            added.append(field)
        elif known.name != field.name:
            raise LakeError(
                f"the column `{field.name}` is called `{known.name}` in the table {name}",
                f"Rename it: df.withColumnRenamed('{field.name}', '{known.name}').",
            )
        elif not same_type(known.type, field.type):
            raise LakeError(
                f"the column `{field.name}` is {_type_text(field.type)}, but {_type_text(known.type)} in the table {name}",
                "Cast it to the type of the table, or write it under another name.",
            )
    return added


def same_type(first: pa.DataType, second: pa.DataType) -> bool:
    return bool(nullable_type(first).equals(nullable_type(second)))


def _type_text(kind: pa.DataType) -> str:
    return (
        str(kind)
        .replace("timestamp[us, tz=UTC]", "timestamp")
        .replace("timestamp[us]", "timestamp without zone")
    )


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns; a cast of names, zones or nullability copies no values."""
    if batch.schema.equals(schema):
        return batch
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
