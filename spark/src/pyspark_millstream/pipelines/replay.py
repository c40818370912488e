"""replay: a lake table, or a time range of a queue, back into a queue, at a pace.

What is to be sent is cut into chunks once, and the list is kept in the checkpoint folder. One micro-batch sends one chunk
under the name (replay, number of the chunk), so a run after a crash goes on where the last one was, and adds no row twice.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pyspark_millstream.client import ReaderClient
from pyspark_millstream.errors import OptionError
from pyspark_millstream.lake.journal import write_whole
from pyspark_millstream.lake.read import read_lake
from pyspark_millstream.lake.store import files_of
from pyspark_millstream.options import endpoint_from
from pyspark_millstream.pipelines.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "replay"
SUMMARY = "a lake table or a time range of a queue back into a queue, with a rate limit"
SETTINGS: dict[str, Setting] = {
    "uri": Setting(
        "http://127.0.0.1:8090", "address of the broker's reader, with user and password if it wants them"
    ),
    "queue": Setting("", "queue to write to", is_required=True),
    "table": Setting("", "folder of the lake table to read; or name `from_queue`"),
    "from_queue": Setting("", "stream queue to read"),
    "since": Setting("", "ISO time: of the queue, only records at or after it; empty: from the first on"),
    "until": Setting("", "ISO time: of the queue, only records before it; empty: to the last"),
    "where": Setting("", "SQL: send only rows of which this is true"),
    "rate": Setting("0", "rows a second, at most; 0: as fast as it goes"),
    "interval": Setting("2", "seconds between two micro-batches, where there is a rate"),
    "chunk_rows": Setting("200000", "rows in a micro-batch, where there is no rate"),
    "checkpoint": Setting(
        "{run}/checkpoint", "folder that keeps how far it came; a new replay needs a new one"
    ),
}
SENT = ("payload", "topic", "content_type", "headers", "qos", "event_time")
ORDER = ("queue", "timestamp", "offset")

Chunk = dict[str, Any]


def build(spark: SparkSession, settings: Mapping[str, str]) -> list[StreamingQuery] | None:
    plan = open_plan(settings)
    if plan["next"] >= len(plan["chunks"]):
        return None
    is_sent = threading.Event()

    def send(_: DataFrame, number: int) -> None:
        if number < len(plan["chunks"]):
            send_chunk(spark, settings, plan, number)
        if number + 1 >= len(plan["chunks"]):
            is_sent.set()

    # A clock that ticks once per micro-batch: what is sent comes from the list.
    clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rate = positive(settings, "rate")
    pause_ms = 1000 * plan["rows_max"] // rate if rate else 0
    writer = (
        clock.writeStream.foreachBatch(send)
        .queryName(NAME)
        .trigger(processingTime=f"{pause_ms} milliseconds")
    )
    query = writer.option("checkpointLocation", f"{settings['checkpoint']}/spark").start()
    threading.Thread(target=stop_at_the_end, args=(query, is_sent), name="replay-end", daemon=True).start()
    return [query]


def stop_at_the_end(query: StreamingQuery, is_sent: threading.Event) -> None:
    while query.isActive:
        if is_sent.wait(0.5):
            query.stop()
            return


def send_chunk(spark: SparkSession, settings: Mapping[str, str], plan: dict[str, Any], number: int) -> None:
    chunk = plan["chunks"][number]
    rows = read_chunk(spark, settings, chunk)
    if settings["where"]:
        rows = rows.where(settings["where"])
    # One task, in the order in which they were stored: a queue is a sequence.
    ordered = rows.repartition(1).sortWithinPartitions(*(name for name in ORDER if name in rows.columns))
    writer = ordered.select(*(name for name in SENT if name in rows.columns)).write.format("millstream")
    writer = writer.option("uri", settings["uri"]).option("queue", settings["queue"])
    writer.option("queryId", plan["name"]).option("batchId", str(number)).mode("append").save()
    plan["next"] = max(plan["next"], number + 1)
    plan["rows_sent"] = sum(one["rows"] for one in plan["chunks"][: plan["next"]])
    write_whole(plan_file(settings), json.dumps(plan))


def read_chunk(spark: SparkSession, settings: Mapping[str, str], chunk: Chunk) -> DataFrame:
    if "files" not in chunk:
        reader = spark.read.format("millstream").option("uri", settings["uri"])
        name = settings["from_queue"]
        reader = reader.option("queues", json.dumps([name])).option("includeHeaders", "true")
        reader = reader.option("headersFormat", "array").option(
            "startingOffsets", json.dumps({name: chunk["first"]})
        )
        return reader.option("endingOffsets", json.dumps({name: chunk["end"]})).load()
    for file in chunk["files"]:
        if not Path(file).exists():
            raise OptionError(
                f"{file} is gone: the table was compacted or cleaned since this replay began",
                "Begin a new replay with another checkpoint, and `where` for what is left.",
            )
    rows = read_lake(spark, settings["table"], chunk["files"])
    if "first" in chunk:
        place = F.col("_metadata.row_index")
        rows = rows.where((place >= chunk["first"]) & (place < chunk["end"]))
    return rows


def open_plan(settings: Mapping[str, str]) -> dict[str, Any]:
    """The list of chunks as it was made by the first run."""
    wish = {name: settings[name] for name in ("queue", "table", "from_queue", "since", "until", "where")}
    file = plan_file(settings)
    if file.exists():
        plan: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if plan["wish"] != wish:
            raise OptionError(f"{file.parent} belongs to another replay", "Choose another checkpoint folder.")
        return plan
    if bool(settings["table"]) == bool(settings["from_queue"]):
        raise OptionError("replay reads a table or a queue", "Set one of `table` and `from_queue`.")
    rate = positive(settings, "rate")
    rows_max = (
        max(1, rate * positive(settings, "interval")) if rate else max(1, positive(settings, "chunk_rows"))
    )
    chunks = table_chunks(settings, rows_max) if settings["table"] else queue_chunks(settings, rows_max)
    name = f"replay.{uuid.uuid4().hex}"
    plan = {"name": name, "wish": wish, "rows_max": rows_max, "next": 0, "rows_sent": 0, "chunks": chunks}
    write_whole(file, json.dumps(plan))
    return plan


def table_chunks(settings: Mapping[str, str], rows_max: int) -> list[Chunk]:
    """Small files together, large files in parts, in the order of their names: by folder, then by age."""
    chunks: list[Chunk] = []
    for file in files_of(settings["table"]):
        rows = pq.read_metadata(file).num_rows
        last = chunks[-1] if chunks else None
        if last is not None and "first" not in last and last["rows"] + rows <= rows_max:
            last["files"].append(file)
            last["rows"] += rows
        elif rows <= rows_max:
            chunks.append({"files": [file], "rows": rows})
        else:
            for first in range(0, rows, rows_max):
                end = min(first + rows_max, rows)
                chunks.append({"files": [file], "first": first, "end": end, "rows": end - first})
    return chunks


def queue_chunks(settings: Mapping[str, str], rows_max: int) -> list[Chunk]:
    client = ReaderClient(endpoint_from({"uri": settings["uri"]}))
    state = client.queue(settings["from_queue"], is_fresh=True)
    first, end = state.first, state.end
    if settings["since"]:
        first = max(first, client.offset_at(settings["from_queue"], moment_ns(settings["since"])))
    if settings["until"]:
        end = min(end, client.offset_at(settings["from_queue"], moment_ns(settings["until"])))
    edges = [*range(first, end, rows_max), max(first, end)]
    return [{"first": one, "end": after, "rows": after - one} for one, after in pairwise(edges)]


def moment_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"`{text}` is no time", "Write it as 2026-11-15T12:00:00, in UTC or with a zone."
        ) from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1_000_000) * 1000


def positive(settings: Mapping[str, str], name: str) -> int:
    if not settings[name].isdigit():
        raise OptionError(f"{name}={settings[name]} is no whole number", f"Write {name}=N.")
    return int(settings[name])


def plan_file(settings: Mapping[str, str]) -> Path:
    return Path(settings["checkpoint"]) / "replay.json"
