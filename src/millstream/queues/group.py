"""A group: consumers that share the records of a queue, each record settled by one of them.

Invariants
- A record is handed out only when nothing can make the broker forget it, and to one consumer at a time.
- What is settled is never handed out again; what is not always is, until it becomes a dead letter.
- A consumer never has more deliveries open than its credit allows.
- `committed` never goes back, but by a seek: everything below it is settled.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.model.outcome import Outcome
from millstream.model.topic import matches
from millstream.queues.consumer import Consumer
from millstream.queues.pending import Pending
from millstream.queues.specials import Specials
from millstream.storage.intervals import Intervals
from millstream.storage.queue_facts import record_offset
from millstream.storage.record_source import RecordWaiter

if TYPE_CHECKING:
    from millstream.queues.queue import Queue

MILLISECONDS: Final[i64] = 1_000_000
SLICE: Final[i64] = 1024  # records passed over in one go before others get their turn


@final
class Group(RecordWaiter):
    def __init__(self, queue: Queue, number: i64, name: str, filter: bytes, committed: i64) -> None:
        self.queue = queue
        self.number: i64 = number
        self.name = name
        self.filter = filter  # over routing keys; empty: all of them
        self.committed: i64 = committed
        self.written: i64 = committed  # what the log knows of `committed`
        self.cursor: i64 = committed  # next offset to look at
        self.settled = Intervals()  # out of order, above `committed`
        self.attempts: dict[int, int] = {}  # by offset, of those that came back
        self.pending: dict[int, Pending] = {}
        self.consumers: list[Consumer] = []
        self.specials = Specials()
        self._turn: i64 = 0
        self._returned: list[tuple[int, int, Pending]] = []  # heap by due time and offset
        self._not_before: dict[int, int] = {}  # due times of attempts that a restart interrupted
        self._span: list[bytes] = []  # records read from segments
        self._span_at: i64 = 0
        self._span_end: i64 = 0  # all below it that exist were in the span
        self._fetching: i64 = -1  # the offset a request is under way for
        self._is_dispatching = False

    def title(self) -> str:
        """The name under which it is known: the same name with another filter is another group."""
        return f"{self.name}@{self.filter.decode()}" if self.filter else self.name

    # ------------------------------------------------------------- consumers

    def join(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.queue.come_back()  # after what it is told first: that it has joined

    def leave(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self.take_back(consumer)
        self.dispatch()

    def take_back(self, consumer: Consumer) -> None:
        """Everything it had open goes to the others."""
        taken = [pending for pending in self.pending.values() if pending.consumer is consumer]
        for pending in taken:
            self._give_back(pending, 0)
        if taken:
            self.dispatch()

    def close(self) -> None:
        """The queue is gone: nothing comes any more, and nothing is open."""
        for pending in list(self.pending.values()):
            self._close(pending)
        self._returned.clear()
        for consumer in self.consumers:
            consumer.on_removed()
        self.consumers = []

    def restore(self, settled: Intervals, returned: dict[int, tuple[int, int]], wall_offset_ns: int) -> None:
        self.settled = settled
        for offset, (attempts, wall_ns) in returned.items():
            self.attempts[offset] = attempts
            if wall_ns:
                self._not_before[offset] = wall_ns - wall_offset_ns

    def shorten_deadlines(self, deadline_ns: i64) -> None:
        """The visibility time has changed: nobody waits longer than it says now."""
        for pending in self.pending.values():
            if pending.deadline_ns > deadline_ns:
                pending.deadline_ns = deadline_ns

    def purge(self) -> None:
        """Settle everything no consumer has at this moment."""
        position: i64 = self.committed
        for offset in sorted(self.pending):
            if offset > position:
                self.finish(position, offset - 1)
            position = offset + 1
        if self.queue.next > position:
            self.finish(position, self.queue.next - 1)
        self._returned.clear()

    def lag(self) -> i64:
        """Records not settled yet."""
        return self.queue.next - self.committed - self.settled.count

    # --------------------------------------------------------------- settling

    def find_pending(self, offset: i64) -> Pending | None:
        return self.pending.get(int(offset))

    def settle(self, pending: Pending, outcome: Outcome, reason: str) -> None:
        if self.pending.get(int(pending.offset)) is not pending:
            return  # too late: it was handed to somebody else, or is done
        if outcome is Outcome.ACCEPTED:
            self._close(pending)
            self.finish(pending.offset, pending.offset)
        elif outcome is Outcome.REJECTED:
            self.queue.bury(self, pending, reason or "rejected")
        elif outcome is Outcome.RELEASED:
            pending.attempts -= 1
            self._give_back(pending, 0)
        else:
            self._fail(pending)
        self.dispatch()

    def bury_done(self, pending: Pending) -> None:
        """Its dead letter is in the log, before this: now it can go."""
        self._close(pending)
        self.finish(pending.offset, pending.offset)

    def finish(self, first: i64, last: i64) -> None:
        """Settled for good. In order it is written once per loop iteration, out of order at once."""
        queue = self.queue
        if self.attempts:
            self._forget_attempts(first, last)
        if first > self.committed:
            self.settled.add(first, last)
            queue.note_settled(self, first, last)
            return
        self._advance(last + 1)
        queue.note_committed(self)

    def _forget_attempts(self, first: i64, last: i64) -> None:
        if first == last:
            self.attempts.pop(int(first), None)
            return
        for offset in [offset for offset in self.attempts if first <= offset <= last]:
            del self.attempts[offset]

    def _advance(self, committed: i64) -> None:
        if committed > self.committed:
            self.committed = committed
        if self.settled.count:
            self.committed = self.settled.next_missing(self.committed)
            self.settled.remove_below(self.committed)
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
        for pending in [pending for pending in self.pending.values() if pending.offset <= offset]:
            self._close(pending)
        self.finish(self.committed, offset)
        self.dispatch()

    def seek(self, offset: i64) -> None:
        """Stand at an offset: what is above is handed out (again), what is below is not."""
        for pending in list(self.pending.values()):
            self._close(pending)
        self._returned.clear()
        self._not_before.clear()
        self.attempts.clear()
        self.specials.clear()
        self.settled = Intervals()
        self.committed = offset
        self.written = offset
        self.cursor = offset
        self._span = []
        self._span_at = 0
        self._span_end = 0
        self.queue.fill_specials(self)
        self.queue.save_group(self)
        self.dispatch()

    def forget(self, pending: Pending) -> None:
        """Its record is gone from the queue: an answer to it means nothing any more."""
        self._close(pending)

    def move_up(self, first: i64) -> None:
        """The queue begins at `first` now."""
        if self.committed < first:
            self._advance(first)
        if self.written < first:
            self.written = first

    def _fail(self, pending: Pending) -> None:
        """Tried and failed: again after a while, or never."""
        definition = self.queue.definition
        if (
            definition.max_deliveries
            and not self.queue.is_stream
            and pending.attempts >= definition.max_deliveries
        ):
            self.queue.bury(self, pending, "max_deliveries")
            return
        delay_ms: i64 = definition.backoff_ms
        limit_ms: i64 = definition.backoff_max_ms
        times: i64 = 1
        while times < pending.attempts and delay_ms < limit_ms:
            delay_ms *= 2
            times += 1
        if delay_ms > limit_ms:
            delay_ms = limit_ms
        self._give_back(pending, delay_ms)

    def _close(self, pending: Pending) -> None:
        self.pending.pop(int(pending.offset), None)
        consumer = pending.consumer
        if consumer is not None:
            consumer.open -= 1
            pending.consumer = None

    def _give_back(self, pending: Pending, delay_ms: i64) -> None:
        self._close(pending)
        queue = self.queue
        due_ns: i64 = 0
        if delay_ms:
            due_ns = queue.clock.now_ns + delay_ms * MILLISECONDS
        if pending.attempts > 0:
            self.attempts[int(pending.offset)] = int(pending.attempts)
            queue.note_returned(self, pending.offset, pending.attempts, due_ns)
        # a new one: an answer to the delivery that is taken back must not count for the next
        again = Pending(self, pending.offset, pending.message, pending.time_wall_ns, pending.size)
        again.attempts = pending.attempts
        heapq.heappush(self._returned, (int(due_ns), int(pending.offset), again))

    # --------------------------------------------------------------- dispatch

    def dispatch(self) -> None:
        """Hand out as long as there is a record, a consumer and credit."""
        if self._is_dispatching or not self.consumers:
            return
        self._is_dispatching = True
        handed_out: i64 = 0
        try:
            while True:
                at = self._find_consumer()
                if at < 0:
                    break
                if handed_out >= SLICE:
                    self.queue.come_back()
                    break
                handed_out += 1
                pending = self._take_next()
                if pending is None:
                    break
                self._turn = at + 1
                self._hand_out(pending, self.consumers[at])
        finally:
            self._is_dispatching = False

    def _hand_out(self, pending: Pending, consumer: Consumer) -> None:
        pending.attempts += 1
        pending.consumer = consumer
        pending.deadline_ns = self.queue.clock.now_ns + self.queue.definition.visibility_ms * MILLISECONDS
        consumer.open += 1
        self.pending[int(pending.offset)] = pending
        consumer.deliver(pending)

    def _find_consumer(self) -> i64:
        count: i64 = len(self.consumers)
        tried: i64 = 0
        at: i64 = self._turn
        if self.queue.definition.single_active:
            for consumer in self.consumers:
                if consumer.is_present():
                    return tried if consumer.has_credit() else -1
                tried += 1
            return -1
        while tried < count:
            if at >= count:
                at = 0
            if self.consumers[at].has_credit():
                return at
            at += 1
            tried += 1
        return -1

    def _take_next(self) -> Pending | None:
        """The record to hand out now: one that came back, one out of turn, or the next in order."""
        now_ns = self.queue.clock.now_ns
        while self._returned and self._returned[0][0] <= now_ns:
            pending = heapq.heappop(self._returned)[2]
            if not self.is_settled(pending.offset) and not self._is_spent(pending):
                return pending
        while self.specials.count() != 0:
            offset = self.specials.take_due(now_ns)
            if offset < 0:
                break
            if offset >= self.queue.visible:
                self.specials.put_back(offset)
                break
            body = self.queue.find_record(offset)
            if not body and not self.is_settled(offset):
                self._pass(offset, offset)
            pending_special = self._open(offset, body)
            if pending_special is not None:
                return pending_special
        return self._take_in_order()

    def _take_in_order(self) -> Pending | None:
        queue = self.queue
        passed: i64 = 0
        while self.cursor < queue.visible:
            if self.settled.count:
                self.cursor = self.settled.next_missing(self.cursor)
                if self.cursor >= queue.visible:
                    return None
            body = self._next_body()
            if body is None:
                return None
            offset: i64 = self.cursor
            self.cursor += 1
            if not body or offset < self.committed or self.is_settled(offset):
                if not body:
                    self._pass(offset, offset)
            elif not queue.is_special(offset):
                pending = self._open(offset, body)
                if pending is not None:
                    return pending
            passed += 1
            if passed >= SLICE:
                queue.come_back()
                return None
        return None

    def _next_body(self) -> bytes | None:
        """The record at the cursor, which moves to the next one that exists; None: it has to be read first."""
        queue = self.queue
        tail = queue.tail
        if self.cursor >= tail.first:
            if self._span:
                self._span = []
            return tail.get(self.cursor)
        while self._span_at < len(self._span):
            body = self._span[self._span_at]
            offset: i64 = record_offset(body)
            if offset >= self.cursor:
                self._pass_over(offset)
                return body
            self._span_at += 1
        if self.cursor < self._span_end:
            self._pass_over(self._span_end)
            return self._next_body()
        if self._fetching < 0:
            self._fetching = self.cursor
            queue.source.request(queue.number, self.cursor, tail.first, self)
        return None

    def _pass_over(self, offset: i64) -> None:
        """What lies between is in no segment: it was settled before it got there."""
        if offset > self.cursor:
            first: i64 = self.cursor
            self.cursor = offset
            self._pass(first, offset - 1)

    def on_records(self, bodies: list[bytes], end: i64) -> None:
        asked = self._fetching
        self._fetching = -1
        if self.cursor < asked:  # it was moved back meanwhile: this is not what comes next
            self.dispatch()
            return
        self._span = bodies
        self._span_at = 0
        self._span_end = end
        self.dispatch()

    def _open(self, offset: i64, body: bytes) -> Pending | None:
        """A record as it is handed out; None when this group has no use for it."""
        if not body or self.is_settled(offset):
            return None
        pending = self.queue.make_pending(self, offset, body)
        if self.filter and not matches(self.filter, self.queue.routing_key(pending.message.topic)):
            self._pass(offset, offset)
            return None
        pending.attempts = self.attempts.get(int(offset), 0)
        if self._is_spent(pending):
            return None
        if self._not_before:
            due_ns = self._not_before.pop(int(offset), 0)
            if due_ns > self.queue.clock.now_ns:
                heapq.heappush(self._returned, (due_ns, int(offset), pending))
                return None
        return pending

    def _is_spent(self, pending: Pending) -> bool:
        """Too old, or tried too often: it goes another way than to a consumer."""
        queue = self.queue
        if queue.is_expired(pending):
            queue.expire(self, pending)
            return True
        limit = queue.definition.max_deliveries
        if limit and pending.attempts >= limit and not queue.is_stream:
            queue.bury(self, pending, "max_deliveries")
            return True
        return False

    def is_settled(self, offset: i64) -> bool:
        return offset < self.committed or (self.settled.count != 0 and self.settled.contains(offset))

    # ------------------------------------------------------------------- time

    def on_tick(self, now_ns: i64) -> None:
        """Take back what nobody settled in time, then hand out what is due."""
        while self.pending:  # in the order they were handed out, which is that of their deadlines
            pending = next(iter(self.pending.values()))
            if pending.deadline_ns > now_ns:
                break
            self.queue.counters.timed_out += 1
            self._give_back(pending, 0)
        if self.committed > self.written + SLICE:
            self.queue.note_committed(self)
        if self.consumers:
            self.dispatch()
        elif self.queue.has_expiry:
            self._expire_in_order()

    def _expire_in_order(self) -> None:
        """Nobody is there to hand records to, but they grow old all the same."""
        pending = self._take_next()  # what is too old goes its way on the way to the next
        if pending is not None:
            heapq.heappush(self._returned, (0, int(pending.offset), pending))
