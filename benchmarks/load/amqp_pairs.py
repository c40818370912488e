"""Round trips over AMQP 0.9.1: transient messages, each pair with a queue of its own, consumers without acknowledgements."""

from __future__ import annotations

import socket
from typing import Final

from benchmarks.load.amqp_frames import (
    DeliveryReader,
    delivery_bytes,
    encode_transient,
    open_consumer,
    open_publisher,
    sequence_of,
)
from benchmarks.load.frames import encode_payload
from benchmarks.load.pairs import READ_BYTES, Pair, Pairs, Steady
from benchmarks.load.queue_job import QueueJob, Window
from benchmarks.load.usage import UsageWindow

STEADY_QUEUE: Final = b"bench-steady"


class AmqpPairs(Pairs):
    """What one message per wake-up costs a broker."""

    def __init__(self, job: QueueJob) -> None:
        super().__init__(job)
        self._core = job.broker_core

    def _open_window(self) -> UsageWindow:
        return Window(self._job.broker_pids, self._core)

    def _connect(self) -> None:
        job = self._job
        for index in range(job.publishers):
            queue = f"bench-pair-{index:03d}".encode()
            consumer = open_consumer(job.host, job.port, queue)
            publisher = open_publisher(job.host, job.port)
            frame = encode_transient(queue, encode_payload(index, job.payload_bytes))
            self._add(Pair(publisher, consumer, frame, 0, delivery_bytes(queue, job.payload_bytes)))


class AmqpSteady(Steady):
    """One pair at a fixed rate, open loop."""

    def __init__(self, job: QueueJob) -> None:
        super().__init__(job)
        self._deliveries = DeliveryReader()

    def _open(self) -> tuple[socket.socket, socket.socket]:
        job = self._job
        consumer = open_consumer(job.host, job.port, STEADY_QUEUE)
        return open_publisher(job.host, job.port), consumer

    def _encode(self, index: int) -> bytes:
        return encode_transient(STEADY_QUEUE, encode_payload(index, self._job.payload_bytes))

    def _take(self, subscriber: socket.socket) -> list[int]:
        try:
            chunk = subscriber.recv(READ_BYTES)
        except BlockingIOError:
            return []
        sequences: list[int] = []
        for body in self._deliveries.feed(chunk):
            sequence = sequence_of(body)
            self._note(sequence)
            sequences.append(sequence)
        return sequences
