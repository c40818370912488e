"""What happened on a connection, for the endpoint to act on. Past facts, plain and small."""

from __future__ import annotations

from typing import final

from librt.strings import read_i32_be, read_i32_le
from mypy_extensions import i64, mypyc_attr

from millstream.model.outbox import LARGE
from millstream.protocols.mqtt.wire.packets import Auth, Connect, Disconnect, Subscribe, Unsubscribe


@mypyc_attr(acyclic=True)
class Event:
    pass


@final
class ConnectReceived(Event):
    def __init__(self, packet: Connect) -> None:
        self.packet = packet


@final
@mypyc_attr(acyclic=True)
class RunReceived(Event):
    """`count` QoS 0 publishes to one topic with equal properties: buffer[start:end]."""

    def __init__(self, buffer: bytes, start: i64, end: i64, count: i64, topic: bytes) -> None:
        self.buffer = buffer
        self.start: i64 = start
        self.end: i64 = end
        self.count: i64 = count
        self.topic = topic


@final
@mypyc_attr(acyclic=True)
class PublishReceived(Event):
    """One publish. `frame` is the packet as it came when a receiver of its version can be sent just that."""

    def __init__(
        self, topic: bytes, payload: bytes, qos: i64, packet_id: i64, retain: bool, dup: bool
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos: i64 = qos
        self.packet_id: i64 = packet_id
        self.retain = retain
        self.dup = dup
        self.properties = b""
        self.expiry_s: i64 = -1
        self.is_five = False
        self.frame: bytes | None = None
        self.frame_id_at: i64 = 0


@final
@mypyc_attr(acyclic=True)
class PublishBatchReceived(Event):
    """`count` QoS 1 publishes right behind `first` that differ from it in packet id and payload alone, from
    buffer[start] on. `places` has where each payload begins and ends (32 bits little-endian each), `answers` the PUBACK
    that would accept each; a packet id stands `id_before` bytes before the payload."""

    def __init__(
        self,
        first: PublishReceived,
        buffer: bytes,
        start: i64,
        places: bytes,
        answers: bytes,
        id_before: i64,
    ) -> None:
        self.first = first
        self.buffer = buffer
        self.start: i64 = start
        self.count: i64 = len(answers) >> 2
        self.places = places
        self.answers = answers
        self.id_before: i64 = id_before

    def take_apart(self) -> list[PublishReceived]:
        """Each as if it had come alone."""
        first = self.first
        buffer = self.buffer
        found: list[PublishReceived] = []
        start: i64 = self.start
        at: i64 = 0
        while at < 4 * self.count:
            payload_at: i64 = i64(read_i32_le(self.places, 2 * at))
            end: i64 = i64(read_i32_le(self.places, 2 * at + 4))
            packet_id: i64 = i64(read_i32_be(self.answers, at)) & 0xFFFF
            event = PublishReceived(first.topic, buffer[payload_at:end], 1, packet_id, False, False)
            event.properties = first.properties
            event.expiry_s = first.expiry_s
            event.is_five = first.is_five
            if end - start < LARGE:
                event.frame = buffer[start:end]
                event.frame_id_at = payload_at - self.id_before - start
            found.append(event)
            start = end
            at += 4
        return found


@final
@mypyc_attr(acyclic=True)
class AnswerReceived(Event):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def __init__(self, kind: i64, packet_id: i64, reason: i64) -> None:
        self.kind: i64 = kind
        self.packet_id: i64 = packet_id
        self.reason: i64 = reason


@final
class PingReceived(Event):
    """It has nothing to tell apart: one instance serves all."""


@final
class SubscribeReceived(Event):
    def __init__(self, packet: Subscribe) -> None:
        self.packet = packet


@final
class UnsubscribeReceived(Event):
    def __init__(self, packet: Unsubscribe) -> None:
        self.packet = packet


@final
class AuthReceived(Event):
    def __init__(self, packet: Auth) -> None:
        self.packet = packet


@final
class DisconnectReceived(Event):
    def __init__(self, packet: Disconnect) -> None:
        self.packet = packet


@final
class Closed(Event):
    """The machine is done: `reason` is an MQTT 5 reason code, `text` says it in words."""

    def __init__(self, reason: int, text: str) -> None:
        self.reason = reason
        self.text = text
