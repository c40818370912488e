"""What the disk itself gives: a bare loop that appends batches of 256-byte records and syncs each batch.

With one record per batch it is S, the raw rate of fdatasync; with b records it is R(b). The file was written through
before, so that a sync finds nothing but data to write; at its end the loop begins again at its start.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Final

from benchmarks.load.job import Result
from benchmarks.load.queue_job import QueueJob, Window

RECORD_BYTES: Final = 256
FILE_BYTES: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 1024 * 1024


def measure_floors(job: QueueJob) -> Result:
    result = Result()
    path = f"{job.folder}/floor"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    window = Window([], -1)
    try:
        preallocate(descriptor)
        for batch in job.batches:
            result.findings[f"floor_{batch}"] = measure_batch(descriptor, batch, job.measure_ms / 1000)
    finally:
        os.close(descriptor)
        os.unlink(path)
    window.close(result)
    return result


def preallocate(descriptor: int) -> None:
    zeros = bytes(CHUNK_BYTES)
    for place in range(0, FILE_BYTES, CHUNK_BYTES):
        os.pwrite(descriptor, zeros, place)
    os.fsync(descriptor)


def measure_batch(descriptor: int, batch: int, seconds: float) -> float:
    """Records per second that are on disk."""
    records = b"\x5a" * (RECORD_BYTES * batch)
    place = 0
    count = 0
    started = perf_counter()
    deadline = started + seconds
    now = started
    while now < deadline:
        if place + len(records) > FILE_BYTES:
            place = 0
        os.pwrite(descriptor, records, place)
        os.fdatasync(descriptor)
        place += len(records)
        count += batch
        now = perf_counter()
    return count / (now - started)
