"""Ranges instead of records: what a source hands over to a sink that fetches the records itself.

With `handOver=true` a task of the source gives one row, which names its range of offsets and how that is read: columns,
headers, filter, decoding, what to do where records are gone. The same stands in the metadata of the rows' schema, where
the sink learns the columns of its table before there is a row. It reads with the same parts as the source does, in its
own task.

Invariants
- No row and no schema holds a credential: the sink has its own.
- What is read depends on the row only, so a batch that runs again reads the same records.
- Rows of another read than the schema tells of (Spark's `union` keeps the metadata of one side) are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pyspark_millstream.decoding import find_decoding, offered_schema
from pyspark_millstream.errors import MillstreamSparkError, OptionError
from pyspark_millstream.offsets import RecordRange
from pyspark_millstream.option_names import DECODE
from pyspark_millstream.options import Endpoint, SourceOptions, read_options
from pyspark_millstream.record_read import RecordFilter, RecordReading
from pyspark_millstream.rows import arrow_schema

HAND_OVER: Final = "handOver"
# To change the rows or the metadata: raise the number. Source and sink of a query are of one release.
MARK: Final = "millstream.handOver.1"
TOLD: Final = (
    "failOnDataLoss",
    "includeHeaders",
    "headersFormat",
    "columns",
    "topicFilter",
    "rowsPerBatch",
    *DECODE,
)
RANGE: Final = StructType(
    [
        StructField("queue", StringType()),
        StructField("first", LongType()),
        StructField("end", LongType()),
        StructField("may_begin_later", BooleanType()),
        StructField("reading", StringType()),
    ]
)


def range_schema(options: SourceOptions, settled: Mapping[str, str]) -> StructType:
    """The row of a range; `settled` are the options of the source, with nothing left to look up."""
    told = {name: settled[name] for name in TOLD if name in settled}
    text = json.dumps({"address": options.endpoint.address, "options": told}, sort_keys=True)
    return StructType([StructField(one.name, one.dataType, metadata={MARK: text}) for one in RANGE.fields])


class RangeRows:
    """What a task of the source does: its range as one row."""

    def __init__(self, schema: StructType) -> None:
        reading = _find_told(schema)
        if reading is None:
            raise OptionError(
                "with handOver=true there are no columns to choose from", "Leave the schema out."
            )
        self._reading = reading

    def read(self, part: RecordRange) -> Iterator[pa.RecordBatch]:
        values = ([part.queue], [part.first], [part.end], [part.may_begin_later], [self._reading])
        schema = arrow_schema(RANGE)
        arrays = [pa.array(one, field.type) for one, field in zip(values, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class HandedReading:
    """What a task of the sink does: rows of ranges in, the records of these ranges out. Travels to the tasks."""

    def __init__(self, endpoint: Endpoint, schema: StructType) -> None:
        """`schema` is that of the ranges; what is not of a source with handOver=true is refused."""
        text = _find_told(schema)
        if text is None:
            raise MillstreamSparkError(
                "handOver=true takes what a source with handOver=true gives, as it is",
                "Set it in the read too and change no column on the way, or take it out of the write.",
            )
        self._text = text
        told = json.loads(text)
        if told["address"] != endpoint.address:
            raise OptionError(
                f"the read has the reader at {told['address']}, the write has {endpoint.address}",
                "Give both the same uri: offsets of one broker mean nothing to another.",
            )
        # The queues are in the rows.
        checked = read_options({"uri": endpoint.address, "queuePattern": ".*", **told["options"]})
        options = replace(checked, endpoint=endpoint)
        decoding, _ = find_decoding(options, dict(options.raw))
        self.schema = offered_schema(options, decoding)
        self._reading = RecordReading(options, self.schema, decoding, RecordFilter(options.topic_filter))

    def read(self, ranges: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ranges:
            for row in batch.to_pylist():
                if row["reading"] != self._text:
                    raise MillstreamSparkError(
                        "ranges of two reads with other options, or of two brokers, come together in one write",
                        "Write each by a query of its own, or take handOver out.",
                    )
                part = RecordRange(row["queue"], row["first"], row["end"], row["may_begin_later"])
                yield from self._reading.read(part)


def holds_ranges(schema: StructType) -> bool:
    return _find_told(schema) is not None


def _find_told(schema: StructType) -> str | None:
    marks = {field.metadata.get(MARK) for field in schema.fields}
    found = marks.pop() if _are_ranges(schema) and len(marks) == 1 else None
    return found if isinstance(found, str) else None


def _are_ranges(schema: StructType) -> bool:
    return [(one.name, one.dataType) for one in schema.fields] == [
        (one.name, one.dataType) for one in RANGE.fields
    ]
