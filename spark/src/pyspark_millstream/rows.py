"""The row of a stream queue as Spark sees it, and Arrow batches of the wire made into exactly that.

Invariants
- A batch that leaves here has the schema Spark derives from the row: same order, types and nullability. Spark compares
  them strictly, and only for the first batch.
- Nothing is done per row in Python: columns are cast, whole, by Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_millstream.errors import MillstreamSparkError, OptionError

HEADERS: Final = "headers"
OFFSET: Final = "offset"
QUEUE: Final = "queue"
PARTITION: Final = "partition"
COLUMN_TYPES: Final[dict[str, DataType]] = {
    QUEUE: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    "timestamp": TimestampType(),
    "event_time": TimestampType(),
    "topic": StringType(),
    "payload": BinaryType(),
    "content_type": StringType(),
    "client_id": StringType(),
    "qos": IntegerType(),
    "producer_sequence": LongType(),
}
COLUMN_NAMES: Final = tuple(COLUMN_TYPES)
HEADERS_AS_MAP: Final = MapType(StringType(), StringType())
HEADERS_AS_ARRAY: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", StringType())])
)


def row_schema(columns: Sequence[str], headers_format: str) -> StructType:
    """The row with these columns, in this order; every column may be null, as in Spark's other sources."""
    headers = HEADERS_AS_ARRAY if headers_format == "array" else HEADERS_AS_MAP
    return StructType(
        [StructField(name, headers if name == HEADERS else COLUMN_TYPES[name]) for name in columns]
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark will compare the first batch with."""
    return to_arrow_schema(schema, timezone="UTC")


def check_asked_schema(asked: StructType, offered: StructType) -> None:
    """A schema that the user wrote: any of the columns, in any order, with their types."""
    types = {field.name: field.dataType for field in offered.fields}
    for field in asked.fields:
        if field.name not in types:
            raise OptionError(
                f'the schema asks for a column "{field.name}" that is not there',
                f"There are {', '.join(types)}.",
            )
        if field.dataType != types[field.name]:
            raise OptionError(
                f'the schema asks for "{field.name}" as {field.dataType.simpleString()}; '
                f"it is {types[field.name].simpleString()}",
                "Leave the schema out, and cast after the load.",
            )
        if not field.nullable:
            raise OptionError(
                f'the schema asks for "{field.name}" as never null',
                "Leave the schema out, or make it nullable.",
            )


class BatchShape:
    """Makes batches of the wire into batches of the row. Built once per task; the first batch fixes the way.

    A column the wire does not bring may be a constant: it is made once, as long as the longest batch so far.
    """

    def __init__(self, target: pa.Schema, constants: Mapping[str, object] | None = None) -> None:
        self._target = target
        self._constants = {
            name: pa.scalar(value, target.field(name).type)
            for name, value in (constants or {}).items()
            if name in target.names
        }
        self._made: dict[str, pa.Array] = {}
        self._source: pa.Schema | None = None
        self._places: list[int] = []

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._source is None or not batch.schema.equals(self._source):
            self._learn(batch.schema)
        columns = []
        for place, field in zip(self._places, self._target, strict=True):
            if place < 0:
                columns.append(self._constant(field.name, batch.num_rows))
                continue
            column = batch.column(place)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _constant(self, name: str, rows: int) -> pa.Array:
        made = self._made.get(name)
        if made is None or len(made) < rows:
            made = self._made[name] = pa.repeat(self._constants[name], rows)
        return made if len(made) == rows else made.slice(0, rows)

    def _learn(self, source: pa.Schema) -> None:
        places = [source.get_field_index(field.name) for field in self._target]
        missing = [
            name
            for name, place in zip(self._target.names, places, strict=True)
            if place < 0 and name not in self._constants
        ]
        if missing:
            raise MillstreamSparkError(
                f'the reader sent no column "{missing[0]}"',
                "Use the same version of millstream and millstream-spark.",
            )
        self._places = places
        self._source = source


def last_offset(batch: pa.RecordBatch) -> int:
    """The offset of the last row; a batch is never empty here, and offsets rise."""
    value = batch.column(batch.schema.get_field_index(OFFSET))[batch.num_rows - 1].as_py()
    assert isinstance(value, int)
    return value
