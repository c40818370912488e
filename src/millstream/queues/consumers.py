"""The consumers of a group: the port to one of them, and the rotation in which those with credit get the next record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from millstream.queues.pending import Pending

AMQP_GROUP: Final = "amqp"  # the group all AMQP consumers of a work queue share, unless they ask for another


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(ABC):
    """`open` counts the deliveries it has not settled; the group keeps it. The rest stands when it joins."""

    def __init__(self, name: str, is_explicit: bool) -> None:
        self.name = name  # who may settle what it was handed
        self.is_explicit = is_explicit  # it settles in words; having received it is not enough
        self.accepts_at_once = False  # handed over is accepted: it never has anything open
        self.open: i64 = 0
        self.priority: i64 = 0  # of those with credit the highest is served first
        self.hold_ms: i64 = 0  # it may keep a delivery so long; 0: as the queue says, -1: for ever

    @abstractmethod
    def has_credit(self) -> bool:
        """Whether it can take one more delivery now."""

    @abstractmethod
    def is_present(self) -> bool:
        """Whether it can take deliveries at all, with or without credit now."""

    def could_take_more(self) -> bool:
        """Whether it would take more than it was given: nothing it has to answer keeps it from that."""
        return self.has_credit()

    def belongs_to(self, source: object) -> bool:
        """Whether its answers come over the connection, or for the session, that publishes."""
        return False

    @abstractmethod
    def deliver(self, pending: Pending) -> None: ...

    def on_empty(self) -> None:
        """It asked for one record, and there is none."""
        raise AssertionError("this consumer never asks for one record")

    @abstractmethod
    def on_removed(self) -> None:
        """The queue is gone."""


CROWD: Final = 1000  # consumers of a group


@final
class ConsumerRotation:
    """`consumers` stand in order of priority. Equal ones stand in the order of their turns: who joins comes last, which is
    before the one that is next. Where one gets everything nobody has a turn, so that this is the order of joining."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self._turn: i64 = 0
        self._has_priorities = False  # they differ
        self.tried: i64 = 0  # consumers without credit that the last `find` came by, where they were many
        self._active: Consumer | None = None  # the one that gets everything, where one does

    def join(self, consumer: Consumer) -> None:
        consumers = self.consumers
        at: i64 = len(consumers)
        while at > 0 and consumers[at - 1].priority < consumer.priority:
            at -= 1
        turn: i64 = self._turn
        if 0 < turn < at and consumers[turn - 1].priority == consumer.priority:
            at = turn
        consumers.insert(at, consumer)
        if at <= turn:
            self._turn = turn + 1  # the next one is the same as before
        self._has_priorities = consumers[0].priority != consumers[-1].priority

    def leave(self, consumer: Consumer) -> bool:
        if consumer is self._active:
            self._active = None
        consumers = self.consumers
        at: i64 = self._find_place(consumer)
        if at < 0:
            return False
        del consumers[at]
        if at < self._turn:
            self._turn -= 1
        self._has_priorities = len(consumers) > 0 and consumers[0].priority != consumers[-1].priority
        return True

    def _find_place(self, consumer: Consumer) -> i64:
        """-1 when it is not there. They may be very many: compared by identity, which costs next to nothing."""
        consumers = self.consumers
        at: i64 = 0
        count: i64 = len(consumers)
        while at < count:
            if consumers[at] is consumer:
                return at
            at += 1
        return -1

    def clear(self) -> None:
        self.consumers.clear()
        self._turn = 0
        self._active = None
        self._has_priorities = False

    def find(self, is_single: bool) -> Consumer | None:
        """Who gets the next record; `pass_on` when it got it. `is_single`: one of them gets everything."""
        self.tried = 0
        if is_single:
            self._turn = -1  # `pass_on` makes it the first
            active = self.find_active()
            return active if active is not None and active.has_credit() else None
        consumers = self.consumers
        count: i64 = len(consumers)
        if self._has_priorities:
            return self._find_by_priority(count)
        at: i64 = self._turn
        tried: i64 = 0
        while tried < count:
            if at >= count:
                at = 0
            consumer = consumers[at]
            if consumer.has_credit():
                self._turn = at
                self.tried = tried
                return consumer
            at += 1
            tried += 1
        self.tried = tried
        return None

    def is_crowded(self) -> bool:
        """Whether to find the next one is too much for each of many answers: it is done in the queue's turn, once for all."""
        return len(self.consumers) > CROWD

    def pass_on(self) -> None:
        self._turn += 1

    def _find_by_priority(self, count: i64) -> Consumer | None:
        consumers = self.consumers
        first: i64 = 0
        while first < count:
            end: i64 = first + 1
            while end < count and consumers[end].priority == consumers[first].priority:
                end += 1
            at: i64 = self._turn if first <= self._turn < end else first
            for _ in range(end - first):
                if consumers[at].has_credit():
                    self._turn = at
                    return consumers[at]
                at = at + 1 if at + 1 < end else first
            first = end
        return None

    def find_active(self) -> Consumer | None:
        """The one that gets everything: it stays while it is there, then the first in order takes over."""
        active = self._active
        if active is None or not active.is_present():
            active = None
            for consumer in self.consumers:
                if consumer.is_present():
                    active = consumer
                    break
            self._active = active
        return active
