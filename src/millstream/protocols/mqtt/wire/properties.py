"""The properties of MQTT 5: one typed set, its decoder with all rules, its encoder.

Invariants
- None means absent; a property that is present with its default value stays present.
- Only properties the packet may carry come out, each once, save those the specification lets repeat;
  those keep their order.
- Every number that comes out is inside its own range, every string is valid UTF-8.
"""

from __future__ import annotations

from typing import Final

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.primitives import (
    decode_binary,
    decode_byte,
    decode_four_bytes,
    decode_string,
    decode_two_bytes,
    decode_varint,
    encode_binary,
    encode_four_bytes,
    encode_two_bytes,
    encode_varint,
)
from millstream.protocols.mqtt.wire.reason_codes import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    TOPIC_ALIAS_INVALID,
)
from millstream.protocols.mqtt.wire.violation import Violation

USER_PROPERTIES_MAX: Final = 256  # per packet, unless the caller names another bound
SUBSCRIPTION_IDENTIFIERS_MAX: Final = 1000  # per PUBLISH

PAYLOAD_FORMAT_INDICATOR: Final = 0x01
MESSAGE_EXPIRY_INTERVAL: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_IDENTIFIER: Final = 0x0B
SESSION_EXPIRY_INTERVAL: Final = 0x11
ASSIGNED_CLIENT_IDENTIFIER: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
REQUEST_PROBLEM_INFORMATION: Final = 0x17
WILL_DELAY_INTERVAL: Final = 0x18
REQUEST_RESPONSE_INFORMATION: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_SUBSCRIPTION_AVAILABLE: Final = 0x28
SUBSCRIPTION_IDENTIFIERS_AVAILABLE: Final = 0x29
SHARED_SUBSCRIPTION_AVAILABLE: Final = 0x2A

_CONNECT: Final = 1 << kinds.CONNECT
_CONNACK: Final = 1 << kinds.CONNACK
_PUBLISH: Final = 1 << kinds.PUBLISH
_WILL: Final = 1 << kinds.WILL
_SUBSCRIBE: Final = 1 << kinds.SUBSCRIBE
_DISCONNECT: Final = 1 << kinds.DISCONNECT
_AUTH: Final = 1 << kinds.AUTH
_ANSWERS: Final = (
    (1 << kinds.PUBACK) | (1 << kinds.PUBREC) | (1 << kinds.PUBREL) | (1 << kinds.PUBCOMP)
    | (1 << kinds.SUBACK) | (1 << kinds.UNSUBACK)
)  # fmt: skip

# which packets may carry a property, as a bit per packet kind [MQTT-2.2.2.2]
ALLOWED_IN: Final[dict[int, int]] = {
    PAYLOAD_FORMAT_INDICATOR: _PUBLISH | _WILL,
    MESSAGE_EXPIRY_INTERVAL: _PUBLISH | _WILL,
    CONTENT_TYPE: _PUBLISH | _WILL,
    RESPONSE_TOPIC: _PUBLISH | _WILL,
    CORRELATION_DATA: _PUBLISH | _WILL,
    SUBSCRIPTION_IDENTIFIER: _PUBLISH | _SUBSCRIBE,
    SESSION_EXPIRY_INTERVAL: _CONNECT | _CONNACK | _DISCONNECT,
    ASSIGNED_CLIENT_IDENTIFIER: _CONNACK,
    SERVER_KEEP_ALIVE: _CONNACK,
    AUTHENTICATION_METHOD: _CONNECT | _CONNACK | _AUTH,
    AUTHENTICATION_DATA: _CONNECT | _CONNACK | _AUTH,
    REQUEST_PROBLEM_INFORMATION: _CONNECT,
    WILL_DELAY_INTERVAL: _WILL,
    REQUEST_RESPONSE_INFORMATION: _CONNECT,
    RESPONSE_INFORMATION: _CONNACK,
    SERVER_REFERENCE: _CONNACK | _DISCONNECT,
    REASON_STRING: _CONNACK | _ANSWERS | _DISCONNECT | _AUTH,
    RECEIVE_MAXIMUM: _CONNECT | _CONNACK,
    TOPIC_ALIAS_MAXIMUM: _CONNECT | _CONNACK,
    TOPIC_ALIAS: _PUBLISH,
    MAXIMUM_QOS: _CONNACK,
    RETAIN_AVAILABLE: _CONNACK,
    USER_PROPERTY: (_CONNECT | _CONNACK | _PUBLISH | _WILL | _SUBSCRIBE | (1 << kinds.UNSUBSCRIBE)
                    | _ANSWERS | _DISCONNECT | _AUTH),
    MAXIMUM_PACKET_SIZE: _CONNECT | _CONNACK,
    WILDCARD_SUBSCRIPTION_AVAILABLE: _CONNACK,
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE: _CONNACK,
    SHARED_SUBSCRIPTION_AVAILABLE: _CONNACK,
}  # fmt: skip


class Properties:
    """Every property of MQTT 5; strings are UTF-8 bytes, flags are 0 or 1, None is absent."""

    __slots__ = (
        "assigned_client_identifier",
        "authentication_data",
        "authentication_method",
        "content_type",
        "correlation_data",
        "maximum_packet_size",
        "maximum_qos",
        "message_expiry_interval",
        "payload_format_indicator",
        "reason_string",
        "receive_maximum",
        "request_problem_information",
        "request_response_information",
        "response_information",
        "response_topic",
        "retain_available",
        "server_keep_alive",
        "server_reference",
        "session_expiry_interval",
        "shared_subscription_available",
        "subscription_identifiers",
        "subscription_identifiers_available",
        "topic_alias",
        "topic_alias_maximum",
        "user_properties",
        "wildcard_subscription_available",
        "will_delay_interval",
    )

    def __init__(self) -> None:
        self.payload_format_indicator: int | None = None
        self.message_expiry_interval: int | None = None
        self.content_type: bytes | None = None
        self.response_topic: bytes | None = None
        self.correlation_data: bytes | None = None
        self.subscription_identifiers: list[int] = []
        self.session_expiry_interval: int | None = None
        self.assigned_client_identifier: bytes | None = None
        self.server_keep_alive: int | None = None
        self.authentication_method: bytes | None = None
        self.authentication_data: bytes | None = None
        self.request_problem_information: int | None = None
        self.will_delay_interval: int | None = None
        self.request_response_information: int | None = None
        self.response_information: bytes | None = None
        self.server_reference: bytes | None = None
        self.reason_string: bytes | None = None
        self.receive_maximum: int | None = None
        self.topic_alias_maximum: int | None = None
        self.topic_alias: int | None = None
        self.maximum_qos: int | None = None
        self.retain_available: int | None = None
        self.user_properties: list[tuple[bytes, bytes]] = []
        self.maximum_packet_size: int | None = None
        self.wildcard_subscription_available: int | None = None
        self.subscription_identifiers_available: int | None = None
        self.shared_subscription_available: int | None = None

    def present(self) -> list[tuple[str, object]]:
        """The properties that are there, by name, in the order of their identifiers."""
        numbers = self._numbers()
        texts = self._texts()
        found: list[tuple[str, object]] = []
        for identifier in ALLOWED_IN:
            name = PROPERTY_NAMES[identifier]
            if identifier == USER_PROPERTY:
                if self.user_properties:
                    found.append((name, self.user_properties))
            elif identifier == SUBSCRIPTION_IDENTIFIER:
                if self.subscription_identifiers:
                    found.append((name, self.subscription_identifiers))
            elif identifier in numbers:
                if numbers[identifier] is not None:
                    found.append((name, numbers[identifier]))
            elif texts[identifier] is not None:
                found.append((name, texts[identifier]))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.present() == other.present()

    def __repr__(self) -> str:
        return "Properties(" + ", ".join([f"{name}={value!r}" for name, value in self.present()]) + ")"

    def _numbers(self) -> dict[int, int | None]:
        return {
            PAYLOAD_FORMAT_INDICATOR: self.payload_format_indicator,
            MESSAGE_EXPIRY_INTERVAL: self.message_expiry_interval,
            SESSION_EXPIRY_INTERVAL: self.session_expiry_interval,
            SERVER_KEEP_ALIVE: self.server_keep_alive,
            REQUEST_PROBLEM_INFORMATION: self.request_problem_information,
            WILL_DELAY_INTERVAL: self.will_delay_interval,
            REQUEST_RESPONSE_INFORMATION: self.request_response_information,
            RECEIVE_MAXIMUM: self.receive_maximum,
            TOPIC_ALIAS_MAXIMUM: self.topic_alias_maximum,
            TOPIC_ALIAS: self.topic_alias,
            MAXIMUM_QOS: self.maximum_qos,
            RETAIN_AVAILABLE: self.retain_available,
            MAXIMUM_PACKET_SIZE: self.maximum_packet_size,
            WILDCARD_SUBSCRIPTION_AVAILABLE: self.wildcard_subscription_available,
            SUBSCRIPTION_IDENTIFIERS_AVAILABLE: self.subscription_identifiers_available,
            SHARED_SUBSCRIPTION_AVAILABLE: self.shared_subscription_available,
        }

    def _texts(self) -> dict[int, bytes | None]:
        return {
            CONTENT_TYPE: self.content_type,
            RESPONSE_TOPIC: self.response_topic,
            CORRELATION_DATA: self.correlation_data,
            ASSIGNED_CLIENT_IDENTIFIER: self.assigned_client_identifier,
            AUTHENTICATION_METHOD: self.authentication_method,
            AUTHENTICATION_DATA: self.authentication_data,
            RESPONSE_INFORMATION: self.response_information,
            SERVER_REFERENCE: self.server_reference,
            REASON_STRING: self.reason_string,
        }


PROPERTY_NAMES: Final[dict[int, str]] = {
    PAYLOAD_FORMAT_INDICATOR: "payload_format_indicator",
    MESSAGE_EXPIRY_INTERVAL: "message_expiry_interval",
    CONTENT_TYPE: "content_type",
    RESPONSE_TOPIC: "response_topic",
    CORRELATION_DATA: "correlation_data",
    SUBSCRIPTION_IDENTIFIER: "subscription_identifiers",
    SESSION_EXPIRY_INTERVAL: "session_expiry_interval",
    ASSIGNED_CLIENT_IDENTIFIER: "assigned_client_identifier",
    SERVER_KEEP_ALIVE: "server_keep_alive",
    AUTHENTICATION_METHOD: "authentication_method",
    AUTHENTICATION_DATA: "authentication_data",
    REQUEST_PROBLEM_INFORMATION: "request_problem_information",
    WILL_DELAY_INTERVAL: "will_delay_interval",
    REQUEST_RESPONSE_INFORMATION: "request_response_information",
    RESPONSE_INFORMATION: "response_information",
    SERVER_REFERENCE: "server_reference",
    REASON_STRING: "reason_string",
    RECEIVE_MAXIMUM: "receive_maximum",
    TOPIC_ALIAS_MAXIMUM: "topic_alias_maximum",
    TOPIC_ALIAS: "topic_alias",
    MAXIMUM_QOS: "maximum_qos",
    RETAIN_AVAILABLE: "retain_available",
    USER_PROPERTY: "user_properties",
    MAXIMUM_PACKET_SIZE: "maximum_packet_size",
    WILDCARD_SUBSCRIPTION_AVAILABLE: "wildcard_subscription_available",
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE: "subscription_identifiers_available",
    SHARED_SUBSCRIPTION_AVAILABLE: "shared_subscription_available",
}


def decode_properties(
    buffer: bytes,
    position: int,
    end: int,
    packet_kind: int,
    user_properties_max: int = USER_PROPERTIES_MAX,
) -> tuple[Properties | None, int]:
    """The property block at `position` with its length, None when it is empty, and the position after it."""
    length, position = decode_varint(buffer, position, end)
    block_end = position + length
    if block_end > end:
        raise Violation(MALFORMED_PACKET, "the properties are longer than the packet")
    if length == 0:
        return None, position
    properties = Properties()
    seen = 0
    while position < block_end:
        identifier, position = decode_varint(buffer, position, block_end)
        if (ALLOWED_IN.get(identifier, 0) >> packet_kind) & 1 == 0:
            raise Violation(
                MALFORMED_PACKET,
                f"property 0x{identifier:02x} is not allowed in {kinds.KIND_NAMES[packet_kind]}",
            )
        if identifier == USER_PROPERTY:
            if len(properties.user_properties) >= user_properties_max:
                raise Violation(PROTOCOL_ERROR, "the packet has more user properties than allowed")
            name, position = decode_string(buffer, position, block_end)
            value, position = decode_string(buffer, position, block_end)
            properties.user_properties.append((name, value))
            continue
        bit = 1 << identifier
        if seen & bit and not (identifier == SUBSCRIPTION_IDENTIFIER and packet_kind == kinds.PUBLISH):
            raise Violation(PROTOCOL_ERROR, f"property 0x{identifier:02x} is there twice")
        seen |= bit
        if identifier in _TEXT_PROPERTIES:
            position = _decode_text(properties, identifier, buffer, position, block_end)
        else:
            position = _decode_number(properties, identifier, buffer, position, block_end)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise Violation(PROTOCOL_ERROR, "authentication data without an authentication method")
    return properties, position


_TEXT_PROPERTIES: Final = frozenset(
    (
        CONTENT_TYPE,
        RESPONSE_TOPIC,
        CORRELATION_DATA,
        ASSIGNED_CLIENT_IDENTIFIER,
        AUTHENTICATION_METHOD,
        AUTHENTICATION_DATA,
        RESPONSE_INFORMATION,
        SERVER_REFERENCE,
        REASON_STRING,
    )
)


def _decode_text(properties: Properties, identifier: int, buffer: bytes, position: int, end: int) -> int:
    if identifier == CORRELATION_DATA:
        properties.correlation_data, position = decode_binary(buffer, position, end)
        return position
    if identifier == AUTHENTICATION_DATA:
        properties.authentication_data, position = decode_binary(buffer, position, end)
        return position
    text, position = decode_string(buffer, position, end)
    if identifier == CONTENT_TYPE:
        properties.content_type = text
    elif identifier == RESPONSE_TOPIC:
        check_response_topic(text)
        properties.response_topic = text
    elif identifier == ASSIGNED_CLIENT_IDENTIFIER:
        properties.assigned_client_identifier = text
    elif identifier == AUTHENTICATION_METHOD:
        properties.authentication_method = text
    elif identifier == RESPONSE_INFORMATION:
        properties.response_information = text
    elif identifier == SERVER_REFERENCE:
        properties.server_reference = text
    else:
        properties.reason_string = text
    return position


def check_response_topic(topic: bytes) -> None:
    if b"+" in topic or b"#" in topic:  # [MQTT-3.3.2-14]
        raise Violation(PROTOCOL_ERROR, "a response topic must not contain wildcards")
    if not topic:  # [MQTT-4.7.3-1]
        raise Violation(PROTOCOL_ERROR, "a response topic must have at least one character")


def _decode_number(properties: Properties, identifier: int, buffer: bytes, position: int, end: int) -> int:
    if identifier == MESSAGE_EXPIRY_INTERVAL:
        properties.message_expiry_interval, position = decode_four_bytes(buffer, position, end)
    elif identifier == SUBSCRIPTION_IDENTIFIER:
        value, position = decode_varint(buffer, position, end)
        if len(properties.subscription_identifiers) >= SUBSCRIPTION_IDENTIFIERS_MAX:
            raise Violation(PROTOCOL_ERROR, "the packet has more subscription identifiers than allowed")
        properties.subscription_identifiers.append(_nonzero(value, "a subscription identifier"))
    elif identifier == SESSION_EXPIRY_INTERVAL:
        properties.session_expiry_interval, position = decode_four_bytes(buffer, position, end)
    elif identifier == WILL_DELAY_INTERVAL:
        properties.will_delay_interval, position = decode_four_bytes(buffer, position, end)
    elif identifier == SERVER_KEEP_ALIVE:
        properties.server_keep_alive, position = decode_two_bytes(buffer, position, end)
    elif identifier == RECEIVE_MAXIMUM:
        value, position = decode_two_bytes(buffer, position, end)
        properties.receive_maximum = _nonzero(value, "receive maximum")
    elif identifier == TOPIC_ALIAS_MAXIMUM:
        properties.topic_alias_maximum, position = decode_two_bytes(buffer, position, end)
    elif identifier == TOPIC_ALIAS:
        properties.topic_alias, position = decode_two_bytes(buffer, position, end)
        if properties.topic_alias == 0:  # [MQTT-3.3.2-8]
            raise Violation(TOPIC_ALIAS_INVALID, "topic alias 0 is not allowed")
    elif identifier == MAXIMUM_PACKET_SIZE:
        value, position = decode_four_bytes(buffer, position, end)
        properties.maximum_packet_size = _nonzero(value, "maximum packet size")
    else:
        value, position = decode_byte(buffer, position, end)
        if value > 1:
            raise Violation(PROTOCOL_ERROR, f"property 0x{identifier:02x} must be 0 or 1")
        _set_flag(properties, identifier, value)
    return position


def _nonzero(value: int, name: str) -> int:
    if value == 0:
        raise Violation(PROTOCOL_ERROR, name + " must not be 0")
    return value


def _set_flag(properties: Properties, identifier: int, value: int) -> None:
    if identifier == PAYLOAD_FORMAT_INDICATOR:
        properties.payload_format_indicator = value
    elif identifier == REQUEST_PROBLEM_INFORMATION:
        properties.request_problem_information = value
    elif identifier == REQUEST_RESPONSE_INFORMATION:
        properties.request_response_information = value
    elif identifier == MAXIMUM_QOS:
        properties.maximum_qos = value
    elif identifier == RETAIN_AVAILABLE:
        properties.retain_available = value
    elif identifier == WILDCARD_SUBSCRIPTION_AVAILABLE:
        properties.wildcard_subscription_available = value
    elif identifier == SUBSCRIPTION_IDENTIFIERS_AVAILABLE:
        properties.subscription_identifiers_available = value
    else:
        properties.shared_subscription_available = value


def encode_properties(properties: Properties | None) -> bytes:
    """The property block with its length in front; None is the empty block."""
    if properties is None:
        return b"\x00"
    out: list[bytes] = []
    _add_byte(out, PAYLOAD_FORMAT_INDICATOR, properties.payload_format_indicator)
    _add_four_bytes(out, MESSAGE_EXPIRY_INTERVAL, properties.message_expiry_interval)
    _add_text(out, CONTENT_TYPE, properties.content_type)
    _add_text(out, RESPONSE_TOPIC, properties.response_topic)
    _add_text(out, CORRELATION_DATA, properties.correlation_data)
    for identifier in properties.subscription_identifiers:
        out.append(b"\x0b" + encode_varint(identifier))
    _add_four_bytes(out, SESSION_EXPIRY_INTERVAL, properties.session_expiry_interval)
    _add_text(out, ASSIGNED_CLIENT_IDENTIFIER, properties.assigned_client_identifier)
    _add_two_bytes(out, SERVER_KEEP_ALIVE, properties.server_keep_alive)
    _add_text(out, AUTHENTICATION_METHOD, properties.authentication_method)
    _add_text(out, AUTHENTICATION_DATA, properties.authentication_data)
    _add_byte(out, REQUEST_PROBLEM_INFORMATION, properties.request_problem_information)
    _add_four_bytes(out, WILL_DELAY_INTERVAL, properties.will_delay_interval)
    _add_byte(out, REQUEST_RESPONSE_INFORMATION, properties.request_response_information)
    _add_text(out, RESPONSE_INFORMATION, properties.response_information)
    _add_text(out, SERVER_REFERENCE, properties.server_reference)
    _add_text(out, REASON_STRING, properties.reason_string)
    _add_two_bytes(out, RECEIVE_MAXIMUM, properties.receive_maximum)
    _add_two_bytes(out, TOPIC_ALIAS_MAXIMUM, properties.topic_alias_maximum)
    _add_two_bytes(out, TOPIC_ALIAS, properties.topic_alias)
    _add_byte(out, MAXIMUM_QOS, properties.maximum_qos)
    _add_byte(out, RETAIN_AVAILABLE, properties.retain_available)
    for name, value in properties.user_properties:
        out.append(b"\x26" + encode_binary(name) + encode_binary(value))
    _add_four_bytes(out, MAXIMUM_PACKET_SIZE, properties.maximum_packet_size)
    _add_byte(out, WILDCARD_SUBSCRIPTION_AVAILABLE, properties.wildcard_subscription_available)
    _add_byte(out, SUBSCRIPTION_IDENTIFIERS_AVAILABLE, properties.subscription_identifiers_available)
    _add_byte(out, SHARED_SUBSCRIPTION_AVAILABLE, properties.shared_subscription_available)
    block = b"".join(out)
    return encode_varint(len(block)) + block


def _add_byte(out: list[bytes], identifier: int, value: int | None) -> None:
    if value is not None:
        out.append(bytes((identifier, value)))


def _add_two_bytes(out: list[bytes], identifier: int, value: int | None) -> None:
    if value is not None:
        out.append(bytes((identifier,)) + encode_two_bytes(value))


def _add_four_bytes(out: list[bytes], identifier: int, value: int | None) -> None:
    if value is not None:
        out.append(bytes((identifier,)) + encode_four_bytes(value))


def _add_text(out: list[bytes], identifier: int, value: bytes | None) -> None:
    if value is not None:
        out.append(bytes((identifier,)) + encode_binary(value))
