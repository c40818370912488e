"""Idle connections: thousands of clients, each with a session and one subscription, and what the broker's memory says.

The first connections are opened and closed before the first reading, so that code and buffers a broker loads once
are not charged to the connections.
"""

from __future__ import annotations

import socket
from time import perf_counter, sleep
from typing import Final

from benchmarks.load.frames import (
    CONNACK,
    SUBACK,
    FrameFault,
    PacketReader,
    encode_connect,
    encode_subscribe,
)
from benchmarks.load.job import Job, Result
from benchmarks.load.link import (
    HANDSHAKE_TIMEOUT_S,
    KEEP_ALIVE_S,
    encode_upgrade,
    mask_frame,
    open_socket,
    unwrap_frames,
)
from benchmarks.load.usage import read_rss_bytes, read_usage

BATCH: Final = 50  # within the accept backlog of every broker compared
FIRST: Final = 50
SETTLE_S: Final = 1.0


class Idle:
    """Opens `connections` clients in batches and reads the broker's resident memory before and after."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open: list[socket.socket] = []

    def run(self) -> Result:
        job = self._job
        result = Result()
        self._open_batch(0, FIRST)
        for connection in self._open:
            connection.close()
        self._open.clear()
        sleep(SETTLE_S)
        result.rss_before_bytes = read_rss_bytes(job.broker_pids)
        before = read_usage(job.broker_pids)
        started = perf_counter()
        while len(self._open) < job.connections:
            first = FIRST + len(self._open)
            self._open_batch(first, min(BATCH, job.connections - len(self._open)))
        result.seconds = perf_counter() - started
        result.broker_cpu_s = read_usage(job.broker_pids).cpu_s - before.cpu_s
        sleep(SETTLE_S)
        result.rss_after_bytes = read_rss_bytes(job.broker_pids)
        result.connections = len(self._open)
        for connection in self._open:
            connection.close()
        return result

    def _open_batch(self, first: int, count: int) -> None:
        """One step for all clients of the batch, then the next step: the broker never waits for one client."""
        job = self._job
        batch = [open_socket(job.host, job.port) for _ in range(count)]
        if job.websocket_path:
            upgrade = encode_upgrade(job.host, job.port, job.websocket_path)
            for connection in batch:
                connection.sendall(upgrade)
            for connection in batch:
                self._wait_upgrade(connection)
        for index, connection in enumerate(batch):
            self._send(
                connection, encode_connect(f"idle-{first + index}".encode(), job.version, KEEP_ALIVE_S)
            )
        for connection in batch:
            self._wait(connection, CONNACK)
        for index, connection in enumerate(batch):
            topic_filter = f"idle/{first + index}/command".encode()
            self._send(connection, encode_subscribe(1, topic_filter, job.qos, job.version))
        for connection in batch:
            self._wait(connection, SUBACK)
        self._open.extend(batch)

    def _send(self, connection: socket.socket, packet: bytes) -> None:
        connection.sendall(mask_frame(packet) if self._job.websocket_path else packet)

    def _wait(self, connection: socket.socket, first_byte: int) -> None:
        connection.settimeout(HANDSHAKE_TIMEOUT_S)
        received = b""
        while True:
            chunk = connection.recv(4096)
            if not chunk:
                raise FrameFault("the broker closed an idle connection")
            received += chunk
            stream = unwrap_frames(received) if self._job.websocket_path else received
            packets = PacketReader().feed(stream)
            if packets:
                if packets[0].first_byte != first_byte:
                    raise FrameFault(f"packet 0x{packets[0].first_byte:02x} instead of 0x{first_byte:02x}")
                return

    def _wait_upgrade(self, connection: socket.socket) -> None:
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            chunk = connection.recv(4096)
            if not chunk:
                raise FrameFault("the broker closed a WebSocket during its handshake")
            received += chunk
        if not received.startswith(b"HTTP/1.1 101"):
            raise FrameFault("the broker refused the WebSocket")
