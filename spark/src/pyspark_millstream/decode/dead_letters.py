"""Rows that could not be decoded: apart from the others, and on their way to a dead-letter queue.

They go through the sink in a query of their own, with its own checkpoint: exactly once, like all the sink writes, and
without holding up the query that reads the good rows. Their headers begin with `_decode_`: only the broker writes `_dlq_`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_millstream.decode.decoder import ERROR, PAYLOAD
from pyspark_millstream.decode.faults import DecodeOptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

REASON: Final = "_decode_error"
QUEUE: Final = "_decode_queue"
OFFSET: Final = "_decode_offset"
ID: Final = "_decode_id"
TOPIC: Final = "_decode_topic"
TIME: Final = "_decode_time"
MARK: Final = "_decode_"
CONNECTION_OPTIONS: Final = ("uri", "user", "password", "token", "caFile", "retrySeconds")


def dead_letters(frame: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The rows that were decoded, without `_error`, and those that were not, without `value`."""
    from pyspark.sql import functions

    _need(frame, ERROR)
    error = functions.col(ERROR)
    return frame.where(error.isNull()).drop(ERROR), frame.where(error.isNotNull()).drop("value")


def bad_rows(frame: DataFrame) -> DataFrame:
    """The rows that were not decoded, as the sink takes them: payload binary, key string, headers map."""
    from pyspark.sql import functions

    _need(frame, ERROR)
    _need(frame, PAYLOAD)
    key = functions.col("topic") if "topic" in frame.columns else functions.lit(None).cast("string")
    return frame.where(functions.col(ERROR).isNotNull()).select(
        functions.col(PAYLOAD), key.alias("key"), _headers(frame).alias("headers")
    )


def write_dead_letters(
    frame: DataFrame, options: Mapping[str, str], checkpoint: str = "", available_now: bool = False
) -> StreamingQuery | None:
    """Put the rows that were not decoded to the deadLetterQueue of the options the frame was read with.

    A streaming frame gives the query that does so, started, with its own `checkpoint`; with `available_now` it ends
    when it has done what is there. None when all is done already.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    queue = lowered.get("deadletterqueue", "").strip()
    if not queue:
        raise DecodeOptionError(
            "no dead-letter queue is named", 'Add .option("deadLetterQueue", "readings-bad") to the read.'
        )
    kept = {name: lowered[name.lower()] for name in CONNECTION_OPTIONS if name.lower() in lowered}
    rows = bad_rows(frame)
    if not frame.isStreaming:
        rows.write.format("millstream").options(**kept, queue=queue).mode("append").save()
        return None
    if not checkpoint:
        raise DecodeOptionError(
            "the query of dead letters needs a checkpoint of its own",
            "Give write_dead_letters a folder that no other query uses.",
        )
    stream = rows.writeStream.format("millstream").options(**kept, queue=queue)
    stream = stream.option("checkpointLocation", checkpoint)
    return (stream.trigger(availableNow=True) if available_now else stream).start()


def _headers(frame: DataFrame) -> Column:
    """What the record had, then what became of it."""
    from pyspark.sql import functions
    from pyspark.sql.types import MapType

    pairs: list[tuple[str, Column]] = [(REASON, functions.col(ERROR))]
    names = set(frame.columns)
    if "queue" in names:
        pairs.append((QUEUE, functions.col("queue")))
    if "offset" in names:
        pairs.append((OFFSET, functions.col("offset").cast("string")))
    if {"queue", "offset"} <= names:
        pairs.append(
            (ID, functions.concat_ws(":", functions.col("queue"), functions.col("offset").cast("string")))
        )
    if "topic" in names:
        pairs.append((TOPIC, functions.col("topic")))
    if "timestamp" in names:
        pairs.append((TIME, functions.unix_millis(functions.col("timestamp")).cast("string")))
    own = functions.create_map(*(part for name, value in pairs for part in (functions.lit(name), value)))
    if "headers" not in names or not isinstance(frame.schema["headers"].dataType, MapType):
        return own
    first = functions.coalesce(functions.col("headers"), functions.create_map().cast("map<string,string>"))
    return functions.map_concat(functions.map_filter(first, lambda name, _: ~name.startswith(MARK)), own)


def _need(frame: DataFrame, column: str) -> None:
    if column not in frame.columns:
        hint = 'Read with .option("payloadFormat", "json") or another format'
        hint += ", and without keepPayload=false." if column == PAYLOAD else "."
        raise DecodeOptionError(f"the frame has no column {column}", hint)
