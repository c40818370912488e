"""What one row of the packet tables is, and how its bytes are put together by hand.

Only lengths are counted here: our own encoder is not its own judge.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.protocols.mqtt.wire.packets import Packet
from millstream.protocols.mqtt.wire.properties import Properties

MALFORMED = 0x81
PROTOCOL = 0x82
VERSION = 0x84
ALIAS = 0x94
TOO_LARGE = 0x95

SIZE_MAX = 2048  # the packet size limit the vectors are decoded with


class Vector(NamedTuple):
    """`packet` or `violation` is set; neither means that the decoder must wait for more bytes."""

    name: str
    version: int
    data: bytes
    packet: Packet | None = None
    violation: int | None = None
    canonical: bool = True  # whether our encoder writes the packet in exactly these bytes


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def frame(first_byte: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([first_byte]) + varint(len(body)) + body


def text(value: bytes) -> bytes:
    return bytes([len(value) >> 8, len(value) & 0xFF]) + value


def block(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(len(body)) + body


def props(**values: object) -> Properties:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def good(name: str, version: int, data: bytes, packet: Packet, *, canonical: bool = True) -> Vector:
    return Vector(name, version, data, packet, None, canonical)


def bad(name: str, version: int, data: bytes, violation: int) -> Vector:
    return Vector(name, version, data, None, violation)


USER = b"\x26" + text(b"k") + text(b"v")
