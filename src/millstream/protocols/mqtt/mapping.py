"""Between MQTT's words and ours: publishes to messages, wills, refusals to reason codes."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from millstream.broker.line import Ending
from millstream.broker.session import Session
from millstream.broker.will import Will
from millstream.model.errors import Reason
from millstream.model.message import NANOSECONDS, Message
from millstream.protocols.mqtt.machine.events import PublishReceived
from millstream.protocols.mqtt.wire import packets
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.frames import PublishFrames
from millstream.protocols.mqtt.wire.properties import Properties, encode_properties

REASON_CODES: Final[dict[Reason, int]] = {
    Reason.SUCCESS: code.SUCCESS,
    Reason.NO_MATCHING_SUBSCRIBERS: code.NO_MATCHING_SUBSCRIBERS,
    Reason.NO_SUBSCRIPTION_EXISTED: code.NO_SUBSCRIPTION_EXISTED,
    Reason.UNSPECIFIED: code.UNSPECIFIED_ERROR,
    Reason.NOT_AUTHORIZED: code.NOT_AUTHORIZED,
    Reason.BAD_CREDENTIALS: code.BAD_USER_NAME_OR_PASSWORD,
    Reason.TOPIC_INVALID: code.TOPIC_NAME_INVALID,
    Reason.FILTER_INVALID: code.TOPIC_FILTER_INVALID,
    Reason.TOO_LARGE: code.PACKET_TOO_LARGE,
    Reason.QUOTA_EXCEEDED: code.QUOTA_EXCEEDED,
    Reason.RATE_EXCEEDED: code.CONNECTION_RATE_EXCEEDED,
    Reason.GUARANTEE_NOT_SUPPORTED: code.QOS_NOT_SUPPORTED,
    Reason.UNAVAILABLE: code.SERVER_UNAVAILABLE,
    Reason.SERVER_BUSY: code.SERVER_BUSY,
    Reason.SHARED_NOT_ALLOWED: code.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    Reason.CLIENT_ID_INVALID: code.CLIENT_IDENTIFIER_NOT_VALID,
    Reason.IN_USE: code.PACKET_IDENTIFIER_IN_USE,
    Reason.NOT_FOUND: code.TOPIC_NAME_INVALID,
    Reason.PRECONDITION_FAILED: code.IMPLEMENTATION_SPECIFIC_ERROR,
    Reason.LOCKED: code.NOT_AUTHORIZED,
}

ENDING_CODES: Final[dict[Ending, int]] = {
    Ending.TAKEN_OVER: code.SESSION_TAKEN_OVER,
    Ending.NOT_AUTHORIZED: code.NOT_AUTHORIZED,
    Ending.SHUTTING_DOWN: code.SERVER_SHUTTING_DOWN,
    Ending.TOO_SLOW: code.QUOTA_EXCEEDED,
    Ending.ADMINISTRATIVE: code.ADMINISTRATIVE_ACTION,
    Ending.UNAVAILABLE: code.SERVER_BUSY,
    Ending.OUT_OF_MEMORY: code.QUOTA_EXCEEDED,
}

ENDING_TEXTS: Final[dict[Ending, str]] = {
    Ending.TAKEN_OVER: "another connection took over this session",
    Ending.NOT_AUTHORIZED: "the right to be connected was withdrawn",
    Ending.SHUTTING_DOWN: "the broker is shutting down",
    Ending.TOO_SLOW: "the client does not read what it subscribed to",
    Ending.ADMINISTRATIVE: "an operator closed the connection",
    Ending.UNAVAILABLE: "the publish cannot be made durable now",
    Ending.OUT_OF_MEMORY: "the broker is short of memory and this connection holds much of it (memory.limit)",
}

# What a 3.1.1 CONNACK can say [MQTT3-3.2.2.3]; everything else is "server unavailable".
_RETURN_CODES: Final[dict[int, int]] = {
    code.SUCCESS: 0,
    code.UNSUPPORTED_PROTOCOL_VERSION: 1,
    code.CLIENT_IDENTIFIER_NOT_VALID: 2,
    code.BAD_USER_NAME_OR_PASSWORD: 4,
    code.NOT_AUTHORIZED: 5,
    code.QOS_NOT_SUPPORTED: 5,
    code.BANNED: 5,
}


def to_return_code(reason: int) -> int:
    return _RETURN_CODES.get(reason, 3)


def to_message(event: PublishReceived, publisher: str, now_ns: i64) -> Message:
    expires_ns: i64 = 0
    if event.expiry_s >= 0:
        expires_ns = now_ns + event.expiry_s * NANOSECONDS
    message = Message(
        event.topic, event.payload, event.qos, event.retain, event.properties, expires_ns, publisher
    )
    frame = event.frame
    if frame is not None:
        frames = PublishFrames()
        message.encoding = frames
        if event.is_five:
            frames.own = frame
            frames.own_qos = event.qos
            frames.own_id_at = event.frame_id_at
            frames.own_expiry_s = event.expiry_s
            return message
        frames.four_id_at = event.frame_id_at
        if event.qos == 1:
            frames.four_1 = frame
        elif event.qos == 2:
            frames.four_2 = frame
        else:
            frames.four_0 = frame
    return message


def is_repeat(event: PublishReceived, session: Session) -> bool:
    """Whether a QoS 2 publish is one that the session has taken already [MQTT-4.3.3-10]."""
    packet_id: i64 = event.packet_id
    if session.is_id_received(packet_id):
        return True
    doubt = session.doubt
    if doubt is None or not doubt.take_repeat(packet_id, event.dup, event.topic, event.payload):
        return False
    session.add_received_id(packet_id, True)
    return True


def to_will(packet: packets.Will, publisher: str, delay_s_max: int) -> Will:
    delay_s = 0
    lifetime_s = 0
    block = b""
    properties = packet.properties
    if properties is not None:
        delay_s = min(properties.will_delay_interval or 0, delay_s_max)
        if properties.message_expiry_interval is not None:
            lifetime_s = max(1, properties.message_expiry_interval)  # 0 would be for ever
        block = encode_block(properties)
    message = Message(packet.topic, packet.payload, packet.qos, packet.retain, block, 0, publisher)
    return Will(message, delay_s, lifetime_s)


def encode_block(properties: Properties) -> bytes:
    """The properties that belong to a message, in canonical form."""
    kept = Properties()
    kept.payload_format_indicator = properties.payload_format_indicator
    kept.content_type = properties.content_type
    kept.response_topic = properties.response_topic
    kept.correlation_data = properties.correlation_data
    kept.user_properties = properties.user_properties
    encoded = encode_properties(kept)
    at = 0
    while encoded[at] >= 0x80:  # the length in front is not part of the block
        at += 1
    return encoded[at + 1 :]
