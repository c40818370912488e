"""A delivery that is pending: with a consumer and not settled, or waiting for the next attempt.

`PendingDeliveries` are those of a group that its consumers have, with the deadlines by which they are delivered to others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.delivery import Receipt
from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.queues.consumers import Consumer

if TYPE_CHECKING:
    from millstream.queues.group import Group


@final
class Pending(Receipt):
    def __init__(self, group: Group, offset: i64, message: Message, time_wall_ns: i64, size: i64) -> None:
        self.group = group
        self.offset: i64 = offset
        self.message = message
        self.time_wall_ns: i64 = time_wall_ns  # when the queue took it
        self.size: i64 = size
        self.attempts: i64 = 0  # how often it was handed out, this time included
        self.consumer: Consumer | None = None
        self.deadline_ns: i64 = 0  # then it is handed to somebody else

    def renew(self) -> Pending:
        """For the next attempt: an answer to the delivery that is taken back must not count for it."""
        again = Pending(self.group, self.offset, self.message, self.time_wall_ns, self.size)
        again.attempts = self.attempts
        return again

    def is_repeated(self) -> bool:
        """Whether it may have been with a consumer before this attempt. No is a promise, yes is not."""
        return self.attempts > 1 or self.offset < self.group.maybe_delivered_below

    def on_taken(self) -> None:
        consumer = self.consumer
        if consumer is not None and not consumer.is_explicit:
            self.group.settle(self, Outcome.ACCEPTED, "")

    def on_refused(self) -> None:
        if self.consumer is not None:
            self.group.settle(self, Outcome.REJECTED, "too_large")


MILLISECONDS: Final[i64] = 1_000_000


@final
class PendingDeliveries:
    """Those with a deadline stand by how long they may be held, then in the order they were handed out: that is the
    order of their deadlines."""

    def __init__(self) -> None:
        self.pending: dict[int, Pending] = {}  # all, by offset
        self.bytes: i64 = 0
        self._usual: dict[int, Pending] = {}  # held as long as the queue says
        self._others: dict[int, dict[int, Pending]] = {}  # as long as their consumers said

    def add(self, pending: Pending, consumer: Consumer, now_ns: i64, usual_ns: i64) -> None:
        offset = int(pending.offset)
        pending.consumer = consumer
        consumer.open += 1
        self.bytes += pending.size
        self.pending[offset] = pending
        hold_ms: i64 = consumer.hold_ms
        if hold_ms == 0:
            pending.deadline_ns = now_ns + usual_ns
            self._usual[offset] = pending
        elif hold_ms > 0:
            pending.deadline_ns = now_ns + hold_ms * MILLISECONDS
            same = self._others.get(int(hold_ms))
            if same is None:
                same = self._others[int(hold_ms)] = {}
            same[offset] = pending

    def remove(self, pending: Pending) -> None:
        offset = int(pending.offset)
        if self.pending.pop(offset, None) is None:
            return
        self.bytes -= pending.size
        consumer = pending.consumer
        if consumer is None:
            return
        pending.consumer = None
        consumer.open -= 1
        hold_ms: i64 = consumer.hold_ms
        if hold_ms == 0:
            self._usual.pop(offset, None)
        elif hold_ms > 0:
            same = self._others[int(hold_ms)]
            same.pop(offset, None)
            if not same:
                del self._others[int(hold_ms)]

    def clear(self) -> None:
        """Nobody has anything any more."""
        for pending in list(self.pending.values()):
            self.remove(pending)

    def find_of(self, consumer: Consumer) -> list[Pending]:
        """In the order it got them."""
        return [pending for pending in self.pending.values() if pending.consumer is consumer]

    def find_below(self, offset: i64) -> list[Pending]:
        return [pending for pending in self.pending.values() if pending.offset < offset]

    def find_late(self, now_ns: i64, count_max: i64) -> list[Pending]:
        """Those whose time is over; so many at most, found in one go: a look from the start passes all that have gone."""
        late: list[Pending] = []
        for pending in self._usual.values():
            if pending.deadline_ns > now_ns or len(late) >= count_max:
                break
            late.append(pending)
        for same in self._others.values():
            for pending in same.values():
                if pending.deadline_ns > now_ns or len(late) >= count_max:
                    break
                late.append(pending)
        return late

    def shorten(self, deadline_ns: i64) -> None:
        """What the queue says has changed: nobody waits longer than it says now."""
        for pending in self._usual.values():
            if pending.deadline_ns > deadline_ns:
                pending.deadline_ns = deadline_ns
