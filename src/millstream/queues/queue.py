"""A queue: a named log of records with any number of groups reading it.

Invariants
- Offsets count up in the order of appending, without gaps but those the store was left with (`gaps`); an offset has one value for ever.
- `visible` never runs ahead of what is durable: no group sees a record the broker could still forget.
- A work queue keeps a record until every group has settled it; a stream until its retention lets it go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.model.message_batch import MessageBatch
from millstream.model.outlet import Outlet, Run, Target
from millstream.model.queue_topic import place_under, queue_prefix, split_queue_topic
from millstream.queues.backlog import Backlog
from millstream.queues.consumers import AMQP_GROUP
from millstream.queues.definition import EPHEMERAL, STREAM, Definition
from millstream.queues.delayed import forget_below
from millstream.queues.expiry import MILLISECONDS, expire_head, expire_unwanted
from millstream.queues.forged_words import has_forged, without_forged
from millstream.queues.group import Group
from millstream.queues.group_rounds import GroupRounds
from millstream.queues.limits import bound, bound_now, find_refusal, is_awaited
from millstream.queues.low_mark import LowMark
from millstream.queues.memtable import Memtable, body_size, message_size
from millstream.queues.pending import Pending
from millstream.queues.publish_options import PublishOptions, read_publish_options
from millstream.queues.queue_counters import QueueCounters
from millstream.queues.queue_size import QueueSize
from millstream.queues.scheduler import Scheduler
from millstream.queues.unsynced import UnsyncedRecords
from millstream.security.quota import Usage
from millstream.storage.offset_gaps import OffsetGaps
from millstream.storage.records import queue_records
from millstream.storage.records.queue_records import (
    BatchEncoder,
    QueueRecord,
    decode_record_message,
    encode_record,
    record_time,
)
from millstream.storage.records.stored_queue import PRODUCERS_MAX

if TYPE_CHECKING:
    from millstream.queues.catalog import Catalog


SUCCESS: Final = Reason.SUCCESS
RECORD_APPENDED: Final[i64] = queue_records.RECORD_APPENDED


@final
class Queue(Outlet):
    def __init__(
        self,
        catalog: Catalog,
        number: i64,
        name: str,
        definition: Definition,
        scheduler: Scheduler,
        usage: Usage,
    ) -> None:
        self.catalog = catalog
        self.usage = usage  # of whoever declared it
        self.scheduler = scheduler
        self.number: i64 = number
        self.name = name
        self.definition = definition
        self.store = scheduler.store
        self.source = scheduler.source
        self.clock = scheduler.clock
        self.is_stream = definition.kind == STREAM
        self.is_durable = definition.kind != EPHEMERAL
        self.is_removed = False
        self.owner: object | None = None  # the connection it belongs to alone
        self.used_ns: i64 = scheduler.clock.now_ns  # when somebody last had to do with it
        self.hold_ns: i64 = 0  # how long a consumer may keep a delivery, unless it says otherwise
        self.is_bounded = False
        self.bounds_bytes = False  # of what waits
        self.is_to_bound = False  # it may have more than it may
        self.first: i64 = 0  # the oldest offset kept by retention or purge
        self.next: i64 = 0
        self.visible: i64 = 0  # all below may be handed out
        self.offered: i64 = 0  # all below were offered to whoever was there
        self.maybe_delivered_below: i64 = 0  # all below may have been handed out before a crash
        self.waits_from: i64 = 0  # nothing below waits, as far as it was looked for
        self.gaps = OffsetGaps()  # from where it begins on: nobody has these offsets
        self.size = QueueSize(self.gaps)
        self.memtable = Memtable(0, self.is_stream, scheduler.garbage)
        self.groups: dict[str, Group] = {}  # by title
        self.counters = QueueCounters()
        self.has_expiry = False
        self.head: i64 = -1  # the record that was first when its end was looked up
        self.head_expires_wall_ns: i64 = 0
        self.producers: dict[bytes, int] = {}
        self.delayed: dict[int, tuple[int, int]] = {}  # offset: priority, due (deadline)
        self._next_group: i64 = 1
        self.unsynced = UnsyncedRecords()
        self._group_rounds = GroupRounds()
        self.low = LowMark()
        self._prefix = queue_prefix(name) + b"/"
        self._nobody: Group | None = None
        self.backlog = Backlog(self, scheduler.pressure, scheduler.backlog_max, scheduler.backlog_bytes_max)
        self._apply(definition)

    def redefine(self, definition: Definition) -> None:
        self.definition = definition
        self._apply(definition)
        for group in self.groups.values():
            group.pending_deliveries.shorten(self.clock.now_ns + self.hold_ns)

    def _apply(self, definition: Definition) -> None:
        """What is asked for every record."""
        self.hold_ns = definition.visibility_ms * MILLISECONDS
        self.is_bounded = definition.length_max != 0 or definition.bytes_max != 0
        self.has_expiry = self.has_expiry or definition.message_ttl_ms != 0
        self.head = -1
        self.bounds_bytes = definition.bounds_ready and definition.bytes_max != 0
        if definition.bounds_ready != self.memtable.counts_payload:
            self.memtable.counts_payload = definition.bounds_ready
            self.size.count_anew(self.memtable)
        for group in self.groups.values():
            group.settled_bytes.recount(group.settled)

    def close(self) -> None:
        """It is removed: nothing it has keeps it in memory."""
        self.is_removed = True
        self.backlog.close()
        self._nobody = None

    def touch(self) -> None:
        self.used_ns = self.clock.now_ns

    # ---------------------------------------------------------------- outlet

    def deliver(self, message: Message, target: Target) -> None:
        self.append(message if self.catalog.posting else without_forged(message))

    def deliver_run(self, run: Run, target: Target) -> None:
        for message in run.messages():
            self.append(without_forged(message))

    def is_present(self) -> bool:
        return True

    def may_receive(self, topic: bytes) -> bool:
        return True  # whoever bound it was allowed to

    def is_storing(self) -> bool:
        return True

    def copies_payload(self) -> bool:
        return self.is_durable

    def find_refusal(self, message: Message) -> Reason:
        """SUCCESS, or why this message cannot be taken now."""
        return find_refusal(self, message) if self.is_bounded or self.usage.is_full else SUCCESS

    # ---------------------------------------------------------------- append

    def append(self, message: Message, is_dead_letter: bool = False) -> i64:
        """The offset it got, -1 when its producer had sent it before. A dead letter makes no other."""
        options = read_publish_options(message.properties)
        if options is not None and options.producer and not self.is_new(options):
            self.counters.repeated += 1
            return -1
        if self.is_bounded:
            bound(self, message, is_dead_letter)
        wall_ns = self.clock.wall_ns()
        offset: i64 = self.next
        if message.expires_ns:
            self.has_expiry = True
        self.counters.appended += 1
        if not self.is_durable:
            if options is not None:
                self._direct(QueueRecord(offset, wall_ns, 0, 0, b"", 0), options)
            self.memtable.add_message(offset, message, wall_ns)
            self.size.add(message_size(message, self.memtable.counts_payload))
            self.visible = self.next = offset + 1
            self.scheduler.wake(self)
            if self.next >= self.backlog.look_at or self.size.bytes >= self.backlog.look_bytes:
                self.backlog.look()
            return offset
        record = QueueRecord(offset, wall_ns, 0, 0, b"", 0)
        if options is not None:
            self._direct(record, options)
        self._add(offset, encode_record(self.number, record, message, self._expires_wall_ns(message)))
        return offset

    def deliver_batch(self, batch: MessageBatch) -> bool:
        message = batch.message
        if not self.is_durable or self.is_bounded or self.usage.is_full:
            return False
        if has_forged(message.properties) or read_publish_options(message.properties) is not None:
            return False
        if message.expires_ns:
            self.has_expiry = True
        self.counters.appended += batch.count
        expires_ns = self._expires_wall_ns(message)
        encoder = BatchEncoder(self.number, self.clock.wall_ns(), batch, expires_ns)
        for index in range(batch.count):
            self._add(self.next, encoder.encode(index, self.next))
        return True

    def _add(self, offset: i64, body: bytes) -> None:
        position: i64 = self.store.queue_fact(RECORD_APPENDED, body)
        durable: i64 = self.store.durable()
        self.next = offset + 1
        self.memtable.add(offset, position, body)
        self.size.add(body_size(body, self.memtable.counts_payload))
        if position <= durable:
            self.visible = self.next
            self.scheduler.wake(self)
        else:
            if self.unsynced.is_over(durable):
                self.scheduler.wait_durable(self)
            self.unsynced.add(position, offset)
        if self.next >= self.backlog.look_at or self.size.bytes >= self.backlog.look_bytes:
            self.backlog.look()

    def _expires_wall_ns(self, message: Message) -> i64:
        return message.expires_ns + self.clock.wall_offset_ns if message.expires_ns else 0

    def size_at(self, offset: i64) -> i64:
        """Of a record; of one in segments nobody knows."""
        return self.memtable.size_of(offset) if self.memtable.first <= offset < self.memtable.end else 0

    def size_of(self, message: Message) -> i64:
        """About what it will count for."""
        return message_size(message, self.memtable.counts_payload)

    def is_new(self, options: PublishOptions) -> bool:
        last = self.producers.get(options.producer)
        return last is None or options.sequence > last

    def _direct(self, record: QueueRecord, options: PublishOptions) -> None:
        """What the publisher asked for, within what the queue allows."""
        if options.producer:
            producers = self.producers
            producers.pop(options.producer, None)
            if len(producers) >= PRODUCERS_MAX:
                del producers[next(iter(producers))]
            producers[options.producer] = int(options.sequence)
            record.producer = options.producer
            record.producer_sequence = options.sequence
        if self.is_stream:
            return  # read in order, by everyone
        record.priority = min(int(options.priority), self.definition.priority_max)
        if options.delay_ms:
            record.not_before_wall_ns = record.time_wall_ns + options.delay_ms * MILLISECONDS
        if record.has_priority_or_delay():
            self._add_delayed(record)

    def _add_delayed(self, record: QueueRecord) -> None:
        not_before: i64 = record.not_before_wall_ns
        due_ns: i64 = not_before - self.clock.wall_offset_ns if not_before else 0
        self.delayed[int(record.offset)] = (int(record.priority), int(due_ns))
        for group in self.groups.values():
            group.delayed.add(record.offset, record.priority, due_ns)

    def has_priority_or_delay(self, offset: i64) -> bool:
        return len(self.delayed) != 0 and int(offset) in self.delayed

    def priority_of(self, offset: i64) -> i64:
        delayed = self.delayed.get(int(offset)) if self.delayed else None
        return 0 if delayed is None else delayed[0]

    def on_moved_back(self) -> None:
        """A group stands before where it stood."""
        self.low.forget()
        self.waits_from = 0

    def on_durable(self, durable: i64) -> bool:
        """True while something is not safe yet."""
        self.visible = self.unsynced.arrive(durable, self.visible, self.next)
        self.dispatch()
        return not self.unsynced.is_over(durable)

    def dispatch(self) -> None:
        is_round_over = self._group_rounds.dispatch(self)
        self.backlog.relax()
        if not is_round_over or self.scheduler.is_awake(self):
            return  # not all of it was offered yet
        self.offered = self.visible
        if self.definition.message_ttl_ms < 0:
            expire_unwanted(self)
        if self.is_to_bound and not is_awaited(self):
            self.is_to_bound = False
            bound_now(self)

    # ----------------------------------------------------------------- facts

    def note(self, kind: i64, body: bytes) -> i64:
        """Where it stands in the store; 0 for a queue that lives in memory: nothing to wait for."""
        return self.store.queue_fact(kind, body) if self.is_durable else 0

    def note_settled(self, group: Group, first: i64, last: i64) -> None:
        if not self.is_durable or not group.is_kept:
            return
        body = queue_records.encode_settled(int(self.number), int(group.number), int(first), int(last))
        self.note(queue_records.RECORDS_SETTLED, body)

    def note_committed(self, group: Group) -> None:
        self.scheduler.write_later(group)

    def write_committed(self, group: Group) -> None:
        """Once per turn of what was settled; one fact for everything that was so in order since the last."""
        if self.is_removed:
            return
        if group.committed > group.written:
            self.note_settled(group, group.written, group.committed - 1)
            group.written = group.committed

    def note_returned(self, group: Group, offset: i64, attempts: i64, due_ns: i64) -> None:
        if not self.is_durable or not group.is_kept:
            return
        wall_ns = int(due_ns + self.clock.wall_offset_ns) if due_ns else 0
        body = queue_records.encode_returned(
            int(self.number), int(group.number), int(offset), int(attempts), wall_ns
        )
        self.note(queue_records.RECORD_RETURNED, body)

    def save_group(self, group: Group) -> None:
        if group.is_kept:
            numbers = int(self.number), int(group.number), int(group.committed)
            body = queue_records.encode_group(*numbers, group.name, group.filter)
            self.note(queue_records.GROUP_SAVED, body)

    # ---------------------------------------------------------------- groups

    def get_group(self, name: str, filter: bytes, is_kept: bool = True) -> Group:
        """The group of that name and filter, made now if it is new: it starts at the oldest record."""
        title = f"{name}@{filter.decode()}" if filter else name
        group = self.groups.get(title)
        if group is None:
            group = Group(self, self._next_group, name, filter, self.low_mark())
            group.is_kept = is_kept
            if not is_kept:
                group.maybe_delivered_below = 0  # nobody had its name before
            self._next_group += 1
            self.groups[title] = group
            group.delayed.fill(self.delayed)
            self.save_group(group)
        return group

    def put_back_group(self, group: Group) -> None:
        self.groups[group.title()] = group
        self.low.forget()
        if group.number >= self._next_group:
            self._next_group = group.number + 1
        group.delayed.fill(self.delayed)

    def remove_group(self, group: Group) -> None:
        """The queue still begins where its last group stood: nothing unsettled goes with it."""
        low: i64 = self.low_mark()
        if self.groups.pop(group.title(), None) is None:
            return
        self.low.forget()
        if not self.groups and not self.is_stream and low > self.first:
            self.first = low
            self.note(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(int(self.number), int(low)))
        if group.is_kept:
            pair = queue_records.encode_pair(int(self.number), int(group.number))
            self.note(queue_records.GROUP_REMOVED, pair)

    def low_mark(self) -> i64:
        """The oldest offset somebody may still need."""
        if self.is_stream or not self.groups:
            return self.first
        return max(self.first, self.low.find(self.groups))

    def depth(self) -> i64:
        """Records that are kept: of a work queue those the slowest group has not settled."""
        if self.is_stream or not self.groups:
            return self.next - self.first - self.gaps.count
        most: i64 = 0
        for group in self.groups.values():
            lag = group.lag()
            if lag > most:
                most = lag
        return most

    def ready(self) -> i64:
        """Records that may be handed out: to the consumers of AMQP where there are such, else to anybody."""
        if self.is_stream or not self.groups:
            return self.next - self.first - self.gaps.count
        if AMQP_GROUP in self.groups:
            return self.groups[AMQP_GROUP].ready()
        most: i64 = 0
        for other in self.groups.values():
            waiting = other.ready()
            if waiting > most:
                most = waiting
        return most

    def unsettled(self) -> i64:
        """Records that are with a consumer."""
        return sum([len(group.pending) for group in self.groups.values()])

    def consumer_count(self) -> i64:
        return sum([len(group.consumers) for group in self.groups.values()])

    def let_go(self) -> None:
        """What nobody needs any more no longer counts, and need not be remembered."""
        low = self.low_mark()
        self.size.let_go(self.memtable, low)
        if self.delayed:
            forget_below(self.delayed, low)
        self.backlog.relax()

    def forget_folded(self, sequence: i64) -> None:
        if self.is_durable:
            self.size.on_folded(self.memtable, sequence)

    def sealed(self) -> i64:
        """One past the last offset that is in segments; of a stream exactly."""
        return self.memtable.sealed if self.memtable.sealed > self.first else self.first

    def reschedule(self) -> None:
        """There is more to hand out, but others have their turn first."""
        self.scheduler.wake(self)

    # --------------------------------------------------------------- records

    def find_record(self, offset: i64) -> bytes:
        """One record, read if need be; empty: it is not there (any more)."""
        memtable = self.memtable
        if offset < memtable.first:
            found = self.source.read(self.number, offset, offset + 1, 1)
            return found[0] if found else b""
        if self.is_durable:
            return memtable.get(offset) if offset < memtable.end else b""
        if offset >= memtable.end or offset < self.low_mark() or memtable.is_emptied(offset):
            return b""
        message = memtable.get_message(offset)
        priority, due_ns = self.delayed.get(int(offset), (0, 0))
        not_before: i64 = due_ns + self.clock.wall_offset_ns if due_ns else 0
        record = QueueRecord(offset, memtable.get_time(offset), not_before, priority, b"", 0)
        return encode_record(self.number, record, message, self._expires_wall_ns(message))

    def find_pending(self, group: Group | None, offset: i64) -> Pending | None:
        """One record, read if need be; None: it is not there (any more)."""
        if group is None:
            group = self.nobody()
        if not self.is_durable:
            if offset >= self.memtable.end or self.memtable.is_emptied(offset):
                return None
            return self.make_pending(group, offset, b"")
        body = self.find_record(offset)
        return self.make_pending(group, offset, body) if body else None

    def nobody(self) -> Group:
        """The group of records that no group has."""
        if self._nobody is None:
            self._nobody = Group(self, 0, "", b"", 0)
        return self._nobody

    def make_pending(self, group: Group, offset: i64, body: bytes) -> Pending:
        """Of a queue in memory there is no body: it has the message."""
        memtable = self.memtable
        if not self.is_durable:
            message = memtable.get_message(offset)
            size = message_size(message, memtable.counts_payload)
            return Pending(group, offset, message, memtable.get_time(offset), size)
        message = decode_record_message(body, -self.clock.wall_offset_ns)
        return Pending(group, offset, message, record_time(body), body_size(body, memtable.counts_payload))

    def routing_key(self, topic: bytes) -> bytes:
        """What filters inside the queue look at: the part behind the queue's name, or the whole topic."""
        place = split_queue_topic(topic)
        return topic if place is None or place[0] != self.name else place[1]

    def delivery_topic(self, topic: bytes) -> bytes:
        place = split_queue_topic(topic)
        return place_under(self._prefix, topic) if place is None or place[0] != self.name else topic

    # ------------------------------------------------------------ ways to end

    def trim(self, first: i64) -> None:
        """Everything below goes, for every group."""
        if first <= self.first:
            return
        if self.gaps.count:
            first = self.gaps.go_on(first, 0)
        self.first = first
        self.note(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(int(self.number), int(first)))
        for group in self.groups.values():
            group.move_up(first)
        self.let_go()

    def on_tick(self, now_ns: i64) -> None:
        if not self.groups and self.has_expiry:
            expire_head(self)
        for group in list(self.groups.values()):
            group.on_tick(now_ns)
