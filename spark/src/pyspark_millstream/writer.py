"""The sink: rows are left with the broker by tasks, and made visible by one commit on the driver.

Invariants
- Rows are staged under (query, batch, partition, attempt). Only stages that Spark reports as written are committed.
- A batch is committed once: a batch that Spark runs again adds nothing, a batch that fails adds nothing.
- What is wrong with options or columns is said when the writer is made, before any job runs.

A streaming query is known to the broker by the id in its checkpoint. A batch write is known by a name made up for it, or by
the options `queryId` and `batchId`, with which a write inside `foreachBatch` happens once as well.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_millstream import option_values
from pyspark_millstream.bounds import FIRST_ANSWER_S
from pyspark_millstream.client import ReaderClient
from pyspark_millstream.errors import MillstreamSparkError, OptionError
from pyspark_millstream.options import Endpoint, endpoint_from
from pyspark_millstream.stage_client import BatchName, StageClient

PIECE_BYTES: Final = 32 * 1024 * 1024  # of rows sent in one request, which can be sent again
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
READ_ONLY: Final = ("queue", "partition", "offset", "timestamp", "client_id", "producer_sequence")
WHOLE_TYPES: Final = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True)
class SinkOptions:
    """Where rows go. `columns` are pairs: name in the data frame, name for the reader."""

    endpoint: Endpoint
    target: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    name: BatchName | None

    def client(self) -> StageClient:
        return StageClient(ReaderClient(self.endpoint), dict(self.target))


class StagedRows(WriterCommitMessage):
    """What one task has left with the broker."""

    def __init__(self, name: BatchName, stages: tuple[str, ...]) -> None:
        self.name = name
        self.stages = stages


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    sink = read_sink_options(options, schema, overwrite)
    name = sink.name or BatchName(str(uuid.uuid4()), 0, is_single=True)
    return BatchWriter(sink, name)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    sink = read_sink_options(options, schema, overwrite)
    if sink.name is not None:
        raise OptionError(
            "queryId and batchId are for batch writes", "Take them out: a streaming query has its own."
        )
    return StreamWriter(sink)


# ------------------------------------------------------------------------ writers


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, name: BatchName) -> None:
        self._options = options
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return stage_rows(self._options, self._name, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_rows(self._options, self._name, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._options.client().drop(self._name)


class StreamWriter(DataSourceStreamArrowWriter):
    """The query is named by its tasks: only they see its id."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
        batch = None if context is None else context.getLocalProperty(BATCH_PROPERTY)
        if not query or not batch:
            raise MillstreamSparkError("Spark did not say which query and batch these rows belong to")
        return stage_rows(self._options, BatchName(query, int(batch)), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        name = name_of(messages)
        if name is not None:
            commit_rows(self._options, BatchName(name.query, batchId), messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        name = name_of(messages)
        if name is not None:  # else no task got so far; the broker removes what was begun
            self._options.client().drop(BatchName(name.query, batchId))


def name_of(messages: list[WriterCommitMessage | None]) -> BatchName | None:
    return next((message.name for message in messages if isinstance(message, StagedRows)), None)


def stage_rows(options: SinkOptions, name: BatchName, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
    """In pieces that are whole in memory, so that each can be sent again when the broker is away or busy."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    attempt = 0 if context is None else context.taskAttemptId()
    client = options.client()
    stages: list[str] = []
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in iterator:
        if not batch.num_rows:
            continue
        piece.append(choose_columns(batch, options.columns))
        size += piece[-1].nbytes
        if size >= PIECE_BYTES:
            stages.append(client.stage(name, partition, attempt, piece))
            piece, size = [], 0
    if piece:
        stages.append(client.stage(name, partition, attempt, piece))
    return StagedRows(name, tuple(stages))


def commit_rows(options: SinkOptions, name: BatchName, messages: list[WriterCommitMessage | None]) -> None:
    stages = [stage for message in messages if isinstance(message, StagedRows) for stage in message.stages]
    if stages:
        options.client().commit(name, stages)


def choose_columns(batch: pa.RecordBatch, columns: tuple[tuple[str, str], ...]) -> pa.RecordBatch:
    arrays = [batch.column(batch.schema.get_field_index(own)) for own, _ in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[name for _, name in columns])


# ------------------------------------------------------------------------ options


def read_sink_options(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise MillstreamSparkError(
            "rows can be appended to a queue or to topics, never put in the place of others",
            'Write with .mode("append") (outputMode "append" or "update" in a stream).',
        )
    target = _read_target(options, schema)
    columns = _choose(options, schema, "queue" in target)
    sink = SinkOptions(endpoint_from(options), tuple(sorted(target.items())), columns, _read_name(options))
    sent = StructType([StructField(name, schema[own].dataType) for own, name in columns])
    sink.client().check(to_arrow_schema(sent, timezone="UTC"), FIRST_ANSWER_S)
    return sink


def _read_target(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    given = [name for name in ("queue", "topic", "topicColumn") if options.get(name)]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} are given together", "Rows go to one of them.")
    if not given and "topic" not in schema.names:
        raise OptionError(
            "the sink is not told where rows go",
            'Add .option("queue", NAME), .option("topic", TOPIC) or .option("topicColumn", COLUMN).',
        )
    target: dict[str, str] = {}
    if options.get("queue"):
        target["queue"] = options["queue"]
    else:
        target["topics"] = "true"
        if options.get("topic"):
            target["topic"] = options["topic"]
    if "qos" in options:
        target["qos"] = str(option_values.number("qos", options["qos"], 0, 2))
    if "retain" in options:
        target["retain"] = "true" if option_values.boolean("retain", options["retain"]) else "false"
    if options.get("contentType"):
        target["content_type"] = options["contentType"]
    return target


def _read_name(options: Mapping[str, str]) -> BatchName | None:
    query, batch = options.get("queryId", ""), options.get("batchId", "")
    if bool(query) != bool(batch):
        raise OptionError("queryId and batchId belong together", "Give both, or none.")
    if not query:
        return None
    if re.fullmatch(r"[ -~]{1,200}", query) is None:
        raise option_values.wrong("queryId", query, "1 to 200 printable characters")
    return BatchName(query, option_values.number("batchId", batch, 0, (1 << 62) - 1))


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pair = kind.elementType
    return pair.names == ["key", "value"] and all(isinstance(part.dataType, StringType) for part in pair)


def _fits(name: str, kind: DataType) -> bool:
    if name == "payload":
        return isinstance(kind, BinaryType | StringType)
    if name == "headers":
        return _is_headers(kind)
    if name in ("qos", "expiry_s"):
        return isinstance(kind, WHOLE_TYPES)
    if name == "retain":
        return isinstance(kind, BooleanType)
    if name == "event_time":
        return isinstance(kind, TimestampType | TimestampNTZType)
    return isinstance(kind, StringType)


EXPECTED: Final = {
    "payload": "binary or string",
    "topic": "string",
    "key": "string",
    "content_type": "string",
    "headers": "map<string,string> or array<struct<key:string,value:string>>",
    "qos": "int",
    "retain": "boolean",
    "expiry_s": "int, seconds",
    "event_time": "timestamp",
}


def _choose(options: Mapping[str, str], schema: StructType, is_queue: bool) -> tuple[tuple[str, str], ...]:
    """The columns to send. What a read gives and a write cannot say is left out; anything else strange is refused."""
    renamed: dict[str, str] = {}
    for option, name in (("payloadColumn", "payload"), ("topicColumn", "topic")):
        own = options.get(option, "")
        if own and own not in schema.names:
            raise OptionError(
                f'the option {option} names the column "{own}", which is not there',
                f"There are {', '.join(schema.names)}.",
            )
        if own:
            renamed[own] = name
    chosen: list[tuple[str, str]] = []
    for field in schema.fields:
        name = renamed.get(field.name, field.name)
        if field.name not in renamed and (name in READ_ONLY or name in renamed.values()):
            continue
        if name not in EXPECTED:
            raise MillstreamSparkError(
                f'the sink does not know what to do with the column "{field.name}"',
                f"Select only {', '.join(EXPECTED)}, or put it into payload: to_json(struct(…)).",
            )
        if not _fits(name, field.dataType):
            raise MillstreamSparkError(
                f'the column "{field.name}" is {field.dataType.simpleString()}; it must be {EXPECTED[name]}',
                f'Cast it before the write: .withColumn("{field.name}", …).',
            )
        if name == "topic" and not is_queue and options.get("topic"):
            continue  # one topic for all
        chosen.append((field.name, name))
    names = [name for _, name in chosen]
    if "payload" not in names:
        raise MillstreamSparkError(
            'there is no column "payload" to write',
            'Make one, such as to_json(struct("*")), or name it with .option("payloadColumn", COLUMN).',
        )
    if "key" in names and not is_queue:
        raise MillstreamSparkError('the column "key" is for writes to a queue', "Call it topic.")
    if "key" in names and "topic" in names:
        raise MillstreamSparkError('there are a column "key" and a column "topic"', "Drop one of them.")
    return tuple(chosen)
