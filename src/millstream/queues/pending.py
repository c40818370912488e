"""A record that was handed to a consumer and is not settled yet, or waits to be handed out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.model.delivery import Receipt
from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.queues.consumer import Consumer

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
        return self.attempts > 1 or self.offset < self.group.unsure

    def on_taken(self) -> None:
        consumer = self.consumer
        if consumer is not None and not consumer.is_explicit:
            self.group.settle(self, Outcome.ACCEPTED, "")

    def on_refused(self) -> None:
        if self.consumer is not None:
            self.group.settle(self, Outcome.REJECTED, "too_large")
