"""The data types of MQTT on the wire: integers, strings, binary data.

Invariants
- A decoder reads `buffer[position:end]` only; whatever would pass `end` is a malformed packet.
- Every string that comes out is well-formed UTF-8 without NUL and without surrogates.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from millstream.model.topic import find_utf8_fault
from millstream.protocols.mqtt.wire.reason_codes import MALFORMED_PACKET
from millstream.protocols.mqtt.wire.violation import Violation

VARINT_MAX: Final = 268_435_455
STRING_LENGTH_MAX: Final = 65_535
ASCII_LOOP_MAX: Final = 32  # longer texts are checked faster by the interpreter's own UTF-8 decoder


def decode_byte(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    if position >= end:
        raise Violation(MALFORMED_PACKET, "the packet ends before a byte that must be there")
    return buffer[position], position + 1


def decode_two_bytes(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 2 > end:
        raise Violation(MALFORMED_PACKET, "the packet ends inside a two byte integer")
    return (buffer[position] << 8) | buffer[position + 1], position + 2


def decode_four_bytes(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 4 > end:
        raise Violation(MALFORMED_PACKET, "the packet ends inside a four byte integer")
    return int.from_bytes(buffer[position : position + 4], "big"), position + 4


def decode_varint(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    """A variable byte integer: at most four bytes, and no more than its value needs [MQTT-1.5.5-1]."""
    value = 0
    shift = 0
    while shift < 28:
        if position >= end:
            raise Violation(MALFORMED_PACKET, "the packet ends inside a variable byte integer")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0:
                raise Violation(MALFORMED_PACKET, "a variable byte integer is longer than its value needs")
            return value, position
        shift += 7
    raise Violation(MALFORMED_PACKET, "a variable byte integer has more than four bytes")


def decode_binary(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    length, position = decode_two_bytes(buffer, position, end)
    after = position + length
    if after > end:
        raise Violation(MALFORMED_PACKET, "a length points past the end of the packet")
    return buffer[position:after], after


def decode_string(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    """The bytes of a UTF-8 encoded string, checked [MQTT-1.5.4-1, MQTT-1.5.4-2]."""
    text, position = decode_binary(buffer, position, end)
    fault = find_utf8_fault(text)
    if fault is not None:
        raise Violation(MALFORMED_PACKET, "a string is invalid: " + fault)
    return text, position


def check_string(buffer: bytes, position: i64, end: i64) -> i64:
    """Checks the string at `position` and gives the position after it; builds nothing for short ASCII."""
    if position + 2 > end:
        raise Violation(MALFORMED_PACKET, "the packet ends inside a two byte integer")
    high: i64 = buffer[position]
    low: i64 = buffer[position + 1]
    start: i64 = position + 2
    after: i64 = start + (high << 8) + low
    if after > end:
        raise Violation(MALFORMED_PACKET, "a length points past the end of the packet")
    at: i64 = start
    if after - start <= ASCII_LOOP_MAX:
        while at < after:
            byte: i64 = buffer[at]
            if byte == 0 or byte > 0x7F:
                break
            at += 1
    if at < after:
        fault = find_utf8_fault(buffer[at:after])  # what came before is ASCII, so no character is cut
        if fault is not None:
            raise Violation(MALFORMED_PACKET, "a string is invalid: " + fault)
    return after


def encode_two_bytes(value: int) -> bytes:
    return value.to_bytes(2, "big")


def encode_four_bytes(value: int) -> bytes:
    return value.to_bytes(4, "big")


def encode_varint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value > VARINT_MAX:
        raise ValueError(f"{value} is more than a variable byte integer can hold")
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_binary(value: bytes) -> bytes:
    """Strings and binary data have the same shape; a value over 65,535 bytes is the caller's error."""
    if len(value) > STRING_LENGTH_MAX:
        raise ValueError(f"a field of {len(value)} bytes does not fit, 65535 is the most MQTT can carry")
    return len(value).to_bytes(2, "big") + value
