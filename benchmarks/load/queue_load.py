"""Queue scenarios: messages confirmed into a queue, taken out of it and settled, stored for a session, piled up.

Invariants
- A message counts when the broker confirmed it (publishing) or when it arrived and its answer went out (consuming).
- A queue that is measured while it empties was filled before, with every message confirmed; the first tenth of it is
  the warm-up.
- The same windows and credits hold for every broker.
"""

from __future__ import annotations

import os
import select
import socket
from time import perf_counter, perf_counter_ns
from typing import Final

from benchmarks.load.frames import FrameFault
from benchmarks.load.job import Result, set_round_trips
from benchmarks.load.queue_amqp import AmqpConsumer, AmqpPublisher, connect_amqp, declare_queue
from benchmarks.load.queue_job import QueueJob, Window, find_families, read_family_cpu_s
from benchmarks.load.queue_mqtt import (
    QUEUE_TOPIC,
    SESSION_TOPIC,
    MqttConsumer,
    MqttPublisher,
    connect_mqtt,
    connect_session,
    leave_session,
    return_to_session,
)
from benchmarks.load.queue_nats import (
    NatsConsumer,
    NatsPublisher,
    connect_nats,
    create_consumer,
    create_stream,
)
from benchmarks.load.queue_parties import READ_BYTES, Ledger, Party, QueueConsumer, QueuePublisher
from benchmarks.load.usage import read_rss_bytes

WAIT_S: Final = 0.05
UNSENT_WAIT_S: Final = 0.001
CLOCK_EVERY: Final = 8
NO_LIMIT: Final = 1 << 60
FILL_PUBLISHERS: Final = 10
FILL_WINDOW: Final = 256
AHEAD_WINDOWS: Final = 4  # publishers may be so many windows ahead of the deliveries
CONSUME_S_MAX: Final = 20.0  # a slower broker is measured as far as it came
FIRST_DELIVERY_S_MAX: Final = 120.0


class QueueLoad:
    """One queue scenario against one broker."""

    def __init__(self, job: QueueJob) -> None:
        self._job = job
        self._poll = select.epoll()
        self._parties: dict[int, Party] = {}
        self._publishers: list[QueuePublisher] = []
        self._window = job.window
        self._next = 0  # the number of the next message
        self._ledger = Ledger()
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._samples_ns: list[int] = []
        self._is_timed = False

    # ------------------------------------------------------------ scenarios

    def publish(self) -> Result:
        """Confirms per second into a queue, or into the session of a client that is away."""
        job = self._job
        self._prepare()
        self._open_publishers(job.publishers, job.window)
        self._load(job.warmup_ms / 1000, NO_LIMIT)
        result = Result()
        before = self._confirmed()
        self._is_timed = job.window == 1
        window = Window(job.broker_pids, job.broker_core)
        self._load(job.measure_ms / 1000, NO_LIMIT)
        result.deliveries = self._confirmed() - before
        window.close(result)
        self._is_timed = False
        set_round_trips(result, self._samples_ns)
        self._drain()
        result.published_total = self._next
        result.expected_total = self._next
        result.delivered_total = self._confirmed()
        return result

    def fill(self) -> Result:
        """So many messages, all confirmed: for a restart, or before they are consumed."""
        job = self._job
        self._prepare()
        result = Result()
        window = Window(job.broker_pids, job.broker_core)
        self._store(job.fill)
        window.close(result)
        result.deliveries = job.fill
        result.published_total = self._next
        result.expected_total = self._next
        result.delivered_total = job.fill
        return result

    def consume(self) -> Result:
        """Deliveries settled per second out of a queue filled before."""
        job = self._job
        filled = self.fill()
        self._ledger = Ledger()
        deadline = perf_counter() + CONSUME_S_MAX
        self._open_consumers()
        warm = job.fill // 10
        self._receive(warm, deadline)
        result = Result()
        before = self._ledger.delivered
        window = Window(job.broker_pids, job.broker_core)
        is_flowing = self._receive(job.fill, deadline)
        result.deliveries = self._ledger.delivered - before
        window.close(result)
        if self._ledger.delivered <= warm:
            raise FrameFault(f"{self._ledger.delivered:,} of {job.fill:,} messages came")
        result.published_total = job.fill
        result.delivered_total = self._ledger.delivered
        # what a slow broker had no time to deliver is not lost
        result.expected_total = self._ledger.delivered if is_flowing else job.fill
        result.findings["repeated"] = float(self._ledger.repeated)
        result.findings["fill_rate"] = filled.deliveries / filled.seconds
        result.findings["fill_cpu_us"] = filled.broker_cpu_s * 1e6 / filled.deliveries
        return result

    def serve(self) -> Result:
        """Deliveries per second, each one stored and confirmed on its way: out of a queue, or to a persistent session."""
        job = self._job
        if job.has_session:
            connection = connect_session(job.host, job.port)
            self._add(MqttConsumer(connection, self._ledger, SESSION_TOPIC, job.payload_bytes))
        else:
            self._prepare()
            self._open_consumers()
        self._open_publishers(job.publishers, job.window)
        ahead = AHEAD_WINDOWS * job.window * job.publishers
        self._load(job.warmup_ms / 1000, ahead)
        result = Result()
        before = self._ledger.delivered
        self._is_timed = job.window == 1
        window = Window(job.broker_pids, job.broker_core)
        self._load(job.measure_ms / 1000, ahead)
        result.deliveries = self._ledger.delivered - before
        window.close(result)
        self._is_timed = False
        set_round_trips(result, self._samples_ns)
        self._drain()
        self._receive(self._next, perf_counter() + CONSUME_S_MAX)
        result.published_total = self._next
        result.expected_total = self._next
        result.delivered_total = self._ledger.delivered
        result.findings["repeated"] = float(self._ledger.repeated)
        return result

    def grow(self) -> Result:
        """Messages pile up in steps: memory after each, and what a publish cost in each."""
        job = self._job
        self._prepare()
        result = Result()
        started = Window(job.broker_pids, job.broker_core)
        step = job.fill // job.steps
        costs_us: list[float] = []
        sizes: list[int] = []
        for number in range(1, job.steps + 1):
            before_s = read_family_cpu_s(job.broker_pids)
            self._store(step * number)
            costs_us.append((read_family_cpu_s(job.broker_pids) - before_s) * 1e6 / step)
            sizes.append(read_rss_bytes(job.broker_pids))
            beside = read_rss_bytes(find_families(job.broker_pids)) - sizes[-1]
            result.findings[f"step_{number}_cpu_us"] = costs_us[-1]
            result.findings[f"step_{number}_rss_bytes"] = float(sizes[-1])
            result.findings[f"step_{number}_beside_bytes"] = float(beside)  # a checkpoint's own process
        started.close(result)
        result.deliveries = step * job.steps
        result.published_total = self._next
        result.expected_total = self._next
        result.delivered_total = self._next
        result.rss_before_bytes = sizes[0]
        result.rss_after_bytes = max(sizes)
        result.findings["cpu_first_us"] = costs_us[0]
        result.findings["cpu_last_us"] = costs_us[-1]
        return result

    def wait_first(self) -> Result:
        """From connecting a consumer to its first delivery."""
        result = Result()
        started = perf_counter()
        self._open_consumers()
        while self._ledger.delivered == 0 and perf_counter() < started + FIRST_DELIVERY_S_MAX:
            self._turn(UNSENT_WAIT_S)
        result.seconds = perf_counter() - started
        if self._ledger.delivered == 0:
            raise FrameFault(f"no delivery within {FIRST_DELIVERY_S_MAX:.0f} s of the restart")
        result.findings["first_delivery_s"] = result.seconds
        return result

    # ---------------------------------------------------------- connections

    def _prepare(self) -> None:
        """What must exist before the first publish; Millstream makes or was told of its queues."""
        job = self._job
        if job.has_session:
            leave_session(connect_session(job.host, job.port))
        elif job.protocol == "nats":
            connection = connect_nats(job.host, job.port)
            create_stream(connection, job.is_stream)
            connection.close()
        elif job.protocol == "amqp":
            connection = connect_amqp(job.host, job.port)
            declare_queue(connection, job.is_stream)
            connection.close()

    def _open_publishers(self, count: int, window: int) -> None:
        self._window = window
        for index in range(count):
            publisher = self._make_publisher(index)
            self._publishers.append(publisher)
            self._add(publisher)

    def _make_publisher(self, index: int) -> QueuePublisher:
        job = self._job
        if job.protocol == "nats":
            return NatsPublisher(connect_nats(job.host, job.port), index, job.payload_bytes)
        if job.protocol == "amqp":
            return AmqpPublisher(connect_amqp(job.host, job.port), job.payload_bytes)
        topic = SESSION_TOPIC if job.has_session else QUEUE_TOPIC
        connection = connect_mqtt(job.host, job.port, f"publisher-{os.getpid()}-{index}", True)
        return MqttPublisher(connection, topic, job.payload_bytes)

    def _open_consumers(self) -> None:
        job = self._job
        for index in range(job.consumers):
            self._add(self._make_consumer(index))
        if job.protocol == "nats":
            connection = connect_nats(job.host, job.port)
            create_consumer(connection, job.credit * job.consumers)
            connection.close()

    def _make_consumer(self, index: int) -> QueueConsumer:
        job = self._job
        if job.protocol == "nats":
            return NatsConsumer(connect_nats(job.host, job.port), self._ledger)
        if job.protocol == "amqp":
            connection = connect_amqp(job.host, job.port)
            return AmqpConsumer(connection, self._ledger, job.credit, job.is_stream)
        if job.has_session:
            connection = return_to_session(job.host, job.port)
            return MqttConsumer(connection, self._ledger, SESSION_TOPIC, job.payload_bytes)
        connection = connect_mqtt(job.host, job.port, f"readers-{index}", True)
        consumer = MqttConsumer(connection, self._ledger, QUEUE_TOPIC, job.payload_bytes)
        consumer.subscribe(QUEUE_TOPIC)
        return consumer

    def _add(self, party: Party) -> None:
        connection: socket.socket = party.connection
        connection.setblocking(False)
        self._parties[connection.fileno()] = party
        self._poll.register(connection.fileno(), select.EPOLLIN)
        party.flush()

    def _close_publishers(self) -> None:
        for publisher in self._publishers:
            descriptor = publisher.connection.fileno()
            self._poll.unregister(descriptor)
            del self._parties[descriptor]
            publisher.close()
        self._publishers.clear()

    # ----------------------------------------------------------------- work

    def _store(self, total: int) -> None:
        """Publish until so many messages in all were sent, and wait for every confirm."""
        self._open_publishers(FILL_PUBLISHERS, FILL_WINDOW)
        while self._next < total:
            self._refill(total - self._next)
            self._turn(WAIT_S)
        self._drain()
        if self._confirmed() < sum([publisher.sent for publisher in self._publishers]):
            raise FrameFault("the broker stopped confirming while the queue was filled")
        self._close_publishers()

    def _load(self, seconds: float, ahead: int) -> None:
        """Keep every window full for so long; never more than `ahead` messages before the deliveries."""
        deadline = perf_counter() + seconds
        turns = 0
        while True:
            room = NO_LIMIT if ahead == NO_LIMIT else ahead - (self._next - self._ledger.delivered)
            if room >= self._window:
                self._refill(room)
            self._turn(WAIT_S)
            turns += 1
            if turns % CLOCK_EVERY == 0 and perf_counter() >= deadline:
                return

    def _refill(self, room: int) -> None:
        """Each publisher up to its window; a wide one waits until half of it is free, so no broker is fed crumbs."""
        window = self._window
        for publisher in self._publishers:
            count = min(window - (publisher.sent - publisher.confirmed), room)
            if count <= 0 or publisher.unsent or (count < window // 2 and count < room):
                continue
            publisher.publish(self._next, count)
            self._next += count
            room -= count

    def _receive(self, total: int, deadline: float) -> bool:
        """Until so many messages were delivered in all, or time is over; false when they stopped coming."""
        silence_s = self._job.silence_ms / 1000
        silent_since = perf_counter()
        last_seen = -1
        turns = 0
        while self._ledger.delivered < total:
            self._turn(WAIT_S)
            turns += 1
            if turns % CLOCK_EVERY == 0:
                now = perf_counter()
                if now >= deadline:
                    return True
                if self._ledger.delivered != last_seen:
                    last_seen = self._ledger.delivered
                    silent_since = now
                elif now - silent_since > silence_s:
                    return False
        return True

    def _turn(self, wait_s: float) -> None:
        has_unsent = False
        for party in self._parties.values():
            if party.unsent:
                party.flush()
                has_unsent = has_unsent or len(party.unsent) > 0
        events: list[tuple[int, int]] = self._poll.poll(UNSENT_WAIT_S if has_unsent else wait_s)
        for descriptor, _mask in events:
            party = self._parties[descriptor]
            if self._is_timed and isinstance(party, QueuePublisher):
                self._take_timed(party)
            else:
                party.on_readable(self._buffer, self._view)

    def _take_timed(self, publisher: QueuePublisher) -> None:
        """With one message in flight, the time from sending to confirm is the broker's answer time."""
        before = publisher.confirmed
        publisher.on_readable(self._buffer, self._view)
        if publisher.confirmed > before:
            self._samples_ns.append(perf_counter_ns() - publisher.sent_ns)

    def _drain(self) -> None:
        """Wait for the outstanding confirms, or for silence."""
        silence_s = self._job.silence_ms / 1000
        silent_since = perf_counter()
        last_seen = -1
        while True:
            seen = self._confirmed()
            if seen == sum([publisher.sent for publisher in self._publishers]):
                return
            now = perf_counter()
            if seen != last_seen:
                last_seen = seen
                silent_since = now
            elif now - silent_since > silence_s:
                return
            self._turn(UNSENT_WAIT_S * 2)

    def _confirmed(self) -> int:
        return sum([publisher.confirmed for publisher in self._publishers])
