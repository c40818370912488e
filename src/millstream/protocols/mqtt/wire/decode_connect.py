"""The two packets of the handshake, CONNECT and CONNACK, whose fields depend on one another.

CONNECT says which version it is in, so it is decoded without knowing one.
"""

from __future__ import annotations

from typing import Final

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Will
from millstream.protocols.mqtt.wire.primitives import (
    decode_binary,
    decode_byte,
    decode_string,
    decode_two_bytes,
    decode_varint,
)
from millstream.protocols.mqtt.wire.properties import Properties, decode_properties
from millstream.protocols.mqtt.wire.reason_codes import (
    ALLOWED_REASONS,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    REFUSED_NOT_AUTHORIZED,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from millstream.protocols.mqtt.wire.violation import Violation

_CLEAN_START: Final = 0x02
_WILL: Final = 0x04
_WILL_QOS: Final = 0x18
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USERNAME: Final = 0x80


def decode_connect(buffer: bytes, body: int, end: int) -> Connect:
    name, position = decode_string(buffer, body, end)
    if name != b"MQTT" and name != b"MQIsdp":  # [MQTT-3.1.2-1]: it is told nothing
        raise Violation(PROTOCOL_ERROR, "another protocol than MQTT")
    version, position = decode_byte(buffer, position, end)
    if not ((name == b"MQTT" and version in (4, 5)) or (name == b"MQIsdp" and version == 3)):
        form = 5 if version > 5 and _has_form_of_five(buffer, position, end) else 0
        # [MQTT-3.1.2-2]
        raise Violation(UNSUPPORTED_PROTOCOL_VERSION, "neither MQTT 3.1, 3.1.1 nor 5.0", form)
    flags, position = decode_byte(buffer, position, end)
    _check_connect_flags(flags, version)
    keep_alive_s, position = decode_two_bytes(buffer, position, end)
    properties: Properties | None = None
    if version >= 5:
        properties, position = decode_properties(buffer, position, end, kinds.CONNECT)
    client_id, position = decode_string(buffer, position, end)
    will: Will | None = None
    if flags & _WILL:
        will, position = _decode_will(buffer, position, end, flags, version)
    username: str | None = None
    password: bytes | None = None
    # MQTT 3.1: the length of the packet wins over the flags
    if flags & _USERNAME and not (version == 3 and position == end):
        name, position = decode_string(buffer, position, end)
        username = name.decode("utf-8")
    if flags & _PASSWORD and not (version == 3 and position == end):
        password, position = decode_binary(buffer, position, end)
    if position != end:
        raise Violation(MALFORMED_PACKET, "the packet has bytes after its last field")
    clean_start = flags & _CLEAN_START != 0
    return Connect(
        version, client_id.decode("utf-8"), clean_start, keep_alive_s, username, password, will, properties
    )


def _has_form_of_five(buffer: bytes, position: int, end: int) -> bool:
    """Whether properties stand between the keep-alive and the client id: their sender can read an MQTT 5 answer."""
    try:
        size, position = decode_varint(buffer, position + 3, end)  # behind the flags and the keep-alive
        decode_string(buffer, position + size, end)
    except Violation:
        return False
    return True


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x01 and version > 3:  # [MQTT-3.1.2-3]; MQTT 3.1 does not use it
        raise Violation(MALFORMED_PACKET, "the reserved flag of CONNECT must be 0")
    if flags & _WILL == 0 and flags & (_WILL_QOS | _WILL_RETAIN):  # [MQTT-3.1.2-11, MQTT-3.1.2-13]
        raise Violation(MALFORMED_PACKET, "will QoS or will retain without a will")
    if flags & _WILL_QOS == _WILL_QOS:  # [MQTT-3.1.2-12]
        raise Violation(MALFORMED_PACKET, "will QoS 3 does not exist")
    if version < 5 and flags & _PASSWORD and not flags & _USERNAME:  # [MQTT3-3.1.2-22]
        raise Violation(MALFORMED_PACKET, "a password without a user name")


def _decode_will(buffer: bytes, position: int, end: int, flags: int, version: int) -> tuple[Will, int]:
    properties: Properties | None = None
    if version >= 5:
        properties, position = decode_properties(buffer, position, end, kinds.WILL)
    topic, position = decode_string(buffer, position, end)
    payload, position = decode_binary(buffer, position, end)
    return Will(topic, payload, (flags & _WILL_QOS) >> 3, flags & _WILL_RETAIN != 0, properties), position


def decode_connack(buffer: bytes, body: int, end: int, version: int) -> ConnAck:
    flags, position = decode_byte(buffer, body, end)
    reason, position = decode_byte(buffer, position, end)
    if version == 3:
        flags = 0  # a reserved byte in MQTT 3.1
    if flags > 1:  # [MQTT-3.2.2-1]
        raise Violation(MALFORMED_PACKET, "reserved flags of CONNACK must be 0")
    properties: Properties | None = None
    if version >= 5:
        if reason not in ALLOWED_REASONS[kinds.CONNACK]:
            raise Violation(PROTOCOL_ERROR, f"0x{reason:02x} is no reason code of CONNACK")
        properties, position = decode_properties(buffer, position, end, kinds.CONNACK)
    elif reason > REFUSED_NOT_AUTHORIZED:
        raise Violation(MALFORMED_PACKET, f"{reason} is no return code of CONNACK")
    if position != end:
        raise Violation(MALFORMED_PACKET, "the packet has bytes after its last field")
    if flags == 1 and reason != 0:  # [MQTT-3.2.2-6]
        raise Violation(PROTOCOL_ERROR, "a refused connection cannot have a session")
    return ConnAck(flags == 1, reason, properties)
