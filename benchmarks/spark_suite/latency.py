"""How old a row is when the table that takes it is committed, at a steady rate: publisher, broker, reader, Spark, lake.

The publisher notes when it sent each block; offsets follow the order of sending. A row is there when the lake has
committed its batch and Spark has written that down: the time of the file `commits/N` of the checkpoint.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark_suite.plan import Plan
from benchmarks.spark_suite.world import TIMED, SparkWorld, take_answer

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

START_WAIT_S = 60.0
END_WAIT_S = 60.0
LATE_S_MAX = 0.5
LOOK_S = 0.05


def measure_latency(world: SparkWorld, plan: Plan) -> dict[str, float]:
    # A first batch warms the query up; the rows that count come behind it.
    first = world.broker.end_of(TIMED)
    checkpoint = Path(world.folder("checkpoint"))
    query = (
        world.read_stream(TIMED, first)
        .writeStream.format("millstream_lake")
        .options(path=world.folder("timed"), tableFormat="parquet", checkpointLocation=str(checkpoint))
        .start()
    )
    try:
        take_answer(world.start_publisher(TIMED, rate=plan.live_rate, seconds=plan.live_warm_s))
        wait_end(query, world.broker.end_of(TIMED), START_WAIT_S)
        counted = world.broker.end_of(TIMED)
        meter = world.meter()
        answer = take_answer(world.start_publisher(TIMED, rate=plan.live_rate, seconds=plan.live_s))
        end = counted + int(answer["rows"])
        if not wait_end(query, end, END_WAIT_S):
            raise ValueError(f"the query did not keep up: {query.exception() or 'it is behind'}")
        facts = meter.take()
        waits_ms = find_waits_ms(query, checkpoint, counted, answer)
    finally:
        query.stop()
    waits_ms.sort()
    return {
        **facts,
        "rows": float(answer["rows"]),
        "late_s": float(answer["late_s"]),
        "p50_ms": waits_ms[len(waits_ms) // 2],
        "p95_ms": waits_ms[len(waits_ms) * 95 // 100],
        "max_ms": waits_ms[-1],
    }


def wait_end(query: StreamingQuery, end: int, patience_s: float) -> bool:
    """Until a batch that ends there is committed."""
    deadline = time.monotonic() + patience_s
    pause = threading.Event()
    while time.monotonic() < deadline and query.isActive:
        last = query.lastProgress
        if last is not None and end_offset(json.loads(last.json)) >= end:
            return True
        pause.wait(LOOK_S)
    return False


def end_offset(progress: dict[str, Any]) -> int:
    place = progress["sources"][0]["endOffset"]
    if isinstance(place, str):
        place = json.loads(place)
    found: int = place[TIMED]["0"] if place else 0
    return found


def find_waits_ms(
    query: StreamingQuery, checkpoint: Path, counted: int, answer: dict[str, Any]
) -> list[float]:
    """One for each block: blocks are small beside batches, so that its last row speaks for all."""
    ends: list[tuple[int, int]] = []  # (end of a batch, when it was committed)
    for text in query.recentProgress:
        progress = json.loads(text.json)
        commit = checkpoint / "commits" / str(progress["batchId"])
        if progress["numInputRows"] and commit.exists():
            ends.append((end_offset(progress), commit.stat().st_mtime_ns))
    ends.sort()
    waits_ms: list[float] = []
    place = 0
    for number, stamp_ns in enumerate(answer["stamps_ns"]):
        behind = counted + (number + 1) * int(answer["block"])
        while place < len(ends) - 1 and ends[place][0] < behind:
            place += 1
        waits_ms.append((ends[place][1] - stamp_ns) / 1e6)
    return waits_ms
