"""A steady stream to many subscribers, some of which stop reading: what the others and the broker's memory feel.

Round trips are timed from the moment a message was due, before and after, for the same subscribers: those that never
stop.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter_ns
from typing import Final

from benchmarks.load.frames import (
    PUBACK,
    SEQUENCE_LENGTH,
    FrameFault,
    answer_run,
    count_run,
    encode_payload,
    encode_publish,
)
from benchmarks.load.job import Job, Result, percentile
from benchmarks.load.link import connect_client, subscribe
from benchmarks.load.usage import read_rss_bytes, read_usage

TOPIC: Final = b"bench/slow"
READ_BYTES: Final = 1024 * 1024
MILLISECOND: Final = 1_000_000
RSS_INTERVAL_NS: Final = 100 * MILLISECOND
WAKE_NS: Final = 2000 * MILLISECOND


class Reader:
    """One subscriber that counts and, for QoS 1, answers; it knows the length of every delivery."""

    def __init__(self, connection: socket.socket, stride: int, qos: int) -> None:
        self.connection = connection
        self.received = 0
        self.is_timed = True
        self._stride = stride
        self._qos = qos
        self._unread = b""

    def take(self, buffer: bytearray, view: memoryview, id_offset: int) -> list[int]:
        """Sequence numbers of the messages that are now complete."""
        kept = len(self._unread)
        buffer[:kept] = self._unread
        try:
            count = self.connection.recv_into(view[kept:], 0)
        except BlockingIOError:
            return []
        if count == 0:
            raise FrameFault("the broker closed a subscriber that kept reading")
        end = kept + count
        run = count_run(buffer, 0, end, self._stride, buffer[0])
        if self._qos and run:
            self.connection.send(answer_run(buffer, 0, run, self._stride, id_offset, PUBACK))
        payload = id_offset + (2 if self._qos else 0)
        sequences: list[int] = []
        for index in range(run):
            place = index * self._stride + payload
            sequences.append(int.from_bytes(buffer[place : place + SEQUENCE_LENGTH], "big"))
        self.received += run
        self._unread = bytes(buffer[run * self._stride : end])
        return sequences


class SlowConsumers:
    """`subscribers` readers; after the first window `stopped` of them never read again."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._readers: dict[int, Reader] = {}
        self._poll = select.epoll()
        self._buffer = bytearray(READ_BYTES + job.payload_bytes + 1024)
        self._view = memoryview(self._buffer)
        self._sent = 0
        self._unsent = b""
        self._rss_max = 0
        self._next_rss_ns = 0
        self._frame = encode_publish(TOPIC, encode_payload(0, job.payload_bytes), job.qos, 1, b"")
        self._id_offset = self._frame.index(TOPIC) + len(TOPIC)

    def run(self) -> Result:
        job = self._job
        result = Result()
        doomed = self._connect()
        publisher = connect_client(job, "bench-publisher-0")
        self._stream(publisher, job.warmup_ms)
        result.rss_before_bytes = read_rss_bytes(job.broker_pids)
        usage = read_usage(job.broker_pids)
        before = self._stream(publisher, job.measure_ms)
        result.broker_cpu_s = read_usage(job.broker_pids).cpu_s - usage.cpu_s
        for reader in doomed:
            self._poll.unregister(reader.connection.fileno())
            del self._readers[reader.connection.fileno()]
        self._rss_max = 0
        first = self._stream(publisher, job.measure_ms)
        settled = self._stream(publisher, job.measure_ms)
        result.rss_after_bytes = self._rss_max
        self._wake(doomed, result)
        result.seconds = job.measure_ms / 1000
        result.deliveries = len(before)
        result.published_total = self._sent
        after = sorted(first + settled)
        result.findings["p99_before_us"] = percentile(sorted(before), 99) / 1000
        result.findings["p99_after_us"] = percentile(after, 99) / 1000
        result.findings["p99_settled_us"] = percentile(sorted(settled), 99) / 1000
        result.findings["longest_after_us"] = (after[-1] if after else 0) / 1000
        result.expected_total = self._sent * len(self._readers)
        result.delivered_total = sum([reader.received for reader in self._readers.values()])
        return result

    def _connect(self) -> list[Reader]:
        job = self._job
        doomed: list[Reader] = []
        for index in range(job.subscribers):
            connection = connect_client(job, f"bench-subscriber-{index}")
            subscribe(connection, job, TOPIC)
            reader = Reader(connection, len(self._frame), job.qos)
            if index < job.stopped:
                reader.is_timed = False
                doomed.append(reader)
            self._readers[connection.fileno()] = reader
            self._poll.register(connection.fileno(), select.EPOLLIN)
        return doomed

    def _wake(self, doomed: list[Reader], result: Result) -> None:
        """Let the stopped ones read what is left for them: what they missed was dropped by the broker's policy."""
        closed = 0
        deadline_ns = perf_counter_ns() + WAKE_NS
        waiting = list(doomed)
        while waiting and perf_counter_ns() < deadline_ns:
            for reader in list(waiting):
                try:
                    reader.take(self._buffer, self._view, self._id_offset)
                except (FrameFault, OSError):
                    closed += 1
                    waiting.remove(reader)
        received = sum([reader.received for reader in doomed])
        result.findings["stopped_missed"] = float(self._sent * len(doomed) - received)
        result.findings["stopped_closed"] = float(closed)

    def _stream(self, publisher: socket.socket, duration_ms: int) -> list[int]:
        """Publish at the fixed rate for a while and wait for the rest; the round trips of the readers."""
        job = self._job
        period_ns = 1_000_000_000 // job.rate
        count = duration_ms * MILLISECOND // period_ns
        first = self._sent
        first_ns = perf_counter_ns() + period_ns
        give_up_ns = first_ns + (duration_ms + job.silence_ms) * MILLISECOND
        samples_ns: list[int] = []
        wanted = count * sum([1 if reader.is_timed else 0 for reader in self._readers.values()])
        while len(samples_ns) < wanted:
            now_ns = perf_counter_ns()
            if now_ns > give_up_ns:
                break
            index = self._sent - first
            if index < count and now_ns >= first_ns + index * period_ns:
                self._publish(publisher)
            elif self._unsent:
                self._flush(publisher)
            self._watch_memory(now_ns)
            if job.qos:
                self._drop_confirms(publisher)
            for descriptor, _mask in self._poll.poll(0.0):
                reader = self._readers[descriptor]
                sequences = reader.take(self._buffer, self._view, self._id_offset)
                read_ns = perf_counter_ns()
                if not reader.is_timed:
                    continue
                for sequence in sequences:
                    samples_ns.append(read_ns - (first_ns + (sequence - first) * period_ns))
        return samples_ns

    def _publish(self, publisher: socket.socket) -> None:
        payload = encode_payload(self._sent, self._job.payload_bytes)
        frame = encode_publish(TOPIC, payload, self._job.qos, self._sent % 60_000 + 1, b"")
        self._unsent += frame
        self._sent += 1
        self._flush(publisher)

    def _flush(self, publisher: socket.socket) -> None:
        """A broker may hold its publishers back; the readers are read meanwhile."""
        try:
            count = publisher.send(self._unsent)
        except BlockingIOError:
            return
        self._unsent = self._unsent[count:]

    def _drop_confirms(self, publisher: socket.socket) -> None:
        try:
            publisher.recv(READ_BYTES)
        except BlockingIOError:
            return

    def _watch_memory(self, now_ns: int) -> None:
        if now_ns >= self._next_rss_ns:
            self._next_rss_ns = now_ns + RSS_INTERVAL_NS
            self._rss_max = max(self._rss_max, read_rss_bytes(self._job.broker_pids))
