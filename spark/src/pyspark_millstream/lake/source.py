"""`format("millstream_lake")`: rows of Spark to a Parquet, Delta or Iceberg table, batch and streaming, without a jar.

Tasks write files nobody sees; the driver makes all files of a batch part of the table, once, whatever is run again.
With `handOver=true` the rows are ranges of offsets, and the tasks fetch the records of these themselves.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_millstream.hand_over import HandedReading, holds_ranges
from pyspark_millstream.lake.columns import arrow_columns, fit
from pyspark_millstream.lake.faults import LakeError
from pyspark_millstream.lake.journal import ONE_TIME
from pyspark_millstream.lake.manifest import Manifest, StagedFile
from pyspark_millstream.lake.options import LakeOptions, parse_lake_options
from pyspark_millstream.lake.partitioning import PartitionField, fields_text
from pyspark_millstream.lake.store import open_lake

if TYPE_CHECKING:
    from pyarrow import RecordBatch

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass
class FilesWritten(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    batch: int
    files: list[StagedFile]


class LakeSource(DataSource):
    """The sink. Reading is for the readers of the format: that is what it is for."""

    @classmethod
    def name(cls) -> str:
        return "millstream_lake"

    def writer(self, schema: StructType, overwrite: bool) -> LakeBatchWriter:
        options = parse_lake_options(self.options)
        if overwrite:
            raise LakeError(
                "the lake only adds rows; it does not overwrite a table",
                "Use mode('append'), or another path.",
            )
        return LakeBatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:
        options = parse_lake_options(self.options)
        if overwrite:
            raise LakeError(
                "the lake only adds rows, so complete output cannot go there", "Use outputMode('append')."
            )
        if options.transaction is not None:
            raise LakeError(
                "txnAppId is for batch writes; a streaming query has a name of its own",
                "Leave it and txnVersion out.",
            )
        return LakeStreamWriter(options, schema)


class _Plan:
    """What driver and tasks agree on: the columns and folders, checked against the table on the driver."""

    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self.options = options
        self.handed = _find_handed(options, schema)
        self.columns: pa.Schema = arrow_columns(schema if self.handed is None else self.handed.schema)
        lake = open_lake(options.path, options.table_format)
        self.fields: tuple[PartitionField, ...] = lake.plan(self.columns, options.partition_by)
        self.root = lake.root
        self.keeps_sources = lake.table.keeps_sources

    def write(self, query: str, batch: int, batches: Iterator[RecordBatch]) -> FilesWritten:
        # Spark starts a process on the driver before and after every batch: what only tasks need is loaded here.
        from pyspark_millstream.lake.file_writer import FolderWriter

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        lake = open_lake(str(self.root), self.options.table_format)
        writer = FolderWriter(
            self.root,
            lake.journal.staging_folder(query, batch),
            self.columns,
            self.fields,
            self.keeps_sources,
            f"part-{batch:08d}-{task:05d}",
            self.options.writer,
        )
        try:
            for one in batches if self.handed is None else self.handed.read(batches):
                writer.add(fit(one, self.columns))
            return FilesWritten(query, batch, writer.finish())
        except BaseException:
            writer.abandon()
            raise

    def manifest(self, messages: Sequence[WriterCommitMessage | None]) -> Manifest | None:
        """All that the tasks wrote; None: there were no rows."""
        written = [message for message in messages if isinstance(message, FilesWritten)]
        files = tuple(file for message in written for file in message.files)
        if not files:
            return None
        query, batch = written[0].query, written[0].batch
        return Manifest(query, batch, self.columns, fields_text(self.fields), files)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        manifest = self.manifest(messages)
        if manifest is not None:
            open_lake(str(self.root), self.options.table_format).commit(manifest)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        manifest = self.manifest(messages)
        if manifest is None:
            return
        lake = open_lake(str(self.root), self.options.table_format)
        with lake.journal.lock():
            # A commit that failed after its promise will be finished, not undone.
            if all(begun.query != manifest.query for begun in lake.journal.begun()):
                lake.discard(manifest)


def _find_handed(options: LakeOptions, schema: StructType) -> HandedReading | None:
    if options.fetched_from is not None:
        return HandedReading(options.fetched_from, schema)
    if holds_ranges(schema):
        raise LakeError(
            "the read has handOver=true, so its rows are ranges of offsets and not records",
            "Add .option('handOver', 'true') and the uri of the read to the write, or take it out of the read.",
        )
    return None


class LakeBatchWriter(DataSourceArrowWriter):
    """One `df.write`: a batch of its own, or the one that txnAppId and txnVersion name."""

    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._plan = _Plan(options, schema)
        self._query, self._batch = options.transaction or (ONE_TIME + uuid.uuid4().hex, 0)

    def write(self, iterator: Iterator[RecordBatch]) -> FilesWritten:
        return self._plan.write(self._query, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.abort(messages)


class LakeStreamWriter(DataSourceStreamArrowWriter):
    """One streaming query; Spark makes this object anew for every batch and for its commit."""

    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        self._plan = _Plan(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> FilesWritten:
        context = TaskContext.get()
        assert context is not None, "a task of Spark has a context"
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        assert query is not None
        assert batch is not None
        return self._plan.write(query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.abort(messages)
