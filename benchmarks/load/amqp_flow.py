"""Transient messages through one queue, pipelined: publishers on one side, consumers without acknowledgements on the other.

As the MQTT scenarios: a proof round in which every byte is parsed, then a warm-up, a measured window and a drain, with
publishers a bounded way ahead of the deliveries. Each message goes to one consumer.
"""

from __future__ import annotations

import select
from typing import Final

from benchmarks.load.amqp_frames import (
    AmqpShape,
    DeliveryReader,
    encode_transient_cycle,
    open_consumer,
    open_publisher,
    sequence_of,
)
from benchmarks.load.frames import FrameFault
from benchmarks.load.peers import Publisher, Subscriber
from benchmarks.load.queue_job import QueueJob, Window
from benchmarks.load.throughput import (
    AHEAD_BYTES,
    AHEAD_BYTES_PER_SUBSCRIBER,
    CYCLE_BYTES,
    Throughput,
)
from benchmarks.load.usage import UsageWindow

FLOW_QUEUE: Final = b"bench-flow"


class AmqpFlow(Throughput):
    """One transient scenario against one broker."""

    def __init__(self, job: QueueJob) -> None:
        super().__init__(job)
        self._core = job.broker_core

    def _open_window(self) -> UsageWindow:
        return Window(self._job.broker_pids, self._core)

    def _copies(self) -> int:
        return 1

    def _connect(self) -> None:
        job = self._job
        shape = AmqpShape(FLOW_QUEUE, job.payload_bytes)
        sample = encode_transient_cycle(FLOW_QUEUE, 1, job.payload_bytes, 0)
        self._cycle_count = max(CYCLE_BYTES // len(sample), 16)
        ahead_bytes = AHEAD_BYTES + AHEAD_BYTES_PER_SUBSCRIBER * job.subscribers
        self._ahead = max(ahead_bytes // shape.stride, 2 * job.publishers)
        for _ in range(job.subscribers):
            connection = open_consumer(job.host, job.port, FLOW_QUEUE)
            subscriber = Subscriber(connection, shape)
            self._subscribers.append(subscriber)
            self._subscriber_of[connection.fileno()] = subscriber
            self._poll.register(connection.fileno(), select.EPOLLIN)
        for index in range(job.publishers):
            connection = open_publisher(job.host, job.port)
            cycle = encode_transient_cycle(FLOW_QUEUE, self._cycle_count, job.payload_bytes, index)
            publisher = Publisher(connection, cycle, self._cycle_count, 0)
            self._publishers.append(publisher)
            self._publisher_of[connection.fileno()] = publisher
            self._poll.register(connection.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def _check_proof(self, count: int) -> None:
        """From each publisher, messages 0 to count - 1, once among all consumers, in order at each."""
        seen: dict[int, int] = {}
        for subscriber in self._subscribers:
            last: dict[int, int] = {}
            reader = DeliveryReader()
            for body in reader.feed(bytes(subscriber.captured or b"")):
                sequence = sequence_of(body)
                seen[sequence] = seen.get(sequence, 0) + 1
                if sequence <= last.get(sequence >> 32, -1):
                    raise FrameFault("deliveries of one publisher out of order")
                last[sequence >> 32] = sequence
            if reader.unread_length():
                raise FrameFault("the proof round ended inside a frame")
            subscriber.captured = None
        expected = {
            (publisher << 32) | index: 1
            for publisher in range(self._job.publishers)
            for index in range(count)
        }
        if seen != expected:
            raise FrameFault("the proof round lost, repeated or invented messages")
