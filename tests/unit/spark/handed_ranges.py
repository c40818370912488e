"""A source with handOver=true asked as Spark asks it, and its rows brought to a lake table, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from fake_reader import FakeReader
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_millstream.lake.options import parse_lake_options
from pyspark_millstream.lake.source import LakeBatchWriter
from pyspark_millstream.source import MillstreamSource

Place = dict[str, object]


def place(**offsets: int) -> Place:
    return {queue: {"0": offset} for queue, offset in offsets.items()}


class AskedSource:
    """Its schema, its partitions of a micro-batch, and what their tasks give."""

    def __init__(self, reader: FakeReader, **options: str) -> None:
        given = {"uri": reader.uri, "queues": "a", "retrySeconds": "0", **options}
        source = MillstreamSource(given)
        # Spark keeps a schema as text.
        self.schema = StructType.fromJson(json.loads(source.schema().json()))
        self.stream = source.streamReader(self.schema)

    def parts(self, start: Place, end: Place) -> Sequence[InputPartition]:
        return self.stream.partitions(start, end)

    def rows(self, start: Place, end: Place) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        for part in self.parts(start, end):
            for batch in self.stream.read(part):
                assert isinstance(batch, pa.RecordBatch)
                found.append(batch)
        return found


def write_lake(
    table: Path, schema: StructType, rows: Sequence[pa.RecordBatch], number: int, **options: str
) -> None:
    """One batch, by one task."""
    given = {"path": str(table), "txnAppId": "query", "txnVersion": str(number), **options}
    writer = LakeBatchWriter(parse_lake_options(given), schema)
    writer.commit([writer.write(iter(rows))])
