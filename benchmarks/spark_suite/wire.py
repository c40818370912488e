"""Rows a second from the reader over HTTP, against the same batches sent bare over TCP: what the reader adds.

The server has the first core, the client the second; on both sides the client does nothing but count rows.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa

from benchmarks.load.usage import find_family
from benchmarks.spark_suite.meter import read_cpu_s
from benchmarks.spark_suite.scenarios import OURS
from benchmarks.spark_suite.world import LONG, SparkWorld, set_cores
from benchmarks.suite.brokers import PROJECT

READ_BYTES = 1 << 20
ROWS_MAX = 1_000_000


class Wire:
    def __init__(self, world: SparkWorld, rows: int) -> None:
        self._world = world
        self._rows = min(rows, ROWS_MAX)

    def measure(self, side: str) -> dict[str, float]:
        cores = self._world.cores
        os.sched_setaffinity(0, {cores[1]})
        try:
            return self._measure_reader() if side == OURS else self._measure_bare()
        finally:
            os.sched_setaffinity(0, set(cores))
            set_cores(self._world.broker.reader_pid, cores)

    def _measure_reader(self) -> dict[str, float]:
        world = self._world
        set_cores(world.broker.reader_pid, [world.cores[0]])
        response = self._open()
        meter = world.meter()
        own_s = time.process_time()
        count_rows(pa.PythonFile(response, mode="r"), self._rows)
        return {**meter.take(), "rows": float(self._rows), "client_s": time.process_time() - own_s}

    def _open(self) -> http.client.HTTPResponse:
        end = self._world.broker.end_of(LONG)
        connection = http.client.HTTPConnection("127.0.0.1", self._world.broker.reader_port, timeout=60)
        connection.request("GET", f"/v1/queues/{LONG}/records?first={end - self._rows}&end={end}&layout=view")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ValueError(response.read().decode(errors="replace"))
        return response

    def _measure_bare(self) -> dict[str, float]:
        path = self._world.folder("wire") + ".arrows"
        with open(path, "wb") as file:
            response = self._open()
            while part := response.read(READ_BYTES):
                file.write(part)
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_suite.wire_copy", path],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            set_cores(process.pid, [self._world.cores[0]])
            with socket.create_connection(("127.0.0.1", port)) as connection:
                before_s = sum(read_cpu_s(pid) for pid in find_family(process.pid))
                meter = self._world.meter()
                own_s = time.process_time()
                connection.sendall(b"!")
                with connection.makefile("rb", buffering=READ_BYTES) as stream:
                    count_rows(stream, self._rows)
                client_s = time.process_time() - own_s
                facts = meter.take()
                cpu_s = sum(read_cpu_s(pid) for pid in find_family(process.pid)) - before_s
        finally:
            process.wait()
            os.unlink(path)
        return {**facts, "reader_cpu_s": cpu_s, "rows": float(self._rows), "client_s": client_s}


def count_rows(file: Any, expected: int) -> None:
    with pa.ipc.open_stream(file) as stream:
        found = sum(len(batch) for batch in stream)
    if found != expected:
        raise ValueError(f"{found:,} rows came instead of {expected:,}")
