"""A queue: a named log of records with any number of groups reading it.

Invariants
- Offsets count up without gaps in the order of appending; an offset has one value for ever.
- `visible` never runs ahead of what is durable: no group sees a record the broker could still forget.
- A work queue keeps a record until every group has settled it; a stream until its retention lets it go.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.model.outlet import Outlet, Run, Target
from millstream.queues.agenda import Agenda
from millstream.queues.definition import DEAD_LETTER_PREFIX, EPHEMERAL, STREAM, Definition
from millstream.queues.directions import Directions, read_directions
from millstream.queues.footprint import Footprint
from millstream.queues.group import MILLISECONDS, SLICE, Group
from millstream.queues.names import split_queue_topic
from millstream.queues.pending import Pending
from millstream.queues.tail import Tail
from millstream.storage import queue_facts
from millstream.storage.queue_facts import QueueRecord, decode_record_message, encode_record, record_time
from millstream.storage.stored_queue import PRODUCERS_MAX, StoredQueue

if TYPE_CHECKING:
    from millstream.queues.catalog import Catalog


MARK_EVERY: Final[i64] = 64  # of the records of one batch only so many need to be told apart


@final
class QueueCounters:
    def __init__(self) -> None:
        self.appended: i64 = 0
        self.refused: i64 = 0
        self.repeated: i64 = 0  # dropped: the producer had sent it before
        self.expired: i64 = 0
        self.dropped: i64 = 0  # by the overflow policy, or rejected without a dead-letter queue
        self.dead_lettered: i64 = 0
        self.timed_out: i64 = 0  # not settled within the visibility time


@final
class Queue(Outlet):
    def __init__(
        self,
        catalog: Catalog,
        number: i64,
        name: str,
        definition: Definition,
        agenda: Agenda,
    ) -> None:
        self.catalog = catalog
        self.agenda = agenda
        self.number: i64 = number
        self.name = name
        self.definition = definition
        self.store = agenda.store
        self.source = agenda.source
        self.clock = agenda.clock
        self.is_stream = definition.kind == STREAM
        self.is_durable = definition.kind != EPHEMERAL
        self.is_removed = False
        self.first: i64 = 0  # the oldest offset kept by retention or purge
        self.next: i64 = 0
        self.visible: i64 = 0  # all below may be handed out
        self.footprint = Footprint()
        self.tail = Tail(0, self.is_stream)
        self.groups: dict[str, Group] = {}  # by title
        self.counters = QueueCounters()
        self.has_expiry = definition.message_ttl_ms != 0
        self.producers: dict[bytes, int] = {}
        self.specials: dict[int, tuple[int, int]] = {}  # offset: priority, due (deadline)
        self._next_group: i64 = 1
        # position in the store, offset behind it: of some records on the way, and of the last one
        self._unsafe: deque[tuple[int, int]] = deque()
        self._last_position: i64 = 0
        self._prefix = (f"{name}/" if name.startswith(DEAD_LETTER_PREFIX) else f"$queue/{name}/").encode()

    def redefine(self, definition: Definition) -> None:
        self.definition = definition
        self.has_expiry = self.has_expiry or definition.message_ttl_ms != 0
        for group in self.groups.values():
            group.shorten_deadlines(self.clock.now_ns + definition.visibility_ms * MILLISECONDS)

    def restore(self, stored: StoredQueue) -> None:
        self.first = stored.first
        self.next = stored.next
        self.visible = stored.next
        self.producers = stored.producers
        self.has_expiry = True  # what is in the segments may have one
        offset_ns = int(self.clock.wall_offset_ns)
        for offset, (priority, wall_ns) in stored.specials.items():
            self.specials[offset] = (priority, max(1, wall_ns - offset_ns) if wall_ns else 0)
        in_log = len(stored.tail)
        first_in_log = queue_facts.record_place(stored.tail[0][1])[1] if in_log else stored.next
        self.tail = Tail(first_in_log, self.is_stream)
        for sequence, body in stored.tail:
            self.tail.add(queue_facts.record_place(body)[1], sequence, body)
        for entry in stored.groups.values():
            group = Group(self, entry.number, entry.name, entry.filter, entry.committed)
            group.restore(entry.settled, entry.returned, offset_ns)
            self.put_back_group(group)
        self.footprint.restore(stored.bytes, self.tail, self.low_mark())

    # ---------------------------------------------------------------- outlet

    def deliver(self, message: Message, target: Target) -> None:
        self.append(message)

    def deliver_run(self, run: Run, target: Target) -> None:
        for message in run.messages():
            self.append(message)

    def is_present(self) -> bool:
        return True

    def may_receive(self, topic: bytes) -> bool:
        return True  # whoever bound it was allowed to

    def is_storing(self) -> bool:
        return True

    def find_refusal(self, message: Message) -> Reason:
        """SUCCESS, or why this message cannot be taken now."""
        definition = self.definition
        if not definition.length_max and not definition.bytes_max:
            return Reason.SUCCESS
        size = message.size_bytes()
        if definition.overflow != "reject" and (not definition.bytes_max or size <= definition.bytes_max):
            return Reason.SUCCESS
        if definition.overflow == "reject" and self._has_room(size):
            return Reason.SUCCESS
        directions = read_directions(message.properties)
        if directions is not None and directions.producer and not self._is_new(directions):
            return Reason.SUCCESS  # it is here already
        self.counters.refused += 1
        return Reason.QUOTA_EXCEEDED

    def _has_room(self, size: i64) -> bool:
        definition = self.definition
        if definition.length_max and self.depth() >= definition.length_max:
            return False
        return not definition.bytes_max or self.footprint.bytes + size <= definition.bytes_max

    # ---------------------------------------------------------------- append

    def append(self, message: Message, is_dead_letter: bool = False) -> i64:
        """The offset it got, -1 when its producer had sent it before. A dead letter makes no other."""
        directions = read_directions(message.properties)
        if directions is not None and directions.producer and not self._is_new(directions):
            self.counters.repeated += 1
            return -1
        overflow = self.definition.overflow
        if overflow == "drop_head" or (overflow == "dead_letter" and not is_dead_letter):
            while not self._has_room(message.size_bytes()) and self.drop_head():
                pass
        wall_ns = self.clock.wall_ns()
        offset: i64 = self.next
        record = QueueRecord(offset, wall_ns, 0, 0, b"", 0)
        if directions is not None:
            self._direct(record, directions)
        expires_ns: i64 = message.expires_ns
        if expires_ns:
            self.has_expiry = True
        expires_wall_ns = int(expires_ns + self.clock.wall_offset_ns) if expires_ns else 0
        body = encode_record(int(self.number), record, message, expires_wall_ns)
        position = self.note(queue_facts.RECORD_APPENDED, body)
        self.next = offset + 1
        self.tail.add(offset, position, body)
        self.footprint.add(len(body))
        self.counters.appended += 1
        if record.is_special():
            self._add_special(record)
        if position <= self.store.durable():
            self.visible = self.next
            self.agenda.wake(self)
        else:
            if self._last_position <= self.store.durable():
                self.agenda.wait_durable(self)
            if offset % MARK_EVERY == 0:
                self._unsafe.append((int(position), int(self.next)))
            self._last_position = position
        return offset

    def _is_new(self, directions: Directions) -> bool:
        last = self.producers.get(directions.producer)
        return last is None or directions.sequence > last

    def _direct(self, record: QueueRecord, directions: Directions) -> None:
        """What the publisher asked for, within what the queue allows."""
        if directions.producer:
            producers = self.producers
            producers.pop(directions.producer, None)
            if len(producers) >= PRODUCERS_MAX:
                del producers[next(iter(producers))]
            producers[directions.producer] = int(directions.sequence)
            record.producer = directions.producer
            record.producer_sequence = directions.sequence
        if self.is_stream:
            return  # read in order, by everyone
        priority = directions.priority
        record.priority = (
            priority if priority < self.definition.priority_max else self.definition.priority_max
        )
        if directions.delay_ms:
            record.not_before_wall_ns = record.time_wall_ns + directions.delay_ms * MILLISECONDS

    def _add_special(self, record: QueueRecord) -> None:
        due_ns: i64 = 0
        if record.not_before_wall_ns:
            due_ns = record.not_before_wall_ns - self.clock.wall_offset_ns
        self.specials[int(record.offset)] = (int(record.priority), int(due_ns))
        for group in self.groups.values():
            group.specials.add(record.offset, record.priority, due_ns)

    def is_special(self, offset: i64) -> bool:
        return len(self.specials) != 0 and int(offset) in self.specials

    def fill_specials(self, group: Group) -> None:
        for offset, (priority, due_ns) in self.specials.items():
            if not group.is_settled(offset):
                group.specials.add(offset, priority, due_ns)

    def on_durable(self, durable: i64) -> bool:
        """True while something is not safe yet."""
        unsafe = self._unsafe
        while unsafe and unsafe[0][0] <= durable:
            self.visible = unsafe.popleft()[1]
        if self._last_position <= durable:
            self.visible = self.next
        self.dispatch()
        return self._last_position > durable

    def dispatch(self) -> None:
        for group in list(self.groups.values()):
            group.dispatch()

    # ----------------------------------------------------------------- facts

    def note(self, kind: i64, body: bytes) -> i64:
        """Where it stands in the store; 0 for a queue that lives in memory: nothing to wait for."""
        return self.store.queue_fact(kind, body) if self.is_durable else 0

    def note_settled(self, group: Group, first: i64, last: i64) -> None:
        body = queue_facts.encode_settled(int(self.number), int(group.number), int(first), int(last))
        self.note(queue_facts.RECORDS_SETTLED, body)

    def note_committed(self, group: Group) -> None:
        self.agenda.write_later(group)

    def write_committed(self, group: Group) -> None:
        """One fact for everything that was settled in order since the last."""
        if self.is_removed:
            return
        if group.committed > group.written:
            self.note_settled(group, group.written, group.committed - 1)
            group.written = group.committed
        if not self.is_stream:
            self.let_go()

    def note_returned(self, group: Group, offset: i64, attempts: i64, due_ns: i64) -> None:
        wall_ns = int(due_ns + self.clock.wall_offset_ns) if due_ns else 0
        body = queue_facts.encode_returned(
            int(self.number), int(group.number), int(offset), int(attempts), wall_ns
        )
        self.note(queue_facts.RECORD_RETURNED, body)

    def save_group(self, group: Group) -> None:
        body = queue_facts.encode_group(
            int(self.number), int(group.number), int(group.committed), group.name, group.filter
        )
        self.note(queue_facts.GROUP_SAVED, body)

    # ---------------------------------------------------------------- groups

    def get_group(self, name: str, filter: bytes) -> Group:
        """The group of that name and filter, made now if it is new: it starts at the oldest record."""
        title = f"{name}@{filter.decode()}" if filter else name
        group = self.groups.get(title)
        if group is None:
            group = Group(self, self._next_group, name, filter, self.low_mark())
            self._next_group += 1
            self.groups[title] = group
            self.fill_specials(group)
            self.save_group(group)
        return group

    def put_back_group(self, group: Group) -> None:
        self.groups[group.title()] = group
        if group.number >= self._next_group:
            self._next_group = group.number + 1
        self.fill_specials(group)

    def remove_group(self, group: Group) -> None:
        """The queue still begins where its last group stood: nothing unsettled goes with it."""
        low: i64 = self.low_mark()
        if self.groups.pop(group.title(), None) is None:
            return
        if not self.groups and not self.is_stream and low > self.first:
            self.first = low
            self.note(queue_facts.QUEUE_TRIMMED, queue_facts.encode_pair(int(self.number), int(low)))
        body = queue_facts.encode_pair(int(self.number), int(group.number))
        self.note(queue_facts.GROUP_REMOVED, body)

    def low_mark(self) -> i64:
        """The oldest offset somebody may still need."""
        if self.is_stream or not self.groups:
            return self.first
        low: i64 = self.next
        for group in self.groups.values():
            if group.committed < low:
                low = group.committed
        return low if low > self.first else self.first

    def depth(self) -> i64:
        """Records that are kept: of a work queue those the slowest group has not settled."""
        if self.is_stream or not self.groups:
            return self.next - self.first
        most: i64 = 0
        for group in self.groups.values():
            lag = group.lag()
            if lag > most:
                most = lag
        return most

    def let_go(self) -> None:
        """What nobody needs any more no longer counts, and need not be remembered."""
        low = self.low_mark()
        self.footprint.let_go(self.tail, low)
        if self.specials:
            for offset in [offset for offset in self.specials if offset < low]:
                del self.specials[offset]

    def forget_folded(self, sequence: i64) -> None:
        if self.is_durable:
            self.footprint.on_folded(self.tail, sequence)

    def sealed(self) -> i64:
        """One past the last offset that is in segments; of a stream exactly."""
        return self.tail.sealed if self.tail.sealed > self.first else self.first

    def come_back(self) -> None:
        """There is more to hand out, but others have their turn first."""
        self.agenda.wake(self)

    # --------------------------------------------------------------- records

    def find_record(self, offset: i64) -> bytes:
        """One record, read if need be; empty: it is not there (any more)."""
        if offset >= self.tail.first:
            return self.tail.get(offset) if offset < self.tail.end else b""
        found = self.source.read(self.number, offset, offset + 1, 1)
        return found[0] if found else b""

    def make_pending(self, group: Group, offset: i64, body: bytes) -> Pending:
        message = decode_record_message(body, -self.clock.wall_offset_ns)
        return Pending(group, offset, message, record_time(body), len(body))

    def routing_key(self, topic: bytes) -> bytes:
        """What filters inside the queue look at: the part behind the queue's name, or the whole topic."""
        place = split_queue_topic(topic)
        return topic if place is None or place[0] != self.name else place[1]

    def delivery_topic(self, topic: bytes) -> bytes:
        place = split_queue_topic(topic)
        return self._prefix + topic if place is None or place[0] != self.name else topic

    # ------------------------------------------------------------ ways to end

    def is_expired(self, pending: Pending) -> bool:
        if pending.message.is_expired(self.clock.now_ns):
            return True
        ttl_ms: i64 = self.definition.message_ttl_ms
        return ttl_ms != 0 and pending.time_wall_ns + ttl_ms * MILLISECONDS <= self.clock.wall_ns()

    def expire(self, group: Group, pending: Pending) -> None:
        """Too old: to the dead letters if this queue names some, else gone by policy."""
        self.counters.expired += 1
        if self.definition.dead_letter not in ("", "off") and not self.is_stream:
            self.bury(group, pending, "expired")
        else:
            group.finish(pending.offset, pending.offset)

    def bury(self, group: Group, pending: Pending, reason: str) -> None:
        """The dead letter is in the log before the settlement of its source: in one batch or an earlier one."""
        if not self.is_stream:
            if self.catalog.bury(self, group.title(), pending, reason):
                self.counters.dead_lettered += 1
            else:
                self.counters.dropped += 1
        group.bury_done(pending)

    def drop_head(self) -> bool:
        """Make room by policy: the oldest record that no consumer has goes; False when there is none."""
        offset: i64 = self.low_mark()
        while not self.is_stream and offset < self.next and self._is_taken(offset):
            offset += 1
        if offset >= self.next:
            return False
        if self.definition.overflow == "dead_letter" and self._bury_alone(offset, "overflow"):
            self.counters.dead_lettered += 1
        else:
            self.counters.dropped += 1
        if not self.groups or self.is_stream:
            self.trim(offset + 1)
            return True
        for group in self.groups.values():
            if not group.is_settled(offset):
                group.finish(offset, offset)
        self.let_go()
        return True

    def _bury_alone(self, offset: i64, reason: str) -> bool:
        """A record that no group has taken."""
        body = self.find_record(offset)
        if not body or self.is_stream:
            return False
        pending = self.make_pending(Group(self, 0, "", b"", 0), offset, body)
        return self.catalog.bury(self, "", pending, reason)

    def expire_head(self) -> None:
        """Without a group nobody comes by the records that are too old."""
        seen: i64 = 0
        while not self.groups and self.has_expiry and self.first < self.next and seen < SLICE:
            seen += 1
            body = self.find_record(self.first)
            if body and not self.is_expired(self.make_pending(Group(self, 0, "", b"", 0), self.first, body)):
                return
            if body:
                self.counters.expired += 1
                if self.definition.dead_letter not in ("", "off"):
                    self._bury_alone(self.first, "expired")
            self.trim(self.first + 1)

    def _is_taken(self, offset: i64) -> bool:
        """Handed out in some group, or settled in all."""
        is_needed = not self.groups
        for group in self.groups.values():
            if int(offset) in group.pending:
                return True
            if not group.is_settled(offset):
                is_needed = True
        return not is_needed

    def trim(self, first: i64) -> None:
        """Everything below goes, for every group."""
        if first <= self.first:
            return
        self.first = first
        self.note(queue_facts.QUEUE_TRIMMED, queue_facts.encode_pair(int(self.number), int(first)))
        for group in self.groups.values():
            for pending in [pending for pending in group.pending.values() if pending.offset < first]:
                group.forget(pending)
            group.move_up(first)
        self.let_go()

    def purge(self) -> i64:
        """Forget every record that no consumer has at this moment; how many."""
        count = self.depth()
        if self.is_stream or not self.groups:
            self.trim(self.next)
        else:
            for group in self.groups.values():
                group.purge()
            self.agenda.write_settled()
            self.let_go()
        return count - self.depth()

    def on_tick(self, now_ns: i64) -> None:
        for group in list(self.groups.values()):
            group.on_tick(now_ns)
