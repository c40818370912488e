"""The port from a session to the connection that serves it now."""

from __future__ import annotations

from abc import abstractmethod
from enum import IntEnum

from mypy_extensions import i64, mypyc_attr

from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.model.outbox import Flushable
from millstream.model.outlet import Run, Target


class Ending(IntEnum):
    """Why the broker ends a connection."""

    TAKEN_OVER = 0
    NOT_AUTHORIZED = 1
    SHUTTING_DOWN = 2
    TOO_SLOW = 3
    ADMINISTRATIVE = 4
    UNAVAILABLE = 5
    OUT_OF_MEMORY = 6


@mypyc_attr(allow_interpreted_subclasses=True)
class Line(Flushable):
    """`is_lagging` is true while unsent bytes pile up, `is_blocked` once there are more than the high mark.

    Only a line that serves a session is asked to transmit; a protocol without sessions has its own way out.
    """

    def __init__(self) -> None:
        self.is_lagging = False
        self.is_blocked = False
        self.handed_bytes: i64 = 0  # given to the transport so far
        self.carries_properties = True  # False: this receiver's protocol has no place for them

    def transmit_run(self, run: Run, target: Target) -> None:
        raise AssertionError("this line serves no session")

    def transmit_plain(self, message: Message, retain: bool, identifiers: tuple[int, ...]) -> None:
        """Hand out at most once."""
        raise AssertionError("this line serves no session")

    def transmit(self, delivery: Delivery, is_repeat: bool) -> bool:
        """Hand out a numbered delivery; False when this receiver can never take it."""
        raise AssertionError("this line serves no session")

    def transmit_release(self, packet_id: i64) -> None:
        raise AssertionError("this line serves no session")

    def describe(self) -> str:
        """The client, as an operator knows it."""
        return ""

    def charge(self, spent_ns: i64) -> None:
        """So much time went into what its client has left behind."""

    @abstractmethod
    def unsent_bytes(self) -> i64: ...

    def held_bytes(self) -> i64:
        """Of what it has sent and what cannot be acted on yet: an unfinished packet, an open transaction."""
        return 0

    def owned_bytes(self) -> i64:
        """Of what goes with the connection, about: subscriptions that nobody keeps, exclusive queues."""
        return 0

    def left_bytes(self) -> i64:
        """What has left the transport so far: it stands still exactly when the peer does not read."""
        return self.handed_bytes - self.unsent_bytes()

    @abstractmethod
    def end(self, ending: Ending) -> None: ...

    @abstractmethod
    def resume(self) -> None:
        """The outlet it waited for has room again: go on reading."""

    @abstractmethod
    def on_durable(self) -> None:
        """The store caught up: give the confirms that waited for it."""
