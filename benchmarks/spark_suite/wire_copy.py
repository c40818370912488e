"""Serves the batches of an Arrow file once over TCP, as they lie in memory: the bare copy others are held against.

python -m benchmarks.spark_suite.wire_copy FILE     (prints its port)
"""

from __future__ import annotations

import io
import socket
import sys

import pyarrow as pa

BUFFERS_MAX = 512  # in one call


class Gather(io.RawIOBase):
    """Keeps what is written until it is sent, without a copy."""

    def __init__(self) -> None:
        self._parts: list[memoryview] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._parts.append(part)
        return len(part)

    def take(self) -> list[memoryview]:
        parts, self._parts = self._parts, []
        return [part for part in parts if len(part)]


def send(connection: socket.socket, parts: list[memoryview]) -> int:
    total = 0
    at = 0
    while at < len(parts):
        sent = connection.sendmsg(parts[at : at + BUFFERS_MAX])
        total += sent
        while at < len(parts) and sent >= len(parts[at]):
            sent -= len(parts[at])
            at += 1
        if sent:
            parts[at] = parts[at][sent:]
    return total


def main() -> int:
    with open(sys.argv[1], "rb") as file:
        stream = pa.ipc.open_stream(file)
        schema = stream.schema
        ready = list(stream)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    connection.recv(1)
    sink = Gather()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in ready:
            writer.write_batch(batch)
            send(connection, sink.take())
    send(connection, sink.take())
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)  # until the client has gone: its meter still looks at this process
    return 0


if __name__ == "__main__":
    sys.exit(main())
