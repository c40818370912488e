"""The sinks for harder trials. `slow_…` are the real ones, but they rest before and after every commit, and in every task: a
kill then falls into the moments that decide. `forgetful_…` do that too and have a planted bug: they do not tell a batch that
Spark runs again from a new one. The checker must find them out.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_millstream.lake.options import LakeOptions, parse_lake_options
from pyspark_millstream.lake.source import FilesWritten, LakeSource, LakeStreamWriter
from pyspark_millstream.option_names import known_options
from pyspark_millstream.source import MillstreamSource
from pyspark_millstream.stage_client import BatchName
from pyspark_millstream.writer import (
    BATCH_PROPERTY,
    SinkOptions,
    StagedRows,
    StreamWriter,
    read_sink_options,
    stage_rows,
)

REST_S: Final = 0.6
TASK_REST_S: Final = 0.3
SLOW: Final = ("slow_lake", "slow_queue")
FORGETFUL: Final = ("forgetful_lake", "forgetful_queue")

Messages = list[WriterCommitMessage | None]


def batch_number() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty(BATCH_PROPERTY) or "")


def rest(most_s: float = REST_S) -> None:
    time.sleep(random.SystemRandom().uniform(0, most_s))


def rest_at_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    rest(TASK_REST_S)


class SlowLakeWriter(LakeStreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        return super().write(rest_at_end(iterator))  # its files are open still

    def commit(self, messages: Messages, batchId: int) -> None:
        rest()
        super().commit(messages, batchId)
        rest()


class SlowLake(LakeSource):
    @classmethod
    def name(cls) -> str:
        return SLOW[0]

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:
        return SlowLakeWriter(parse_lake_options(self.options), schema)


class SlowQueueWriter(StreamWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        staged = super().write(iterator)
        rest(TASK_REST_S)
        return staged

    def commit(self, messages: Messages, batchId: int) -> None:
        rest()
        super().commit(messages, batchId)
        rest()


class SlowQueue(MillstreamSource):
    @classmethod
    def name(cls) -> str:
        return SLOW[1]

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return SlowQueueWriter(self.sink_options(schema))

    def sink_options(self, schema: StructType) -> SinkOptions:
        return read_sink_options(known_options(self.options), schema, False)


class ForgetfulLakeWriter(SlowLakeWriter):
    def __init__(self, options: LakeOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._run = f"run-{uuid.uuid4()}"  # BUG: of this run, and another after a restart

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        return self._plan.write(self._run, batch_number(), iterator)


class ForgetfulLake(SlowLake):
    @classmethod
    def name(cls) -> str:
        return FORGETFUL[0]

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:
        return ForgetfulLakeWriter(parse_lake_options(self.options), schema)


class ForgetfulQueueWriter(SlowQueueWriter):
    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._run = f"run-{uuid.uuid4()}"  # BUG: as above

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return stage_rows(self._options, BatchName(self._run, batch_number()), iterator)


class ForgetfulQueue(SlowQueue):
    @classmethod
    def name(cls) -> str:
        return FORGETFUL[1]

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return ForgetfulQueueWriter(self.sink_options(schema))


SINKS: Final[tuple[type[DataSource], ...]] = (SlowLake, SlowQueue, ForgetfulLake, ForgetfulQueue)
