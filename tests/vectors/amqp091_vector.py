"""What one row of the AMQP 0-9-1 tables is, and how its bytes are put together by hand.

Only lengths are counted here: our own encoder is not its own judge.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import Method
from millstream.protocols.amqp091.wire.properties import BasicProperties

PRECONDITION = 406
FRAME = 501
SYNTAX = 502
UNKNOWN = 540

FRAME_MAX = 4096  # the limit the vectors are read with


class MethodVector(NamedTuple):
    """The payload of a method frame; `method` or `violation` is set."""

    name: str
    data: bytes
    method: Method | None = None
    violation: int = 0
    canonical: bool = True  # whether our encoder writes the method in exactly these bytes


class TableVector(NamedTuple):
    """A table with its length; without `table` it is malformed."""

    name: str
    data: bytes
    table: FieldTable | None = None
    canonical: bool = True


class PropertiesVector(NamedTuple):
    """What follows the body size in a header frame; without `properties` it is malformed."""

    name: str
    data: bytes
    properties: BasicProperties | None = None


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long(*parts: bytes) -> bytes:
    """A long string, and a table or an array of parts that are written out."""
    inside = b"".join(parts)
    return len(inside).to_bytes(4, "big") + inside


def frame(kind: int, channel: int, *parts: bytes) -> bytes:
    return bytes([kind]) + channel.to_bytes(2, "big") + long(*parts) + b"\xce"


def method(class_id: int, method_id: int, *parts: bytes) -> bytes:
    return class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + b"".join(parts)


def header(body_size: int, properties: bytes, class_id: int = 60) -> bytes:
    return class_id.to_bytes(2, "big") + b"\x00\x00" + body_size.to_bytes(8, "big") + properties


def publish(exchange: bytes, routing_key: bytes, bits: int = 0) -> bytes:
    return method(60, 40, b"\x00\x00", short(exchange), short(routing_key), bytes([bits]))
