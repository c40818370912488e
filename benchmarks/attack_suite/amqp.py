"""The attackers' AMQP client: that of the tests, from an attacker's address, and frames encoded beforehand for floods."""

from __future__ import annotations

import struct
import sys

from benchmarks.attack_suite.target import Target
from benchmarks.load.queue_amqp import (
    BASIC_PUBLISH,
    BODY,
    CHANNEL,
    HEADER,
    PERSISTENT,
    encode_frame,
    encode_method,
    short_string,
)
from benchmarks.suite.brokers import PROJECT

sys.path.append(str(PROJECT / "tests"))  # its raw client is ours

from pika.spec import BasicProperties
from raw_amqp import AmqpClient
from raw_amqp_channel import AmqpChannel, ChannelClosed

__all__ = ["AmqpChannel", "AmqpClient", "ChannelClosed", "encode_publishes", "open_amqp", "open_channel"]

TRANSIENT = b"\x10\x00\x01"


def open_amqp(target: Target) -> AmqpClient:
    return AmqpClient(target.ports["amqp"], target.address).open()


def open_channel(target: Target) -> AmqpChannel:
    return open_amqp(target).channel()


def encode_publishes(
    keys: list[str],
    size: int,
    *,
    exchange: str = "",
    is_durable: bool = False,
    raw_properties: bytes | None = None,
    bytes_wanted: int = 1 << 20,
    channel: int = CHANNEL,
) -> bytes:
    """Publishes over the keys in turn, about as many bytes as wanted, each key at least once."""
    body = encode_frame(BODY, channel, b"\x01" * size) if size else b""
    header = struct.pack(">HHQ", 60, 0, size) + (raw_properties or (PERSISTENT if is_durable else TRANSIENT))
    tail = encode_frame(HEADER, channel, header) + body
    out = bytearray()
    while len(out) < bytes_wanted:
        for key in keys:
            arguments = b"\x00\x00" + short_string(exchange.encode()) + short_string(key.encode()) + b"\x00"
            out += encode_method(channel, BASIC_PUBLISH, arguments) + tail
    return bytes(out)


def encode_properties(**values: object) -> bytes:
    """As they stand in the content header."""
    return b"".join(BasicProperties(**values).encode())
