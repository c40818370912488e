"""Pipelined scenarios: a proof round in which every byte is parsed, then a warm-up, a measured window and a drain.

Invariants
- Every subscriber matches every topic, so deliveries expected = messages sent x subscribers, and that count is exact.
- Publishers stay a bounded way ahead of the deliveries, so no broker is asked to store what it cannot deliver.
- The generator rests only while the broker has many times more work waiting than arrived in the last turn: a broker
  that writes message by message is then read in batches, and never waits for the generator.
- The same bounds hold for every broker.
"""

from __future__ import annotations

import select
from time import perf_counter, sleep
from typing import Final

from benchmarks.load.frames import (
    FrameFault,
    Proof,
    encode_cycle,
    encode_typical_properties,
)
from benchmarks.load.job import Job, Result
from benchmarks.load.link import connect_client, subscribe
from benchmarks.load.peers import READ_BYTES, Publisher, Shape, Subscriber
from benchmarks.load.usage import UsageWindow

AHEAD_BYTES: Final = 4 * 1024 * 1024  # QoS 0: deliveries a publisher may be ahead, in bytes,
AHEAD_BYTES_PER_SUBSCRIBER: Final = 256 * 1024  # plus this for each subscriber
AHEAD_WINDOWS: Final = 4  # QoS 1 and 2: windows the publishes may be ahead of the deliveries
CYCLE_BYTES: Final = 128 * 1024
PROOF_MESSAGES: Final = 200
WAIT_S: Final = 0.05
CLOCK_EVERY: Final = 8  # turns between looks at the clock
REST_US_MIN: Final = 100
REST_US_MAX: Final = (4000, 1000, 200)  # by QoS: the more answers a message needs, the sooner the next turn
BATCH: Final = 8  # messages per ready socket below which the generator rests, so that more come at once


def make_topics(layout: str, publisher: int, count: int) -> list[bytes]:
    if layout == "one":
        return [b"bench/t"]
    if layout == "mesh":
        return [f"bench/m/{publisher:03d}".encode()]
    if layout == "many":
        return [f"bench/d/{index:05d}".encode() for index in range(count)]
    raise FrameFault(f"no topic layout is called {layout}")


FILTERS: Final = {"one": b"bench/t", "mesh": b"bench/m/+", "many": b"bench/d/+"}
COMMON_TOPIC_BYTES: Final = {"one": 7, "mesh": 8, "many": 8}


class Throughput:
    """One pipelined scenario against one broker."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._publishers: list[Publisher] = []
        self._subscribers: list[Subscriber] = []
        self._publisher_of: dict[int, Publisher] = {}
        self._subscriber_of: dict[int, Subscriber] = {}
        self._poll = select.epoll()
        self._buffer = bytearray(READ_BYTES + job.payload_bytes + 1024)
        self._view = memoryview(self._buffer)
        self._topics: set[bytes] = set()
        self._cycle_count = 0
        self._ahead = 0
        self._delivered = 0
        self._rest_us = 0

    def run(self) -> Result:
        result = Result()
        self._connect()
        result.proven_messages = self._prove()
        self._set_thorough(False)
        self._load(self._job.warmup_ms / 1000)
        delivered_before = self._delivered
        window = self._open_window()
        self._load(self._job.measure_ms / 1000)
        result.deliveries = self._delivered - delivered_before
        window.close(result)
        self._set_thorough(True)
        self._drain()
        result.published_total = self._sent()
        result.expected_total = self._sent() * self._copies()
        result.delivered_total = self._delivered
        return result

    def _open_window(self) -> UsageWindow:
        return UsageWindow(self._job.broker_pids)

    def _copies(self) -> int:
        """Deliveries per message."""
        return len(self._subscribers)

    def _connect(self) -> None:
        job = self._job
        properties = b""
        if job.version == 5:
            properties = encode_typical_properties(job.has_long_properties) if job.has_properties else b"\x00"
        first = make_topics(job.layout, 0, job.topics)
        sample = encode_cycle(first[:1], 1, job.payload_bytes, job.qos, properties, 0)
        shape = Shape(sample, first[0], COMMON_TOPIC_BYTES[job.layout], job.qos)
        self._cycle_count = max(len(first), CYCLE_BYTES // len(sample), 16)
        if job.qos > 0:
            self._cycle_count = max(job.window * 2, min(self._cycle_count, 60_000))
            self._ahead = AHEAD_WINDOWS * job.window * job.publishers
        else:
            ahead_bytes = AHEAD_BYTES + AHEAD_BYTES_PER_SUBSCRIBER * job.subscribers
            self._ahead = max(ahead_bytes // (len(sample) * job.subscribers), 2 * job.publishers)
        for index in range(job.subscribers):
            connection = connect_client(job, f"bench-subscriber-{index}")
            subscribe(connection, job, FILTERS[job.layout])
            subscriber = Subscriber(connection, shape)
            self._subscribers.append(subscriber)
            self._subscriber_of[connection.fileno()] = subscriber
            self._poll.register(connection.fileno(), select.EPOLLIN)
        for index in range(job.publishers):
            connection = connect_client(job, f"bench-publisher-{index}")
            topics = make_topics(job.layout, index, job.topics)
            self._topics.update(topics)
            cycle = encode_cycle(topics, self._cycle_count, job.payload_bytes, job.qos, properties, index)
            publisher = Publisher(connection, cycle, self._cycle_count, job.qos)
            self._publishers.append(publisher)
            self._publisher_of[connection.fileno()] = publisher
            self._poll.register(connection.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def _prove(self) -> int:
        """A short round whose every delivery is parsed and compared; it leaves nothing in flight."""
        job = self._job
        count = max(
            1, min(PROOF_MESSAGES // job.publishers, self._cycle_count, self._ahead // job.publishers)
        )
        if job.qos > 0:
            count = min(count, job.window)
        for subscriber in self._subscribers:
            subscriber.captured = bytearray()
        for publisher in self._publishers:
            while publisher.sent_bytes < count * publisher.frame_bytes:
                publisher.send_until(count)
                self._turn(0.001)
        self._drain()
        self._check_proof(count)
        return count * job.publishers

    def _check_proof(self, count: int) -> None:
        job = self._job
        proof = Proof(self._topics, job.qos, job.version, job.publishers, count)
        for subscriber in self._subscribers:
            if subscriber.captured is not None:
                proof.check(bytes(subscriber.captured))
            subscriber.captured = None

    def _set_thorough(self, is_thorough: bool) -> None:
        for subscriber in self._subscribers:
            subscriber.is_thorough = is_thorough

    def _load(self, seconds: float) -> None:
        deadline = perf_counter() + seconds
        turns = 0
        while True:
            delivered = self._delivered
            has_more = self._publish()
            if self._rest_us:
                sleep(self._rest_us / 1e6)
            ready = self._turn(0.0 if has_more else WAIT_S)
            self._set_rest(ready, self._delivered - delivered)
            turns += 1
            if (turns % CLOCK_EVERY == 0 or self._rest_us) and perf_counter() >= deadline:
                return

    def _set_rest(self, ready: int, arrived: int) -> None:
        """Rest longer while little arrives per socket and the broker still has much to deliver; else less."""
        waiting = self._sent() * self._copies() - self._delivered
        if ready > 0 and arrived < ready * BATCH and arrived * BATCH < waiting:
            self._rest_us = min(REST_US_MAX[self._job.qos], max(REST_US_MIN, self._rest_us * 2))
        else:
            self._rest_us = self._rest_us // 2 if self._rest_us >= 2 * REST_US_MIN else 0

    def _publish(self) -> bool:
        """Let every publisher send what its window allows; true when one could send more at once."""
        job = self._job
        room = self._ahead - (self._sent() - self._delivered // self._copies())
        share = room // len(self._publishers)
        if share < self._ahead // len(self._publishers) // 4:
            return self._flush_releases()
        has_more = False
        for publisher in self._publishers:
            if publisher.is_blocked:
                continue
            limit = publisher.sent() + share
            if job.qos > 0:
                window_limit = publisher.settled + job.window
                if window_limit - publisher.sent() < job.window // 2:
                    window_limit = publisher.sent()  # wait for half a window: no broker is fed crumbs
                limit = min(limit, window_limit)
            if publisher.send_until(limit):
                has_more = True
        return has_more

    def _flush_releases(self) -> bool:
        if self._job.qos == 2:
            for publisher in self._publishers:
                if not publisher.is_blocked:
                    publisher.send_until(publisher.sent())
        return False

    def _turn(self, wait_s: float) -> int:
        """Read every ready socket once; how many there were."""
        events: list[tuple[int, int]] = self._poll.poll(wait_s)
        for descriptor, mask in events:
            subscriber = self._subscriber_of.get(descriptor)
            if subscriber is not None:
                received = subscriber.received
                subscriber.on_readable(self._buffer, self._view)
                self._delivered += subscriber.received - received
                continue
            publisher = self._publisher_of[descriptor]
            if mask & select.EPOLLOUT:
                publisher.is_blocked = False
            if mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                publisher.on_readable(self._buffer, self._view)
        if self._job.qos > 0:
            for subscriber in self._subscribers:
                if subscriber.unsent:
                    subscriber.send(b"")
        return len(events)

    def _drain(self) -> None:
        """Finish every packet begun, then wait for all deliveries and confirms, or for silence."""
        silent_since = perf_counter()
        last_seen = -1
        while True:
            for publisher in self._publishers:
                if publisher.has_unsent() and not publisher.is_blocked:
                    publisher.send_until(publisher.sent())
            self._turn(0.002)
            seen = self._delivered + self._settled() + self._completed()
            if self._is_settled():
                return
            now = perf_counter()
            if seen != last_seen:
                last_seen = seen
                silent_since = now
            elif now - silent_since > self._job.silence_ms / 1000:
                return

    def _is_settled(self) -> bool:
        sent = self._sent()
        if self._delivered < sent * self._copies():
            return False
        if self._job.qos == 0:
            return not any(publisher.has_unsent() for publisher in self._publishers)
        if self._job.qos == 2 and self._completed() < sent * self._copies():
            return False
        return self._settled() >= sent

    def _sent(self) -> int:
        return sum([publisher.sent() for publisher in self._publishers])

    def _settled(self) -> int:
        return sum([publisher.settled for publisher in self._publishers])

    def _completed(self) -> int:
        return sum([subscriber.completed for subscriber in self._subscribers])
