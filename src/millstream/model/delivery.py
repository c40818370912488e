"""One attempt to hand a message to one session, from queue to settlement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.message import Message

QUEUED: Final[i64] = 0  # not handed out yet
SENT: Final[i64] = 1  # handed out, not settled
RECEIVED: Final[i64] = 2  # exactly once: the receiver has it, the release is still to be confirmed


@mypyc_attr(allow_interpreted_subclasses=True)
class Receipt(ABC):
    """Who keeps a message that was handed to a session, and is told how that ended."""

    @abstractmethod
    def on_taken(self) -> None:
        """The receiver has answered the hand-over."""

    @abstractmethod
    def on_refused(self) -> None:
        """This receiver can never take it."""


@final
@mypyc_attr(acyclic=True)  # sessions let go of their deliveries themselves
class Delivery:
    """`share` names the shared subscription it came through, so that another member can take it over.

    With a `receipt` the message is kept elsewhere: the session does not store it, and lets go of it when its
    connection ends.
    """

    def __init__(
        self, message: Message, guarantee: i64, retain: bool, identifiers: tuple[int, ...], share: bytes
    ) -> None:
        self.message = message
        self.guarantee: i64 = guarantee
        self.retain = retain
        self.identifiers = identifiers
        self.share = share
        self.receipt: Receipt | None = None
        self.phase: i64 = QUEUED
        self.packet_id: i64 = 0
        self.sequence: i64 = 0  # place in the session, the key under which it is stored
