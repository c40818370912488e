"""Everything that receives is an Outlet: a live subscriber, an offline session, a peer, a bridge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

from mypy_extensions import i64, mypyc_attr

from millstream.model.errors import Reason
from millstream.model.holder import Holder
from millstream.model.message import Message
from millstream.model.message_batch import MessageBatch


@mypyc_attr(allow_interpreted_subclasses=True)
class Run(ABC):
    """Consecutive at-most-once publishes that go to the same targets, still in the form they came in.

    Outlets that speak the same protocol pass it on as one piece; the others ask for its messages.
    """

    def __init__(self, count: i64, size_bytes: i64) -> None:
        self.count: i64 = count
        self.size_bytes: i64 = size_bytes

    @abstractmethod
    def messages(self) -> list[Message]: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet(Holder):
    @abstractmethod
    def deliver(self, message: Message, target: Target) -> None: ...

    @abstractmethod
    def deliver_run(self, run: Run, target: Target) -> None: ...

    def deliver_batch(self, batch: MessageBatch) -> bool:
        """Take all of them as one, if it can; False: nothing has happened, and each is to be delivered by itself."""
        return False

    @abstractmethod
    def is_present(self) -> bool:
        """Whether it can take a message right now (a connected session with room)."""

    def is_connected(self) -> bool:
        """False: it cannot be present before it has arrived again, and whoever connects it says so (`Router.arrivals`)."""
        return True

    def is_gone(self) -> bool:
        """Whether it has ended, and what still leads to it is about to be removed."""
        return False

    @abstractmethod
    def may_receive(self, topic: bytes) -> bool:
        """Whether its owner is allowed to see this topic; asked once per route, not per message."""

    def is_storing(self) -> bool:
        """Whether it keeps messages for later: then it takes part in the confirm and may refuse."""
        return False

    def copies_payload(self) -> bool:
        """Whether it stores a copy of its own of every message; others share one."""
        return False

    def find_refusal(self, message: Message) -> Reason:
        """SUCCESS, or why it cannot take this message now. Asked of storing outlets before anybody gets it."""
        return Reason.SUCCESS


@final
class Target:
    """One receiver of a route, with the terms of all its matching subscriptions folded together."""

    def __init__(
        self,
        outlet: Outlet,
        guarantee: i64,
        retain_as_published: bool,
        identifiers: tuple[int, ...],
        share: bytes,
    ) -> None:
        self.outlet = outlet
        self.guarantee: i64 = guarantee
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers
        self.share = share
        # [MQTT-3.8.3-3]: a publisher's own messages go by the subscriptions without "no local"
        self.has_no_local = False
        self.for_own: Target | None = None
