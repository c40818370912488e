"""The port from a group to one of its members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

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
