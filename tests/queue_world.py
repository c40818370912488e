"""Queues without a broker: a catalog on a store that says how far it is safe, segments, consumers, a moved clock."""

from __future__ import annotations

from typing import Any

from fakes import HeldStore, ManualWakeup, World

from millstream.broker.queue_access import ConsumeRequest
from millstream.broker.session import Session
from millstream.model.clock import Clock
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.model.memory_budget import MemoryBudget
from millstream.model.message import NANOSECONDS, Message
from millstream.model.outcome import Outcome
from millstream.model.owner import Owner
from millstream.queues.catalog import Catalog
from millstream.queues.consumers import Consumer
from millstream.queues.definition import make_definition
from millstream.queues.exchange_port import ExchangePort
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.queues.publish_options import encode_user_property, read_user_properties
from millstream.queues.purge import Purge
from millstream.queues.queue import Queue
from millstream.queues.scheduler import Scheduler
from millstream.queues.x_death import is_cycle
from millstream.routing.router import Router
from millstream.routing.subscription import Subscription
from millstream.security.quotas import Quotas, QuotaTerms
from millstream.storage.log.format import Record
from millstream.storage.records import queue_records
from millstream.storage.records.fold import Fold
from millstream.storage.records.stored_queue import QueueFold, decode_state, encode_state
from millstream.storage.segments.record_source import RecordSource, RecordWaiter
from millstream.storage.store import Store

START_NS = 1_000 * NANOSECONDS
WALL_OFFSET_NS = 1_700_000_000 * NANOSECONDS
MILLISECONDS = 1_000_000


def purge(queue: Queue) -> int:
    """All of it; how many went."""
    purge = Purge(queue)
    while purge.run(1000) <= 0:
        pass
    return int(purge.count)


class FactStore(HeldStore):
    """Keeps every fact about queues with its position, so that a crash can forget what was not safe."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, int, bytes]] = []  # position, kind, body
        self.places: dict[tuple[int, int], int] = {}  # (queue, offset): position

    def queue_fact(self, kind: int, body: bytes) -> int:
        position = int(super().queue_fact(kind, body))
        self.log.append((position, int(kind), body))
        if kind == queue_records.RECORD_APPENDED:
            self.places[queue_records.record_place(body)] = position
        return position

    def forget_unsafe(self) -> None:
        """The crash: what was not safe is gone."""
        durable = int(self.durable())
        self.log = [entry for entry in self.log if entry[0] <= durable]
        self.places = {place: position for place, position in self.places.items() if position <= durable}

    def kinds(self) -> list[int]:
        return [kind for _, kind, _ in self.log]


class FakeSegments(RecordSource):
    """Records in a dict. Answers in the next iteration, or when `answer` is called if `is_slow`."""

    def __init__(self) -> None:
        self.records: dict[int, dict[int, bytes]] = {}
        self.is_slow = False
        self.count_max = 3
        self.waiting: list[tuple[int, int, int, RecordWaiter]] = []

    def put(self, body: bytes) -> None:
        queue, offset = queue_records.record_place(body)
        self.records.setdefault(queue, {})[offset] = body

    def request(self, queue: int, first: int, end: int, waiter: RecordWaiter) -> None:
        self.waiting.append((int(queue), int(first), int(end), waiter))

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for queue, first, end, waiter in waiting:
            bodies = self.read(queue, first, end, self.count_max)
            if len(bodies) == self.count_max:
                end = queue_records.record_place(bodies[-1])[1] + 1
            waiter.on_records(bodies, end)

    def read(self, queue: int, first: int, end: int, count_max: int) -> list[bytes]:
        kept = self.records.get(int(queue), {})
        return [kept[offset] for offset in sorted(kept) if first <= offset < end][: int(count_max)]

    def find_time(self, queue: int, wall_ns: int) -> int:
        kept = self.records.get(int(queue), {})
        young = [offset for offset in sorted(kept) if queue_records.record_time(kept[offset]) >= wall_ns]
        return young[0] if young else -1


class FakeConsumer(Consumer):
    """Takes up to `credit` unsettled deliveries and writes down what it got."""

    def __init__(self, name: str = "c", credit: int = 100) -> None:
        super().__init__(name, True)
        self.credit = credit
        self.got: list[Pending] = []
        self.is_removed = False
        self.is_connected = True
        self.answers: Outcome | None = None  # given while the delivery is made
        self.empty = 0  # how often it was told that there is nothing

    def has_credit(self) -> bool:
        return self.is_connected and self.open < self.credit

    def is_present(self) -> bool:
        return self.is_connected

    def deliver(self, pending: Pending) -> None:
        assert self.open <= self.credit, "more deliveries than credit"
        self.got.append(pending)
        if self.answers is not None:
            pending.group.settle(pending, self.answers, "")

    def on_empty(self) -> None:
        self.empty += 1

    def on_removed(self) -> None:
        self.is_removed = True

    def payloads(self) -> list[bytes]:
        return [pending.message.payload for pending in self.got]

    def take(self) -> list[bytes]:
        found = self.payloads()
        self.got = []
        return found

    def offsets(self) -> list[int]:
        return [int(pending.offset) for pending in self.got]

    def settle(self, at: int, outcome: Outcome = Outcome.ACCEPTED, reason: str = "") -> None:
        pending = self.got[at]
        pending.group.settle(pending, outcome, reason)

    def settle_all(self, outcome: Outcome = Outcome.ACCEPTED) -> None:
        got, self.got = self.got, []
        for pending in got:
            pending.group.settle(pending, outcome, "")


class AutoConsumer(FakeConsumer):
    """Takes everything without an answer, as fast as its connection does: up to `room` more."""

    def __init__(self, room: int = 0, owner: object = None) -> None:
        super().__init__("auto", 0)
        self.accepts_at_once = True
        self.room = room
        self.owner = owner

    def has_credit(self) -> bool:
        return self.room > 0

    def could_take_more(self) -> bool:
        return self.is_connected

    def belongs_to(self, source: object) -> bool:
        return source is self.owner

    def deliver(self, pending: Pending) -> None:
        self.room -= 1


class FakeExchanges(ExchangePort):
    """Every exchange has one binding: what is posted to it goes to the queue of its name, or nowhere."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.posted: list[tuple[str, bytes, Message]] = []
        self.removed: list[str] = []

    def post(self, exchange: str, key: bytes, letter: Message, owner: Owner | None, user: str) -> bool:
        self.posted.append((exchange, key, letter))
        queue = self.catalog.find(exchange)
        if queue is None or is_cycle(queue.name, letter):
            return False
        if queue.find_refusal(letter) is not Reason.SUCCESS:
            return False
        queue.append(letter)
        return True

    def is_leaving(self, name: str) -> bool:
        return False

    def finish_leaving(self, name: str) -> None:
        raise AssertionError("no queue leaves anything")

    def on_queue_removed(self, queue: Queue) -> None:
        self.removed.append(queue.name)


class QueueWorld:
    """One account's queues. `loop` is one iteration: hand out, then write what was settled."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = FactStore() if store is None else store
        self.segments = FakeSegments()
        self.gaps: list[tuple[int, int, int]] = []  # (queue, first, last), as the table notes them
        self.clock = Clock()
        self.clock.now_ns = START_NS
        self.clock.wall_offset_ns = WALL_OFFSET_NS
        self._start()

    def _start(self) -> None:
        self.wakeup = ManualWakeup()
        self.scheduler = Scheduler(self.store, self.segments, self.clock, self.wakeup)
        self.router = Router(1000)
        self.catalog = Catalog(
            "default", self.router, self.scheduler, Quotas("default", QuotaTerms(), MemoryBudget(Limits()))
        )
        self.exchanges = FakeExchanges(self.catalog)
        self.catalog.exchanges = self.exchanges

    @property
    def facts(self) -> FactStore:
        assert isinstance(self.store, FactStore)
        return self.store

    def declare(self, name: str = "q", **fields: object) -> Queue:
        return self.catalog.declare(name, make_definition(dict(fields)))

    def join(
        self,
        queue: Queue,
        group: str = "g",
        credit: int = 100,
        filter: bytes = b"",
        priority: int = 0,
        hold_ms: int = 0,
    ) -> FakeConsumer:
        consumer = FakeConsumer(group, credit)
        consumer.priority = priority
        consumer.hold_ms = hold_ms
        queue.get_group(group, filter).join(consumer)
        self.loop()
        return consumer

    def get(self, queue: Queue, group: str = "g") -> FakeConsumer:
        """Ask for one record."""
        consumer = FakeConsumer(group)
        queue.get_group(group, b"").get(consumer)
        return consumer

    def leave(self, queue: Queue, consumer: Consumer, title: str = "g") -> None:
        queue.groups[title].leave(consumer)
        self.catalog.on_consumer_left(queue)
        self.loop()

    def publish(self, queue: Queue, payload: bytes, key: bytes = b"", **words: Any) -> int:
        """Give it to the queue as a publish does; `words` are its directions."""
        return int(queue.append(self.message(queue, payload, key, **words)))

    def message(
        self, queue: Queue, payload: bytes, key: bytes = b"", expiry_ms: int = 0, **words: Any
    ) -> Message:
        properties = b"".join(
            encode_user_property(name.replace("_", "-").encode(), str(value).encode())
            for name, value in words.items()
        )
        topic = f"$queue/{queue.name}".encode() + (b"/" + key if key else b"")
        expires_ns = int(self.clock.now_ns) + expiry_ms * MILLISECONDS if expiry_ms else 0
        return Message(topic, payload, 1, False, properties, expires_ns, "publisher")

    def fill(self, queue: Queue, count: int, start: int = 0) -> None:
        for number in range(start, start + count):
            self.publish(queue, b"%d" % number)
        self.loop()

    def loop(self) -> None:
        while self.scheduler.work_off() or (self.segments.waiting and not self.segments.is_slow):
            if not self.segments.is_slow:
                self.segments.answer()
        self.scheduler.write_settled()

    def safe(self) -> None:
        """The store has made progress."""
        self.scheduler.on_durable(self.store.durable())
        self.loop()

    def move(self, milliseconds: float) -> None:
        self.clock.now_ns += int(milliseconds * MILLISECONDS)
        self.catalog.on_tick(self.clock.now_ns)
        self.loop()

    # ---------------------------------------------------------------- restart

    def restart(self, folded: float = 0.0, down_ms: int = 0, skip: int = 0) -> None:
        """Die and come back from what was safe; the share `folded` of it went through a checkpoint. With `skip` a repair has let
        every queue go on so many offsets later."""
        facts = self.facts
        facts.forget_unsafe()
        facts.release()
        boundary = int(len(facts.log) * folded)
        state = self._checkpoint(facts.log[:boundary])
        # another run: its monotonic clock begins elsewhere, wall time goes on
        wall_ns = int(self.clock.wall_ns()) + down_ms * MILLISECONDS
        self.clock = Clock()
        self.clock.now_ns = 5 * NANOSECONDS
        self.clock.wall_offset_ns = wall_ns - 5 * NANOSECONDS
        fold = Fold(int(self.clock.wall_offset_ns))
        fold.queues.queues = state.queues
        fold.queues.last_number = state.last_number
        for position, kind, body in facts.log[boundary:]:
            fold.apply(Record(position, kind, body))
        for number, first, last in self.gaps:
            fold.queues.queues[number].gaps.add(first, last)
        fold.queues.pass_gaps()
        if skip:
            for number, queue in fold.queues.queues.items():
                self.gaps.append((number, queue.next, queue.next + skip - 1))
                queue.skip_to(queue.next + skip)
        assert fold.orphans == 0
        assert fold.queues.orphans == 0
        self._start()
        self.scheduler.note_number(fold.state().last_queue)
        for queue in fold.queues.queues.values():
            self.catalog.restore(queue)
        self.loop()

    def _checkpoint(self, log: list[tuple[int, int, bytes]]) -> QueueFold:
        """What the table and the segments hold of this part of the log."""
        fold = QueueFold()
        for _, kind, body in log:
            fold.apply(kind, body)
        self.segments.records = {}
        self.segments.waiting = []
        for _, kind, body in log:
            if kind == queue_records.RECORD_APPENDED:
                number, offset = queue_records.record_place(body)
                if number in fold.queues and offset >= fold.queues[number].low_mark():
                    self.segments.put(body)
        fold.queues = {
            number: decode_state(number, encode_state(queue)) for number, queue in fold.queues.items()
        }
        return fold

    # ------------------------------------------------------------ looking in

    def queue(self, name: str = "q") -> Queue:
        return self.catalog.get(name)

    def group(self, title: str = "g", name: str = "q") -> Group:
        return self.queue(name).groups[title]

    def letters(self, name: str = "$dlq/q") -> list[tuple[bytes, dict[str, str]]]:
        """(payload, properties) of every dead letter."""
        queue = self.catalog.find(name)
        if queue is None:
            return []
        found: list[tuple[bytes, dict[str, str]]] = []
        owner = Group(queue, 0, "", b"", 0)
        for offset in range(int(queue.first), int(queue.next)):
            message = queue.make_pending(owner, offset, queue.find_record(offset)).message
            found.append((message.payload, words_of(message)))
        return found


class QueueBroker(World):
    """A broker with the steps of a loop."""

    def declare(self, name: str = "q", **fields: object) -> Queue:
        return self.account.queues.catalog.declare(name, make_definition(dict(fields)))

    def queue(self, name: str = "q") -> Queue:
        return self.account.queues.catalog.get(name)

    def loop(self) -> None:
        while self.broker.work_off():
            pass
        self.broker.write_settled()

    def consume(
        self,
        session: Session,
        filter: bytes = b"$queue/q",
        group: str = "g",
        guarantee: int = 1,
        is_explicit: bool = True,
        is_asked: bool = False,
        start: bytes = b"",
    ) -> None:
        subscription = Subscription(session, filter, b"", guarantee, False, False, 0)
        consume_request = ConsumeRequest(group, guarantee, 0, is_explicit, is_asked, start)
        self.broker.consume(session, subscription, consume_request)
        self.loop()

    def put(self, *payloads: bytes, topic: bytes = b"$queue/q") -> list[Reason]:
        reasons = [self.publish(topic, payload) for payload in payloads]
        self.loop()
        return reasons

    def say(self, client_id: str, verb: str, topic: bytes = b"$queue/q", **words: str) -> Reason:
        pairs = {name.replace("_", "-").encode(): value.encode() for name, value in words.items()}
        properties = b"".join(encode_user_property(name, value) for name, value in pairs.items())
        message = Message(topic + b"/" + verb.encode(), b"", 1, False, properties, 0, client_id)
        reason = self.account.queues.settle(message.topic, message, client_id)
        self.loop()
        return reason


def words_of(message: Message) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in read_user_properties(message.properties)}
