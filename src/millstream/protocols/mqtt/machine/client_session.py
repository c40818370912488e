"""What a client must remember between two connections of one session.

Invariants
- A packet id stands for at most one publish that is not settled.
- Publishes are kept in the order they were handed over, and sent again in that order [MQTT-4.6.0-1].
- A QoS 2 id received stays until its PUBREL, so that the message is handed on once [MQTT-4.3.3-10].
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from millstream.model.errors import Reason, Refused
from millstream.protocols.mqtt.wire.packets import Publish

PACKET_ID_MAX: Final = 65_535


class Phase(IntEnum):
    """How far a QoS 1 or 2 publish has come."""

    QUEUED = 0  # not yet sent in this connection
    SENT = 1
    RELEASED = 2  # PUBREC is here, PUBREL is sent


QUEUED: Final = Phase.QUEUED
SENT: Final = Phase.SENT
RELEASED: Final = Phase.RELEASED


class Outgoing:
    """A publish that is not settled. `was_sent` tells whether the next attempt is a duplicate."""

    __slots__ = ("packet", "phase", "was_sent")

    def __init__(self, packet: Publish) -> None:
        self.packet = packet
        self.phase = QUEUED
        self.was_sent = False


class ClientSession:
    """Handed to every machine that continues the session."""

    def __init__(self) -> None:
        self.outgoing: dict[int, Outgoing] = {}
        self.received: dict[int, bool] = {}
        self.requests: dict[int, int] = {}  # SUBSCRIBE and UNSUBSCRIBE under way: number of filters
        self._last_id = 0

    def take_packet_id(self) -> int:
        """A packet id that is not in use [MQTT-2.2.1-3]."""
        if len(self.outgoing) + len(self.requests) >= PACKET_ID_MAX:
            raise Refused(Reason.QUOTA_EXCEEDED, "all packet ids are in use")
        while True:
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if self._last_id not in self.outgoing and self._last_id not in self.requests:
                return self._last_id

    def start_connection(self) -> None:
        """Requests do not outlive a connection; what was sent and not released is to be sent again."""
        self.requests = {}
        for outgoing in self.outgoing.values():
            if outgoing.phase is SENT:
                outgoing.phase = QUEUED

    def clear(self) -> list[Outgoing]:
        """Forget all, as the server did [MQTT-3.2.2-5]; gives what was not settled."""
        lost = list(self.outgoing.values())
        self.outgoing = {}
        self.received = {}
        return lost
