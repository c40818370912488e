"""A message: topic, payload and properties, immutable once published, shared by all who receive it.

Properties travel in their canonical form, the MQTT 5 property block without its length. It holds only
what belongs to the message itself; expiry is a deadline here, topic aliases and subscription
identifiers belong to one hop and are never part of it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

NANOSECONDS: Final = 1_000_000_000
REMAINING_S_MAX: Final[i64] = 0xFFFF_FFFF  # four bytes, as MQTT carries it


@mypyc_attr(acyclic=True)
class Encoding:
    """What one protocol made of a message, kept with it so that a fan-out encodes once.

    `other` is what another protocol made of it. One that several messages share is always the last of its chain.
    """

    other: Encoding | None = None


@final
@mypyc_attr(acyclic=True)
class Message:
    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        guarantee: i64,
        retain: bool,
        properties: bytes,
        expires_ns: i64,
        publisher: str,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.guarantee: i64 = guarantee
        self.retain = retain
        self.properties = properties
        self.expires_ns: i64 = expires_ns  # 0: never
        self.publisher = publisher
        self.encoding: Encoding | None = None

    def under(self, topic: bytes) -> Message:
        """The same message by the topic that its subscribers know it by."""
        if self.topic == topic:
            return self
        return Message(
            topic,
            self.payload,
            self.guarantee,
            self.retain,
            self.properties,
            self.expires_ns,
            self.publisher,
        )

    def is_expired(self, now_ns: i64) -> bool:
        return self.expires_ns != 0 and self.expires_ns <= now_ns

    def remaining_s(self, now_ns: i64) -> i64:
        """Seconds left, rounded up so that a live message never says 0 [MQTT-3.3.2-6]. Never more than a packet can say: another
        protocol may give a message longer, and the time of a turn may be a little older than that of the publish."""
        left: i64 = self.expires_ns - now_ns
        if left <= 0:
            return 0
        seconds: i64 = (left + NANOSECONDS - 1) // NANOSECONDS
        return seconds if seconds < REMAINING_S_MAX else REMAINING_S_MAX

    def size_bytes(self) -> i64:
        size: i64 = len(self.topic) + len(self.payload) + len(self.properties)
        return size + 64
