"""Checks the properties of an incoming PUBLISH without building them.

The server looks at every PUBLISH, but needs only the expiry and the alias of most: the rest travels on as the
bytes it came in. One scan is made per connection and used again for each packet.

Invariants
- `scan` accepts what `decode_properties` accepts for a PUBLISH from a client, and refuses the rest with the
  same reason.
- Nothing is built per call, except slices of strings that are long or not ASCII.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.protocols.mqtt.wire.primitives import check_string
from millstream.protocols.mqtt.wire.properties import USER_PROPERTIES_MAX, check_response_topic
from millstream.protocols.mqtt.wire.reason_codes import (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    TOPIC_ALIAS_INVALID,
)
from millstream.protocols.mqtt.wire.violation import Violation

NONE: Final[i64] = -1

_FORMAT: Final[i64] = 0x01
_EXPIRY: Final[i64] = 0x02
_CONTENT_TYPE: Final[i64] = 0x03
_RESPONSE_TOPIC: Final[i64] = 0x08
_CORRELATION_DATA: Final[i64] = 0x09
_SUBSCRIPTION_IDENTIFIER: Final[i64] = 0x0B
_ALIAS: Final[i64] = 0x23
_USER_PROPERTY: Final[i64] = 0x26


@final
class PublishScan:
    """The result of the last scan, as offsets into the buffer that was scanned.

    first, position: where the properties begin (after their length) and where the payload begins
    expiry_s, expiry_at: message expiry or -1, and the offset of its four bytes (the identifier is one before)
    topic_alias, alias_at: alias or 0, and the offset of its two bytes (the identifier is one before)
    payload_format: 0 or 1, -1 when absent
    has_other: whether anything but expiry and alias is there
    """

    __slots__ = (
        "_one",
        "_user_properties_max",
        "alias_at",
        "expiry_at",
        "expiry_s",
        "first",
        "has_other",
        "payload_format",
        "position",
        "topic_alias",
    )

    def __init__(self, user_properties_max: int = USER_PROPERTIES_MAX) -> None:
        self._one: i64 = 1
        self._user_properties_max: i64 = user_properties_max
        self.first: i64 = 0
        self.position: i64 = 0
        self.expiry_s: i64 = NONE
        self.expiry_at: i64 = NONE
        self.topic_alias: i64 = 0
        self.alias_at: i64 = NONE
        self.payload_format: i64 = NONE
        self.has_other: bool = False

    def scan(self, buffer: bytes, position: i64, end: i64) -> None:
        """Reads the property block at `position`; a fault raises and leaves the fields without meaning."""
        self.expiry_s = NONE
        self.expiry_at = NONE
        self.topic_alias = 0
        self.alias_at = NONE
        self.payload_format = NONE
        self.has_other = False
        at: i64 = self._read_length(buffer, position, end)
        block_end: i64 = self.position
        seen: i64 = 0
        user_properties: i64 = 0
        while at < block_end:
            identifier: i64 = buffer[at]
            at += 1
            if identifier == _USER_PROPERTY:
                user_properties += 1
                if user_properties > self._user_properties_max:
                    raise Violation(PROTOCOL_ERROR, "the packet has more user properties than allowed")
                self.has_other = True
                at = check_string(buffer, check_string(buffer, at, block_end), block_end)
                continue
            if identifier > _ALIAS:
                raise Violation(
                    MALFORMED_PACKET, f"property 0x{int(identifier):02x} is not allowed in PUBLISH"
                )
            bit: i64 = self._one << identifier  # a literal would be shifted in 32 bits when compiled
            if seen & bit != 0 and identifier != _SUBSCRIPTION_IDENTIFIER:
                raise Violation(PROTOCOL_ERROR, f"property 0x{int(identifier):02x} is there twice")
            seen |= bit
            at = self._scan_one(buffer, identifier, at, block_end)

    def _read_length(self, buffer: bytes, position: i64, end: i64) -> i64:
        """Sets `first` and `position` from the length of the block and gives `first`."""
        at: i64 = position
        length: i64 = 0
        shift: i64 = 0
        while True:
            if at >= end:
                raise Violation(MALFORMED_PACKET, "the packet ends inside a variable byte integer")
            byte: i64 = buffer[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift > 0:  # [MQTT-1.5.5-1]
                    raise Violation(
                        MALFORMED_PACKET, "a variable byte integer is longer than its value needs"
                    )
                break
            shift += 7
            if shift > 21:
                raise Violation(MALFORMED_PACKET, "a variable byte integer has more than four bytes")
        if at + length > end:
            raise Violation(MALFORMED_PACKET, "the properties are longer than the packet")
        self.first = at
        self.position = at + length
        return at

    def _scan_one(self, buffer: bytes, identifier: i64, at: i64, end: i64) -> i64:
        if identifier == _EXPIRY:
            if at + 4 > end:
                raise Violation(MALFORMED_PACKET, "the packet ends inside a four byte integer")
            high: i64 = (i64(buffer[at]) << 8) | i64(buffer[at + 1])
            low: i64 = (i64(buffer[at + 2]) << 8) | i64(buffer[at + 3])
            self.expiry_s = (high << 16) | low
            self.expiry_at = at
            return at + 4
        if identifier == _ALIAS:
            if at + 2 > end:
                raise Violation(MALFORMED_PACKET, "the packet ends inside a two byte integer")
            self.topic_alias = (i64(buffer[at]) << 8) | i64(buffer[at + 1])
            if self.topic_alias == 0:  # [MQTT-3.3.2-8]
                raise Violation(TOPIC_ALIAS_INVALID, "topic alias 0 is not allowed")
            self.alias_at = at
            return at + 2
        self.has_other = True
        if identifier == _FORMAT:
            if at >= end:
                raise Violation(MALFORMED_PACKET, "the packet ends before a byte that must be there")
            self.payload_format = buffer[at]
            if self.payload_format > 1:
                raise Violation(PROTOCOL_ERROR, "property 0x01 must be 0 or 1")
            return at + 1
        if identifier == _CONTENT_TYPE:
            return check_string(buffer, at, end)
        if identifier == _RESPONSE_TOPIC:
            after: i64 = check_string(buffer, at, end)
            check_response_topic(buffer[at + 2 : after])
            return after
        if identifier == _CORRELATION_DATA:
            return self._skip_binary(buffer, at, end)
        if identifier == _SUBSCRIPTION_IDENTIFIER:  # [MQTT-3.3.4-6]
            raise Violation(PROTOCOL_ERROR, "a client must not send a subscription identifier in PUBLISH")
        raise Violation(MALFORMED_PACKET, f"property 0x{int(identifier):02x} is not allowed in PUBLISH")

    def _skip_binary(self, buffer: bytes, at: i64, end: i64) -> i64:
        if at + 2 > end:
            raise Violation(MALFORMED_PACKET, "the packet ends inside a two byte integer")
        after: i64 = at + 2 + (i64(buffer[at]) << 8) + i64(buffer[at + 1])
        if after > end:
            raise Violation(MALFORMED_PACKET, "a length points past the end of the packet")
        return after
