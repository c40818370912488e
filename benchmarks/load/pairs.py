"""Round trips: many pairs with one message in flight each, and one pair at a light, steady rate.

A round trip is the time from handing the PUBLISH to the kernel until the delivery is read. In the steady scenario it
counts from the moment the message was due, so a stall of the broker is not hidden by a generator that waits for it.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter_ns
from typing import Final

from benchmarks.load.frames import (
    ANSWER_LENGTH,
    PUBACK,
    SEQUENCE_LENGTH,
    FrameFault,
    decode_publication,
    encode_cycle,
    encode_payload,
    encode_publish,
)
from benchmarks.load.frames import PacketReader as Reader
from benchmarks.load.job import Job, Result, set_round_trips
from benchmarks.load.link import connect_client, subscribe
from benchmarks.load.usage import UsageWindow, read_usage

NANOSECONDS_PER_MS: Final = 1_000_000
READ_BYTES: Final = 64 * 1024
STEADY_TOPIC: Final = b"bench/s"


class Pair:
    """A publisher and a subscriber on a topic of their own, one message between them at a time."""

    def __init__(
        self,
        publisher: socket.socket,
        subscriber: socket.socket,
        frame: bytes,
        qos: int,
        expected_bytes: int,
    ) -> None:
        self.publisher = publisher
        self.subscriber = subscriber
        self.qos = qos
        self.frame = frame
        self.expected_bytes = expected_bytes  # of a delivery
        self.started_ns = 0
        self.delivered_bytes = 0
        self.confirm_bytes = 0
        self.trips = 0

    def start(self, now_ns: int) -> None:
        self.delivered_bytes = 0
        self.confirm_bytes = 0 if self.qos else ANSWER_LENGTH
        self.started_ns = now_ns
        if self.publisher.send(self.frame) != len(self.frame):
            raise FrameFault("the kernel took only a part of one small packet")

    def is_done(self) -> bool:
        return self.delivered_bytes == self.expected_bytes and self.confirm_bytes == ANSWER_LENGTH


class Pairs:
    """`publishers` pairs, each with one message in flight: what one message per wake-up costs a broker."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pairs: list[Pair] = []
        self._by_subscriber: dict[int, Pair] = {}
        self._by_publisher: dict[int, Pair] = {}
        self._poll = select.epoll()
        self._samples_ns: list[int] = []
        self._is_running = True

    def run(self) -> Result:
        result = Result()
        self._connect()
        for pair in self._pairs:
            pair.start(perf_counter_ns())
        self._load(self._job.warmup_ms)
        self._samples_ns.clear()
        trips_before = self._trips()
        window = self._open_window()
        self._load(self._job.measure_ms)
        result.deliveries = self._trips() - trips_before
        window.close(result)
        set_round_trips(result, self._samples_ns)
        self._is_running = False
        self._load(self._job.silence_ms)
        result.delivered_total = self._trips()
        result.expected_total = self._trips() + sum([0 if pair.is_done() else 1 for pair in self._pairs])
        result.published_total = result.expected_total
        return result

    def _open_window(self) -> UsageWindow:
        return UsageWindow(self._job.broker_pids)

    def _connect(self) -> None:
        job = self._job
        for index in range(job.publishers):
            topic = f"bench/p/{index:03d}".encode()
            subscriber = connect_client(job, f"bench-subscriber-{index}")
            subscribe(subscriber, job, topic)
            publisher = connect_client(job, f"bench-publisher-{index}")
            properties = b"\x00" if job.version == 5 else b""
            frame = encode_cycle([topic], 1, job.payload_bytes, job.qos, properties, index)
            self._add(Pair(publisher, subscriber, frame, job.qos, len(frame)))

    def _add(self, pair: Pair) -> None:
        self._pairs.append(pair)
        self._by_subscriber[pair.subscriber.fileno()] = pair
        self._by_publisher[pair.publisher.fileno()] = pair
        self._poll.register(pair.subscriber.fileno(), select.EPOLLIN)
        self._poll.register(pair.publisher.fileno(), select.EPOLLIN)

    def _trips(self) -> int:
        return sum([pair.trips for pair in self._pairs])

    def _load(self, duration_ms: int) -> None:
        deadline_ns = perf_counter_ns() + duration_ms * NANOSECONDS_PER_MS
        while perf_counter_ns() < deadline_ns:
            events: list[tuple[int, int]] = self._poll.poll(0.05)
            for descriptor, _mask in events:
                pair = self._by_subscriber.get(descriptor)
                if pair is not None:
                    self._on_delivery(pair)
                else:
                    pair = self._by_publisher[descriptor]
                    self._on_confirm(pair)
                if pair.is_done() and self._is_running:
                    pair.start(perf_counter_ns())
            if not self._is_running and all([pair.is_done() for pair in self._pairs]):
                return

    def _on_delivery(self, pair: Pair) -> None:
        data = pair.subscriber.recv(READ_BYTES)
        if not data:
            raise FrameFault("the broker closed a connection")
        if pair.delivered_bytes == 0 and data[0] != pair.frame[0]:
            raise FrameFault(f"an unexpected packet: {data[:16].hex(' ')}")
        pair.delivered_bytes += len(data)
        if pair.delivered_bytes < pair.expected_bytes:
            if pair.qos:
                raise FrameFault("one small delivery came in two parts")
            return
        if pair.delivered_bytes > pair.expected_bytes:
            raise FrameFault("more than the one message in flight was delivered")
        self._samples_ns.append(perf_counter_ns() - pair.started_ns)
        pair.trips += 1
        if pair.qos:
            place = data.index(b"bench/p/") + 11
            pair.subscriber.send(bytes([PUBACK, 2]) + data[place : place + 2])

    def _on_confirm(self, pair: Pair) -> None:
        data = pair.publisher.recv(READ_BYTES)
        if not data:
            raise FrameFault("the broker closed a connection")
        pair.confirm_bytes += len(data)
        if data[0] != PUBACK or pair.confirm_bytes > ANSWER_LENGTH:
            raise FrameFault(f"an unexpected confirm: {data[:16].hex(' ')}")


class Steady:
    """One pair at a fixed rate, open loop; the generator spins so that no timer adds to the round trip."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._reader = Reader()
        self._received = 0

    def run(self) -> Result:
        job = self._job
        result = Result()
        publisher, subscriber = self._open()
        period_ns = 1_000_000_000 // job.rate
        skipped = job.warmup_ms * NANOSECONDS_PER_MS // period_ns
        count = skipped + job.measure_ms * NANOSECONDS_PER_MS // period_ns
        frames = [self._encode(index) for index in range(count)]
        samples_ns: list[int] = []
        first_ns = perf_counter_ns() + period_ns
        give_up_ns = first_ns + count * period_ns + job.silence_ms * NANOSECONDS_PER_MS
        sent = 0
        before = read_usage(job.broker_pids)
        while self._received < count and perf_counter_ns() < give_up_ns:
            if sent < count and perf_counter_ns() >= first_ns + sent * period_ns:
                publisher.send(frames[sent])
                sent += 1
            for sequence in self._take(subscriber):
                if sequence >= skipped:
                    samples_ns.append(perf_counter_ns() - (first_ns + sequence * period_ns))
            if job.qos:
                self._drop(publisher)
        result.seconds = (perf_counter_ns() - first_ns) / 1e9
        result.broker_cpu_s = read_usage(job.broker_pids).cpu_s - before.cpu_s
        result.deliveries = self._received
        result.published_total = sent
        result.expected_total = sent
        result.delivered_total = self._received
        set_round_trips(result, samples_ns)
        return result

    def _open(self) -> tuple[socket.socket, socket.socket]:
        """Publisher and subscriber."""
        job = self._job
        subscriber = connect_client(job, "bench-subscriber-0")
        subscribe(subscriber, job, STEADY_TOPIC)
        return connect_client(job, "bench-publisher-0"), subscriber

    def _encode(self, index: int) -> bytes:
        payload = encode_payload(index, self._job.payload_bytes)
        properties = b"\x00" if self._job.version == 5 else b""
        return encode_publish(STEADY_TOPIC, payload, self._job.qos, index % 60_000 + 1, properties)

    def _take(self, subscriber: socket.socket) -> list[int]:
        """The sequence numbers that have arrived, answered when they ask for it."""
        try:
            chunk = subscriber.recv(READ_BYTES)
        except BlockingIOError:
            return []
        sequences: list[int] = []
        answers = b""
        for packet in self._reader.feed(chunk):
            publication = decode_publication(packet, self._job.version)
            sequence = int.from_bytes(publication.payload[:SEQUENCE_LENGTH], "big")
            self._note(sequence)
            sequences.append(sequence)
            if publication.qos:
                answers += bytes([PUBACK, 2]) + publication.packet_id.to_bytes(2, "big")
        if answers:
            subscriber.send(answers)
        return sequences

    def _note(self, sequence: int) -> None:
        if sequence != self._received:
            raise FrameFault("a steady stream lost or swapped messages")
        self._received += 1

    def _drop(self, publisher: socket.socket) -> None:
        try:
            publisher.recv(READ_BYTES)
        except BlockingIOError:
            return
