"""A group: consumers that share the records of a queue, each record settled by one of them.

Invariants
- A record is handed out only when nothing can make the broker forget it, and to one consumer at a time.
- What is settled is never handed out again; what is not always is, until it becomes a dead letter.
- A consumer never has more deliveries open than its credit allows.
- `committed` never goes back, but by a seek: everything below it is settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.model.outcome import Outcome
from millstream.model.topic import matches
from millstream.queues.consumers import Consumer, ConsumerRotation
from millstream.queues.dead_letter import dead_letter
from millstream.queues.delayed import DelayedMessages
from millstream.queues.expiry import expire, is_expired
from millstream.queues.limits import bound_again, empty_settled
from millstream.queues.pending import MILLISECONDS, Pending, PendingDeliveries
from millstream.queues.read_ahead import ReadAhead
from millstream.queues.redelivery import RedeliveryQueue, find_delay_ms
from millstream.queues.settled_bytes import SettledBytes
from millstream.queues.waiting_gets import WaitingGets
from millstream.storage.intervals import Intervals
from millstream.storage.records.queue_records import record_offset

if TYPE_CHECKING:
    from millstream.queues.queue import Queue

ACCEPTED: Final = Outcome.ACCEPTED
REJECTED: Final = Outcome.REJECTED
RELEASED: Final = Outcome.RELEASED
SLICE: Final[i64] = 256  # deliveries, before other queues get their turn
PASSED_MAX: Final[i64] = 1024  # records passed over in one go before others get their turn
PASSED_MIN: Final[i64] = 32  # the same when the turn is over
TRIED_SHIFT: Final[i64] = 6  # consumers without credit seen in the time of a delivery, as a power of two


@final
class Group:
    def __init__(self, queue: Queue, number: i64, name: str, filter: bytes, committed: i64) -> None:
        committed = queue.gaps.go_on(committed, 0)
        self.queue = queue
        self.number: i64 = number
        self.name = name
        self.filter = filter  # over routing keys; empty: all of them
        self.committed: i64 = committed
        self.written: i64 = committed  # what the log knows of `committed`
        self.cursor: i64 = committed  # next offset to look at
        self.maybe_delivered_below: i64 = queue.maybe_delivered_below  # before a crash
        self.settled = queue.gaps.settled_from(committed)  # out of order, above `committed`
        self.attempts: dict[int, int] = {}  # by offset, of those that came back
        self.settled_bytes = SettledBytes(queue)
        self.pending_deliveries = PendingDeliveries()
        self.pending = self.pending_deliveries.pending
        self.rotation = ConsumerRotation()
        self.consumers = self.rotation.consumers
        self.is_kept = True  # it is a fact of the log; else nobody misses it after a restart
        self.is_exclusive = False  # its only consumer wants no other beside it
        self.delayed = DelayedMessages()
        self.redeliveries = RedeliveryQueue()
        self._not_before: dict[int, int] = {}  # due times of attempts that a restart interrupted
        self._getters = WaitingGets()
        self._read_ahead = ReadAhead()
        self._is_dispatching = False
        self._is_offering = False  # to members: they have been waiting for it
        self._is_cut = False  # the last look for a record ended before its end: there may be one
        queue.waits_from = 0

    def title(self) -> str:
        """The name under which it is known: the same name with another filter is another group."""
        return f"{self.name}@{self.filter.decode()}" if self.filter else self.name

    # ------------------------------------------------------------- consumers

    def join(self, consumer: Consumer) -> None:
        self.rotation.join(consumer)
        self.queue.touch()
        self.queue.reschedule()  # after what it is told first: that it has joined

    def leave(self, consumer: Consumer) -> None:
        """It is gone; also one that never joined, and only got single records."""
        self._part(consumer)
        self.take_back(consumer)
        self.dispatch()

    def withdraw(self, consumer: Consumer) -> None:
        """It gets nothing any more, and may still settle what it has. Many may go at once: others get theirs later."""
        self._part(consumer)
        self.queue.reschedule()

    def _part(self, consumer: Consumer) -> None:
        self.queue.touch()
        if self.rotation.leave(consumer) and not self.consumers:
            self.is_exclusive = False
        self._getters.drop(consumer)

    def take_back(self, consumer: Consumer | None) -> None:
        """Everything it had open goes to the others; None: everything that is open."""
        taken = list(self.pending.values()) if consumer is None else self.pending_deliveries.find_of(consumer)
        for pending in taken:
            self._give_back(pending, 0)
        if taken:
            self.dispatch()

    def is_active(self, consumer: Consumer) -> bool:
        """Whether it is one that gets records at this moment, credit apart."""
        if self.queue.definition.single_active:
            return self.rotation.find_active() is consumer
        return consumer in self.consumers

    def close(self) -> None:
        """The queue is gone: nothing comes any more, and nothing is open."""
        self.pending_deliveries.clear()
        self.redeliveries.clear()
        self.queue.waits_from = 0  # what it had may wait for others
        self._getters.close()
        consumers = list(self.consumers)
        self.rotation.clear()
        for consumer in consumers:
            consumer.on_removed()

    def restore(self, settled: Intervals, returned: dict[int, tuple[int, int]], wall_offset_ns: int) -> None:
        self.settled = settled
        for offset, (attempts, wall_ns) in returned.items():
            self.attempts[offset] = attempts
            if wall_ns:
                self._not_before[offset] = wall_ns - wall_offset_ns

    def halt(self) -> None:
        """The broker stops: nothing is handed out any more."""
        self._is_dispatching = True

    def lag(self) -> i64:
        """Records not settled yet."""
        return self.queue.next - self.committed - self.settled.count

    def ready(self) -> i64:
        """Records that wait: neither settled nor with a consumer."""
        return self.lag() - len(self.pending)

    # --------------------------------------------------------------- settling

    def find_pending(self, offset: i64) -> Pending | None:
        return self.pending.get(int(offset))

    def settle(self, pending: Pending, outcome: Outcome, reason: str) -> None:
        self.settle_one(pending, outcome, reason)
        self.queue.reschedule() if self.rotation.is_crowded() else self.dispatch()

    def settle_many(self, answered: list[Pending], outcome: Outcome, reason: str) -> None:
        """All of them before anything is handed out again."""
        for pending in answered:
            self.settle_one(pending, outcome, reason)
        self.queue.reschedule() if self.rotation.is_crowded() else self.dispatch()

    def settle_one(self, pending: Pending, outcome: Outcome, reason: str) -> None:
        """The caller lets the group hand out afterwards."""
        if self.pending.get(int(pending.offset)) is not pending:
            return  # too late: it was handed to somebody else, or is done
        if outcome is ACCEPTED:
            self.pending_deliveries.remove(pending)
            self.finish(pending.offset, pending.offset)
        elif outcome is REJECTED:
            dead_letter(self.queue, self, pending, reason or "rejected")
        elif outcome is RELEASED:
            pending.attempts -= 1
            self._give_back(pending, 0)
        else:
            self._fail(pending)

    def settle_dead_lettered(self, pending: Pending) -> None:
        """Its dead letter is in the log, before this: now it can go."""
        self.pending_deliveries.remove(pending)
        self.finish(pending.offset, pending.offset)

    def finish(self, first: i64, last: i64) -> None:
        """Settled for good. In order it is written once per loop iteration, out of order at once."""
        queue = self.queue
        if self.attempts:
            if last - first < len(self.attempts):
                for place in range(first, last + 1):
                    self.attempts.pop(int(place), None)
            else:
                for offset in [offset for offset in self.attempts if first <= offset <= last]:
                    del self.attempts[offset]
        if first < queue.waits_from and len(queue.groups) > 1:
            queue.waits_from = first  # it may wait for others
        if first > self.committed:
            self.settled.add(first, last)
            queue.note_settled(self, first, last)
            if not queue.is_durable:
                empty_settled(queue, first, last)
            if queue.bounds_bytes:
                self.settled_bytes.add(first, last)
        else:
            self._advance(last + 1)
        queue.note_committed(self)

    def _advance(self, committed: i64) -> None:
        if committed > self.committed:
            self.committed = committed
        if self.settled.count:
            self.committed = self.settled.next_missing(self.committed)
            self.settled.remove_below(self.committed)
        if self.settled_bytes.bytes:
            self.settled_bytes.remove_below(self.committed)
        if self.cursor < self.committed:
            self.cursor = self.committed

    def _pass(self, first: i64, last: i64) -> None:
        """This group has no use for them. Not written: after a restart it will find that out again."""
        if first > self.committed:
            self.settled.add(first, last)
        else:
            self._advance(last + 1)

    def commit(self, offset: i64) -> None:
        """A reader of a stream is done with everything up to `offset`."""
        if offset >= self.queue.next:
            raise Refused(Reason.TOPIC_INVALID, f"the queue ends at offset {self.queue.next - 1}")
        if offset < self.committed:
            return
        for pending in self.pending_deliveries.find_below(offset + 1):
            self.pending_deliveries.remove(pending)
        self.finish(self.committed, offset)
        self.dispatch()

    def seek(self, offset: i64) -> None:
        """Stand at an offset: what is above is handed out (again), what is below is not."""
        offset = self.queue.gaps.go_on(offset, 0)
        self.pending_deliveries.clear()
        self.redeliveries.clear()
        self._not_before.clear()
        self.attempts.clear()
        self.settled = self.queue.gaps.settled_from(offset)
        self.settled_bytes.recount(self.settled)
        self.committed = offset
        self.written = offset
        self.cursor = offset
        self.queue.on_moved_back()
        self._read_ahead.forget()
        self.delayed.fill(self.queue.delayed)
        self.queue.save_group(self)
        self.dispatch()

    def move_up(self, first: i64) -> None:
        """The queue begins at `first` now: an answer to what was below means nothing any more."""
        for pending in self.pending_deliveries.find_below(first):
            self.pending_deliveries.remove(pending)
        if self.committed < first:
            self._advance(first)
        if self.written < first:
            self.written = first

    def _fail(self, pending: Pending) -> None:
        """Tried and failed: again after a while, or never."""
        if self._is_worn_out(pending):
            dead_letter(self.queue, self, pending, "max_deliveries")
            return
        self._give_back(pending, find_delay_ms(self.queue.definition, pending.attempts))

    def _is_worn_out(self, pending: Pending) -> bool:
        limit = self.queue.definition.max_deliveries
        return limit != 0 and pending.attempts >= limit and not self.queue.is_stream

    def _give_back(self, pending: Pending, delay_ms: i64) -> None:
        self.pending_deliveries.remove(pending)
        queue = self.queue
        if pending.offset < queue.waits_from:
            queue.waits_from = pending.offset
        due_ns: i64 = queue.clock.now_ns + delay_ms * MILLISECONDS if delay_ms else 0
        if pending.attempts > 0:
            self.attempts[int(pending.offset)] = int(pending.attempts)
            queue.note_returned(self, pending.offset, pending.attempts, due_ns)
        self.redeliveries.add(pending.renew(), queue.priority_of(pending.offset), due_ns)
        if queue.is_bounded:
            bound_again(queue)

    # --------------------------------------------------------------- dispatch

    def get(self, consumer: Consumer) -> None:
        """One record to a consumer that has not joined, as soon as it is read; or `on_empty`. What was appended before
        counts, safe or not yet."""
        self.queue.touch()
        self._getters.add(consumer, self.queue.next)
        self.dispatch()

    def dispatch(self) -> None:
        """Hand out as long as there is a record, a consumer and credit."""
        if self._is_dispatching:
            return
        self._is_dispatching = True
        try:
            if self.consumers:
                self._is_offering = True
                self._hand_out_all()
            self._is_offering = False
            self._getters.serve(self)
        finally:
            self._is_dispatching = False
            self._is_offering = False

    def may_have_more(self) -> bool:
        """Whether there may be a record, though none was found just now: it is being read, or the look was cut short."""
        return self._is_cut or self.cursor < self.queue.visible

    def _hand_out_all(self) -> None:
        rotation = self.rotation
        scheduler = self.queue.scheduler
        is_single = self.queue.definition.single_active
        share: i64 = scheduler.left if scheduler.left < SLICE else SLICE
        handed_out: i64 = 0
        while True:
            consumer = rotation.find(is_single)
            if rotation.tried:
                scheduler.left -= rotation.tried >> TRIED_SHIFT
            if consumer is None:
                break
            if handed_out >= share:
                self.queue.reschedule()
                break
            pending = self.take_next()
            if pending is None:
                break
            handed_out += 1
            rotation.pass_on()
            self.hand_out(pending, consumer)
        scheduler.left -= handed_out

    def hand_out(self, pending: Pending, consumer: Consumer) -> None:
        pending.attempts += 1
        if consumer.accepts_at_once:
            consumer.deliver(pending)
            self.finish(pending.offset, pending.offset)
            return
        self.pending_deliveries.add(pending, consumer, self.queue.clock.now_ns, self.queue.hold_ns)
        consumer.deliver(pending)

    def take_next(self) -> Pending | None:
        """The record to hand out now: one that came back, one out of turn, or the next in order."""
        now_ns = self.queue.clock.now_ns
        self._is_cut = False
        if self.delayed.is_filling() and not self.delayed.fill_some(self.queue.scheduler):
            self._is_cut = True
            self.queue.reschedule()
            return None
        looked: i64 = 0
        letters: i64 = self.queue.scheduler.letter_mark()
        while True:
            if looked >= PASSED_MAX or self.queue.scheduler.is_costly(letters):
                self.queue.scheduler.left -= looked
                self._is_cut = True
                self.queue.reschedule()
                return None
            looked += 1
            priority = self.redeliveries.best_priority(now_ns)
            if self.delayed.count() != 0 and self.delayed.best_priority(now_ns) > priority:
                if not self.delayed.is_next_below(self.queue.visible):
                    if priority < 0:
                        break
                else:
                    pending_special = self._open(self.delayed.take())
                    if pending_special is not None:
                        return pending_special
                    continue
            if priority < 0:
                break
            pending = self.redeliveries.take()
            if not self.is_settled(pending.offset) and not self._is_spent(pending):
                return pending
        return self._take_in_order()

    def _take_in_order(self) -> Pending | None:
        queue = self.queue
        scheduler = queue.scheduler
        passed: i64 = 0
        letters: i64 = scheduler.letter_mark()
        while self.cursor < queue.visible:
            if self.settled.count:
                self.cursor = self.settled.next_missing(self.cursor)
                if self.cursor >= queue.visible:
                    break
            body = b""
            if queue.is_durable:
                found = self._next_body()
                if found is None:
                    break
                body = found
            offset: i64 = self.cursor
            self.cursor += 1
            if not body and (
                queue.is_durable or (queue.memtable.is_holed and queue.memtable.is_emptied(offset))
            ):
                self._pass(offset, offset)
            elif not self.is_settled(offset) and not queue.has_priority_or_delay(offset):
                pending = self._admit(queue.make_pending(self, offset, body))
                if pending is not None:
                    scheduler.left -= passed
                    return pending
            passed += 1
            is_late = scheduler.left <= 0 and passed >= PASSED_MIN
            if is_late or passed >= PASSED_MAX or scheduler.is_costly(letters):
                queue.reschedule()
                break
        scheduler.left -= passed
        return None

    def _next_body(self) -> bytes | None:
        """The record at the cursor, which moves to the next one that exists; None: it has to be read first."""
        memtable = self.queue.memtable
        span = self._read_ahead
        if self.cursor >= memtable.first:
            span.clear()
            return memtable.get(self.cursor)
        body = span.find(self.cursor)
        if body:
            self._pass_over(record_offset(body))
            return body
        if self.cursor < span.end:
            self._pass_over(span.end)
            return self._next_body()
        span.request(self, self.cursor, memtable.first)
        return None

    def _pass_over(self, offset: i64) -> None:
        """What lies between is in no segment: it was settled before it got there."""
        if offset > self.cursor:
            first: i64 = self.cursor
            self.cursor = offset
            self._pass(first, offset - 1)

    def _open(self, offset: i64) -> Pending | None:
        """A record out of turn; None when this group has no use for it."""
        if self.is_settled(offset):
            return None
        pending = self.queue.find_pending(self, offset)
        if pending is None:
            self._pass(offset, offset)
            return None
        return self._admit(pending)

    def _admit(self, pending: Pending) -> Pending | None:
        """The same, or None when it is not for this group, or not now."""
        if self.filter and not matches(self.filter, self.queue.routing_key(pending.message.topic)):
            self._pass(pending.offset, pending.offset)
            return None
        if self.attempts:
            pending.attempts = self.attempts.get(int(pending.offset), 0)
        if self._is_spent(pending):
            return None
        if self._not_before:
            due_ns = self._not_before.pop(int(pending.offset), 0)
            if due_ns > self.queue.clock.now_ns:
                self.redeliveries.add(pending, self.queue.priority_of(pending.offset), due_ns)
                return None
        return pending

    def _is_spent(self, pending: Pending) -> bool:
        """Too old, or tried too often: it goes another way than to a consumer."""
        queue = self.queue
        if queue.has_expiry and is_expired(
            queue, pending, self._is_offering and pending.offset >= queue.offered
        ):
            expire(queue, self, pending)
            return True
        if pending.attempts and self._is_worn_out(pending):
            dead_letter(queue, self, pending, "max_deliveries")
            return True
        return False

    def is_settled(self, offset: i64) -> bool:
        return offset < self.committed or (self.settled.count != 0 and self.settled.contains(offset))

    # ------------------------------------------------------------------- time

    def on_tick(self, now_ns: i64) -> None:
        """Take back what nobody settled in time, then hand out what is due."""
        late = self.pending_deliveries.find_late(now_ns, PASSED_MAX)  # the others at the next tick
        for pending in late:
            self.queue.counters.timed_out += 1
            self._give_back(pending, 0)
        self.queue.scheduler.left -= len(late)
        if self.committed > self.written + PASSED_MAX:
            self.queue.note_committed(self)
        self.dispatch()
        if self.queue.has_expiry:
            self.expire_in_order()

    def expire_in_order(self) -> None:
        """Nobody has room for them, but they grow old all the same."""
        pending = self.take_next()  # what is too old goes its way on the way to the next
        if pending is not None:
            self.redeliveries.add(pending, self.queue.priority_of(pending.offset), 0)
