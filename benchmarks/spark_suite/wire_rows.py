"""Rows a second from segments over TCP, against a bare copy of the same Arrow batches: what making them costs.

One process serves on the first core, this one reads on the second. Both sides send the batches the same way, in the
same run; the bare copy has them ready in memory.

    python benchmarks/spark_suite/wire_rows.py [--rows 500000] [--rounds 5] [--check]
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

sys.path[0] = str(
    Path(__file__).resolve().parent.parent.parent
)  # the project, so that `benchmarks` is a package

import pyarrow as pa  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.spark_suite.wire_copy import Gather, send  # noqa: E402
from millstream.model.message import Message  # noqa: E402
from millstream.reader.arrow import LAYOUTS, SegmentBatches, schema_of  # noqa: E402
from millstream.runtime.disk.failpoints import NoFailpoints  # noqa: E402
from millstream.runtime.disk.files import RealDisk  # noqa: E402
from millstream.storage.records.queue_records import QueueRecord, encode_record  # noqa: E402
from millstream.storage.segments import run as segment_run  # noqa: E402
from millstream.storage.segments.writer import SegmentWriter  # noqa: E402

QUEUE = 1
NAME = "plant/events"
TOPICS = 200
PAYLOAD_SIZE = 100
SEGMENT_SIZE = 64 * 1024 * 1024
RATIO_MIN = 0.5
START_NS = 1_700_000_000_000_000_000

Batches = Callable[[], Iterable[pa.RecordBatch]]


class Result:
    def __init__(self, rate: float, cpu_ns: float, size: float) -> None:
        self.rate = rate  # rows a second
        self.cpu_ns = cpu_ns  # of the server, a row
        self.size = size  # bytes a row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--check", action="store_true", help="end with code 1 when the view layout is too slow"
    )
    parsed = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        console.print("The benchmark needs two cores: one for the server, one for the client.")
        return 2
    is_compiled = not str(segment_run.__file__).endswith(".py")
    console.print(f"{parsed.rows:,} rows, {'compiled' if is_compiled else 'interpreted'}")
    table = Table(
        "layout", "bytes/row", "bare rows/s", "from segments", "ratio", "bare CPU ns/row", "from segments"
    )
    ratio = 0.0
    with tempfile.TemporaryDirectory() as folder:
        disk = RealDisk(Path(folder))
        write_segments(disk, parsed.rows)
        for layout in LAYOUTS:
            bare, ours = measure(disk, layout, parsed.rows, parsed.rounds, cores)
            ratios = [mine.rate / copy.rate for mine, copy in zip(ours, bare, strict=True)]
            found = median(ratios)
            ratio = found if layout == "view" else ratio
            table.add_row(
                layout,
                f"{ours[0].size:.0f}",
                f"{median(one.rate for one in bare):,.0f}",
                f"{median(one.rate for one in ours):,.0f}",
                f"{found:.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
                f"{median(one.cpu_ns for one in bare):.0f}",
                f"{median(one.cpu_ns for one in ours):.0f}",
            )
    console.print(table)
    console.print(
        f"Ratios are those of the rounds, median and range; load of the machine {os.getloadavg()[0]:.1f}."
    )
    return 1 if parsed.check and ratio < RATIO_MIN else 0


def write_segments(disk: RealDisk, rows: int) -> None:
    writer = SegmentWriter(disk, NoFailpoints(), SEGMENT_SIZE)
    chance = random.Random(1)
    for offset in range(rows):
        topic = b"plant/7/device/%09d" % (offset % TOPICS)
        message = Message(
            topic, chance.randbytes(PAYLOAD_SIZE), 1, False, b"", 0, f"device-{offset % TOPICS:06d}"
        )
        record = QueueRecord(offset, START_NS + 1000 * offset, 0, 0, b"", 0)
        writer.append(QUEUE, encode_record(QUEUE, record, message, 0))
    writer.finish()


def measure(
    disk: RealDisk, layout: str, rows: int, rounds: int, cores: list[int]
) -> tuple[list[Result], list[Result]]:
    """(bare, from segments), one after the other in every round."""

    def read() -> Iterable[pa.RecordBatch]:
        return SegmentBatches(disk, QUEUE, NAME, 0, rows, layout=layout)

    ready = list(read())
    bare: list[Result] = []
    ours: list[Result] = []
    for _ in range(rounds):
        bare.append(transfer(lambda: ready, layout, rows, cores))
        ours.append(transfer(read, layout, rows, cores))
    return bare, ours


def transfer(batches: Batches, layout: str, rows: int, cores: list[int]) -> Result:
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        try:
            os.sched_setaffinity(0, {cores[0]})
            serve(listener, batches, layout)
        finally:
            os._exit(0)
    os.sched_setaffinity(0, {cores[1]})
    connection = socket.create_connection(listener.getsockname())
    listener.close()
    with connection, connection.makefile("rwb", buffering=1 << 20) as file:
        file.read(1)
        begin = time.perf_counter()
        file.write(b"!")
        file.flush()
        with pa.ipc.open_stream(file) as stream:
            found = sum(len(batch) for batch in stream)
        elapsed = time.perf_counter() - begin
        cpu_ns, size = file.read().split()
    os.waitpid(child, 0)
    os.sched_setaffinity(0, set(cores))
    if found != rows:
        raise SystemExit(f"{found} rows came instead of {rows}")
    return Result(rows / elapsed, int(cpu_ns) / rows, int(size) / rows)


def serve(listener: socket.socket, batches: Batches, layout: str) -> None:
    connection, _ = listener.accept()
    connection.sendall(b".")
    connection.recv(1)
    sink = Gather()
    size = 0
    begin = time.process_time_ns()
    with pa.ipc.new_stream(sink, schema_of(layout=layout)) as writer:
        for batch in batches():
            writer.write_batch(batch)
            size += send(connection, sink.take())
    size += send(connection, sink.take())
    connection.sendall(b"%d %d" % (time.process_time_ns() - begin, size))
    connection.close()


if __name__ == "__main__":
    sys.exit(main())
