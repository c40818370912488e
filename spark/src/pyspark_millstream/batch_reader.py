"""Batch reads: a bounded range of each queue, cut into tasks; with or without filters handed to the reader.

The reader with filters is a class of its own, chosen by the option pushdown: Spark refuses one that takes filters while
spark.sql.python.filterPushdown.enabled is off, as it is by default.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from pyspark_millstream.bounds import check_kept, end_place, find_batch_states, start_place
from pyspark_millstream.client import ReaderClient
from pyspark_millstream.decoding import PayloadDecoding
from pyspark_millstream.hand_over import RangeRows
from pyspark_millstream.offsets import Place, RecordRange, ranges
from pyspark_millstream.option_values import OFFSET_MAX, BoundKind
from pyspark_millstream.options import SourceOptions
from pyspark_millstream.record_read import RecordFilter, RecordReading

NEVER_NULL: Final = {"queue", "partition", "offset", "timestamp", "topic", "payload"}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, decoding: PayloadDecoding | None) -> None:
        self._options = options
        self._schema = schema
        self._decoding = decoding
        self._filter = RecordFilter(topic_filter=options.topic_filter)
        self._ranges = RangeRows(schema) if options.is_handed_over else None

    def partitions(self) -> list[InputPartition]:
        options = self._options
        client = ReaderClient(options.endpoint)
        states = find_batch_states(client, options)
        start = start_place(client, options, states, BoundKind.EARLIEST)
        end = end_place(client, options, states)
        lost = check_kept(options, start, states)
        for queue, count in lost.items():
            _warn(f'{count} records of the queue "{queue}" were removed by retention before they were read')
        start = {queue: max(offset, states[queue].first) for queue, offset in start.items()}
        start, end = self._narrowed(start, end)
        end = {queue: max(offset, start[queue]) for queue, offset in end.items()}
        parts = ranges(start, end, options)
        # Spark makes one task with no range of an empty list: give it a range that is empty.
        return [*parts] if parts else [RecordRange(next(iter(sorted(states)), ""), 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RecordRange)
        if self._ranges is not None:
            return self._ranges.read(partition)
        return RecordReading(self._options, self._schema, self._decoding, self._filter).read(partition)

    def _narrowed(self, start: Place, end: Place) -> tuple[Place, Place]:
        return start, end


class PushdownBatchReader(BatchReader):
    """Takes filters on offset and queue whole; on timestamp and topic to send less, and Spark looks again."""

    def __init__(self, options: SourceOptions, schema: StructType, decoding: PayloadDecoding | None) -> None:
        super().__init__(options, schema, decoding)
        self._least = 0
        self._most = OFFSET_MAX
        self._queues: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [asked for asked in filters if not self._take(asked)]

    def _take(self, asked: Filter) -> bool:
        """True when no row that fails it will come."""
        attribute: tuple[str, ...] = getattr(asked, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in self._schema.fieldNames():
            return False
        name = attribute[0]
        if isinstance(asked, IsNotNull):
            return name in NEVER_NULL
        value = getattr(asked, "value", None)
        if name == "offset" and type(value) is int:
            return self._take_offset(asked, value)
        if name == "queue" and isinstance(asked, EqualTo) and isinstance(value, str):
            one = frozenset({value})
            self._queues = one if self._queues is None else self._queues & one
            return True
        if name == "timestamp" and isinstance(value, datetime):
            self._take_time(asked, value)
        if name == "topic" and isinstance(value, str) and not self._filter.topic_filter:
            self._take_topic(asked, value)
        return False

    def _take_offset(self, asked: Filter, value: int) -> bool:
        least, most = self._least, self._most  # most is not read any more
        if isinstance(asked, EqualTo):
            least, most = value, value + 1
        elif isinstance(asked, GreaterThan):
            least = value + 1
        elif isinstance(asked, GreaterThanOrEqual):
            least = value
        elif isinstance(asked, LessThan):
            most = value
        elif isinstance(asked, LessThanOrEqual):
            most = value + 1
        else:
            return False
        self._least = max(self._least, least)
        self._most = min(self._most, most)
        return True

    def _take_time(self, asked: Filter, value: datetime) -> None:
        """Loosely, to the microsecond around it: the exact edge is Spark's."""
        aware = value if value.tzinfo is not None else value.astimezone()
        edge_ns = (aware - EPOCH) // MICROSECOND * 1000
        since_ns, until_ns = self._filter.since_ns, self._filter.until_ns
        if isinstance(asked, EqualTo | GreaterThan | GreaterThanOrEqual):
            since_ns = max(since_ns or 0, edge_ns, 0)
        if isinstance(asked, EqualTo | LessThan | LessThanOrEqual):
            limit_ns = max(0, edge_ns + 2000)
            until_ns = limit_ns if until_ns is None else min(until_ns, limit_ns)
        self._filter = replace(self._filter, since_ns=since_ns, until_ns=until_ns)

    def _take_topic(self, asked: Filter, value: str) -> None:
        if not value or "+" in value or "#" in value or "\0" in value:
            return
        if isinstance(asked, EqualTo):
            self._filter = replace(self._filter, topic_filter=value)
        elif isinstance(asked, StringStartsWith) and "/" in value.lstrip("$"):
            levels = value[: value.rindex("/")]
            if levels:
                self._filter = replace(self._filter, topic_filter=f"{levels}/#")

    def _narrowed(self, start: Place, end: Place) -> tuple[Place, Place]:
        kept = [queue for queue in start if self._queues is None or queue in self._queues]
        return (
            {queue: max(start[queue], self._least) for queue in kept},
            {queue: min(end[queue], self._most) for queue in kept},
        )


def _warn(text: str) -> None:
    sys.stderr.write(f"millstream: {text}\n")
