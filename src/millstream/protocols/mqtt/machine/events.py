"""What happened on a connection, for the endpoint to act on. Past facts, plain and small."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

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
