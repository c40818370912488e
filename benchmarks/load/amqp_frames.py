"""Transient messages over AMQP 0.9.1: encoded once, found in the deliveries by stride, and proven by a complete parser.

Every delivery of one scenario has the same length: the same tag of the consumer, the same exchange and key, the same
properties, and a payload of one size.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from benchmarks.load.frames import SEQUENCE_LENGTH, FrameFault, encode_payload
from benchmarks.load.peers import FILL, Shape
from benchmarks.load.queue_amqp import (
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_DELIVER,
    BASIC_PUBLISH,
    BODY,
    CHANNEL,
    FRAME_END,
    FRAME_EXTRA,
    HEADER,
    HEARTBEAT,
    METHOD,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    connect_amqp,
    describe_close,
    encode_frame,
    encode_method,
    encode_table,
    short_string,
    wait_method,
)

TRANSIENT: Final = b"\x10\x00\x01"  # the flag for delivery mode, and mode 1
CONSUMER: Final = b"c"
AUTO_DELETE: Final = 0x08
NO_ACK: Final = 0x02
HEADER_SIZE: Final = 12  # class, weight and size of the body


def declare_transient(connection: socket.socket, queue: bytes) -> None:
    """In memory, and gone with its last consumer."""
    arguments = b"\x00\x00" + short_string(queue) + bytes([AUTO_DELETE]) + encode_table({})
    connection.sendall(encode_method(CHANNEL, QUEUE_DECLARE, arguments))
    wait_method(connection, QUEUE_DECLARE_OK)


def open_consumer(host: str, port: int, queue: bytes) -> socket.socket:
    """Not acknowledging; the socket does not block."""
    connection = connect_amqp(host, port)
    declare_transient(connection, queue)
    arguments = (
        b"\x00\x00" + short_string(queue) + short_string(CONSUMER) + bytes([NO_ACK]) + encode_table({})
    )
    connection.sendall(encode_method(CHANNEL, BASIC_CONSUME, arguments))
    wait_method(connection, BASIC_CONSUME_OK)
    connection.setblocking(False)
    return connection


def open_publisher(host: str, port: int) -> socket.socket:
    connection = connect_amqp(host, port)
    connection.setblocking(False)
    return connection


def encode_transient(queue: bytes, payload: bytes) -> bytes:
    """Publish, header and body in a row."""
    publish = b"\x00\x00" + short_string(b"") + short_string(queue) + b"\x00"
    header = struct.pack(">HHQ", 60, 0, len(payload)) + TRANSIENT
    return (
        encode_method(CHANNEL, BASIC_PUBLISH, publish)
        + encode_frame(HEADER, CHANNEL, header)
        + encode_frame(BODY, CHANNEL, payload)
    )


def encode_transient_cycle(queue: bytes, count: int, size: int, publisher: int) -> bytes:
    frames = bytearray()
    for index in range(count):
        frames += encode_transient(queue, encode_payload((publisher << 32) | index, size))
    return bytes(frames)


def delivery_bytes(queue: bytes, size: int) -> int:
    """The length of one delivery: method, header and body."""
    method = 4 + 1 + len(CONSUMER) + 8 + 1 + 1 + 1 + len(queue)
    return method + HEADER_SIZE + len(TRANSIENT) + size + 3 * FRAME_EXTRA


class AmqpShape(Shape):
    """How each delivery looks up to its tag, and how it ends."""

    def __init__(self, queue: bytes, size: int) -> None:
        self.stride = delivery_bytes(queue, size)
        self.first_byte = METHOD
        self.qos = 0
        self.id_offset = 0
        method_bytes = 4 + 1 + len(CONSUMER) + 8 + 1 + 1 + 1 + len(queue)
        self.head = (
            struct.pack(">BHI", METHOD, CHANNEL, method_bytes)
            + BASIC_DELIVER.to_bytes(4, "big")
            + short_string(CONSUMER)
        )

    def check(self, buffer: bytearray, start: int, count: int) -> None:
        """First and last delivery of a run."""
        for place in (start, start + (count - 1) * self.stride):
            end = place + self.stride
            is_right = buffer[place : place + len(self.head)] == self.head
            if not is_right or buffer[end - 1] != FRAME_END or buffer[end - 2] != FILL:
                raise FrameFault(f"an unexpected delivery: {bytes(buffer[place : place + 24]).hex(' ')}")


class DeliveryReader:
    """Cuts any stream of frames, however the bytes arrive, and gives the bodies of the deliveries in it."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        self._unread += chunk
        bodies: list[bytes] = []
        position = 0
        while len(self._unread) - position >= FRAME_EXTRA:
            size = int.from_bytes(self._unread[position + 3 : position + 7], "big")
            end = position + size + FRAME_EXTRA
            if end > len(self._unread):
                break
            kind = self._unread[position]
            payload = bytes(self._unread[position + 7 : end - 1])
            if self._unread[end - 1] != FRAME_END:
                raise FrameFault("a frame that does not end where it says")
            if kind == METHOD and int.from_bytes(payload[:4], "big") != BASIC_DELIVER:
                raise FrameFault(f"the broker ended the delivery: {describe_close(payload)}")
            if kind == BODY:
                bodies.append(payload)
            elif kind not in (METHOD, HEADER, HEARTBEAT):
                raise FrameFault(f"a frame of the unknown kind {kind}")
            position = end
        del self._unread[:position]
        return bodies

    def unread_length(self) -> int:
        return len(self._unread)


def sequence_of(body: bytes) -> int:
    return int.from_bytes(body[:SEQUENCE_LENGTH], "big")
