"""A durable queue over AMQP 0.9.1: persistent messages with publisher confirms, prefetch and one ack per delivery.

Only what the benchmark needs of the protocol: one channel, fixed frames, messages that fit into one body frame.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from benchmarks.load.frames import SEQUENCE_LENGTH, FrameFault
from benchmarks.load.link import HANDSHAKE_TIMEOUT_S, open_socket
from benchmarks.load.queue_parties import (
    Ledger,
    QueueConsumer,
    QueuePublisher,
    read_exactly,
    read_sequence,
)

QUEUE: Final = b"bench"
METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_EXTRA: Final = 8  # type, channel, size and end
FRAME_MAX: Final = 131_072
CHANNEL: Final = 1
PERSISTENT: Final = b"\x10\x00\x02"  # the flag for delivery mode, and mode 2

# class and method, as one number
CONNECTION_START: Final = 0x000A000A
CONNECTION_START_OK: Final = 0x000A000B
CONNECTION_TUNE: Final = 0x000A001E
CONNECTION_TUNE_OK: Final = 0x000A001F
CONNECTION_OPEN: Final = 0x000A0028
CONNECTION_OPEN_OK: Final = 0x000A0029
CONNECTION_CLOSE: Final = 0x000A0032
CHANNEL_OPEN: Final = 0x0014000A
CHANNEL_OPEN_OK: Final = 0x0014000B
CHANNEL_CLOSE: Final = 0x00140028
QUEUE_DECLARE: Final = 0x0032000A
QUEUE_DECLARE_OK: Final = 0x0032000B
BASIC_QOS: Final = 0x003C000A
BASIC_QOS_OK: Final = 0x003C000B
BASIC_CONSUME: Final = 0x003C0014
BASIC_CONSUME_OK: Final = 0x003C0015
BASIC_PUBLISH: Final = 0x003C0028
BASIC_DELIVER: Final = 0x003C003C
BASIC_ACK: Final = 0x003C0050
BASIC_NACK: Final = 0x003C0078
CONFIRM_SELECT: Final = 0x0055000A
CONFIRM_SELECT_OK: Final = 0x0055000B


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([FRAME_END])


def encode_method(channel: int, method: int, arguments: bytes) -> bytes:
    return encode_frame(METHOD, channel, method.to_bytes(4, "big") + arguments)


def short_string(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def encode_table(entries: dict[bytes, bytes]) -> bytes:
    """A field table of long strings."""
    body = bytearray()
    for name, value in entries.items():
        body += short_string(name) + b"S" + len(value).to_bytes(4, "big") + value
    return len(body).to_bytes(4, "big") + bytes(body)


def wait_method(connection: socket.socket, wanted: int) -> bytes:
    """Blocking: the arguments of the next method, which must be this one; nothing behind it is read."""
    while True:
        head = read_exactly(connection, 7)
        kind, _channel, size = struct.unpack(">BHI", head)
        payload = read_exactly(connection, size + 1)[:size]
        if kind == HEARTBEAT:
            continue
        method = int.from_bytes(payload[:4], "big")
        if kind != METHOD or method != wanted:
            raise FrameFault(f"method 0x{method:08x} instead of 0x{wanted:08x}: {describe_close(payload)}")
        return payload[4:]


def describe_close(payload: bytes) -> str:
    """The reply text when the method is a close; else its first bytes."""
    if int.from_bytes(payload[:4], "big") in (CONNECTION_CLOSE, CHANNEL_CLOSE) and len(payload) > 7:
        return payload[7 : 7 + payload[6]].decode(errors="replace")
    return payload[:16].hex(" ")


def connect_amqp(host: str, port: int) -> socket.socket:
    """A connection with one open channel."""
    connection = open_socket(host, port)
    connection.settimeout(HANDSHAKE_TIMEOUT_S)
    connection.sendall(b"AMQP\x00\x00\x09\x01")
    wait_method(connection, CONNECTION_START)
    login = b"\x00guest\x00guest"
    start = (
        encode_table({})
        + short_string(b"PLAIN")
        + len(login).to_bytes(4, "big")
        + login
        + short_string(b"en_US")
    )
    connection.sendall(encode_method(0, CONNECTION_START_OK, start))
    wait_method(connection, CONNECTION_TUNE)
    connection.sendall(encode_method(0, CONNECTION_TUNE_OK, struct.pack(">HIH", 1, FRAME_MAX, 0)))
    connection.sendall(encode_method(0, CONNECTION_OPEN, short_string(b"/") + b"\x00\x00"))
    wait_method(connection, CONNECTION_OPEN_OK)
    connection.sendall(encode_method(CHANNEL, CHANNEL_OPEN, b"\x00"))
    wait_method(connection, CHANNEL_OPEN_OK)
    return connection


def declare_queue(connection: socket.socket, is_stream: bool) -> None:
    """Durable; a stream where the broker has that kind of queue."""
    settings = {b"x-queue-type": b"stream"} if is_stream else {}
    durable = 0x02
    arguments = b"\x00\x00" + short_string(QUEUE) + bytes([durable]) + encode_table(settings)
    connection.sendall(encode_method(CHANNEL, QUEUE_DECLARE, arguments))
    wait_method(connection, QUEUE_DECLARE_OK)


class AmqpPublisher(QueuePublisher):
    """Confirms may come one by one or for all up to a number, and in any order."""

    def __init__(self, connection: socket.socket, payload_bytes: int) -> None:
        super().__init__(connection)
        connection.sendall(encode_method(CHANNEL, CONFIRM_SELECT, b"\x00"))
        wait_method(connection, CONFIRM_SELECT_OK)
        publish = b"\x00\x00" + short_string(b"") + short_string(QUEUE) + b"\x00"
        header = struct.pack(">HHQ", 60, 0, payload_bytes) + PERSISTENT
        self._head = (
            encode_method(CHANNEL, BASIC_PUBLISH, publish)
            + encode_frame(HEADER, CHANNEL, header)
            + struct.pack(">BHI", BODY, CHANNEL, payload_bytes)
        )
        self._tail = b"\x01" * (payload_bytes - SEQUENCE_LENGTH) + bytes([FRAME_END])
        self._open: dict[int, None] = {}

    def encode(self, sequence: int) -> bytes:
        self._open[self.sent + 1] = None
        return self._head + sequence.to_bytes(SEQUENCE_LENGTH, "big") + self._tail

    def take(self, buffer: bytearray, end: int) -> int:
        position = 0
        while end - position >= FRAME_EXTRA:
            size = int.from_bytes(buffer[position + 3 : position + 7], "big")
            next_frame = position + size + FRAME_EXTRA
            if next_frame > end:
                break
            if buffer[position] != HEARTBEAT:
                payload = bytes(buffer[position + 7 : next_frame - 1])
                if buffer[position] != METHOD or int.from_bytes(payload[:4], "big") != BASIC_ACK:
                    raise FrameFault(f"a publish was refused: {describe_close(payload)}")
                self._confirm(int.from_bytes(payload[4:12], "big"), payload[12] & 1 == 1)
            position = next_frame
        return position

    def _confirm(self, tag: int, is_multiple: bool) -> None:
        if not is_multiple:
            if tag not in self._open:
                raise FrameFault(f"publish {tag} was confirmed and is not open")
            del self._open[tag]
            self.confirmed += 1
            return
        for number in list(self._open):
            if number > tag:
                break  # they stand in the order of publishing
            del self._open[number]
            self.confirmed += 1


class AmqpConsumer(QueueConsumer):
    """Walks frame by frame: the method names the delivery, the body has its number."""

    def __init__(self, connection: socket.socket, ledger: Ledger, credit: int, is_stream: bool) -> None:
        super().__init__(connection, ledger)
        connection.sendall(encode_method(CHANNEL, BASIC_QOS, struct.pack(">IHB", 0, credit, 0)))
        wait_method(connection, BASIC_QOS_OK)
        start = {b"x-stream-offset": b"first"} if is_stream else {}
        arguments = b"\x00\x00" + short_string(QUEUE) + short_string(b"c") + b"\x00" + encode_table(start)
        connection.sendall(encode_method(CHANNEL, BASIC_CONSUME, arguments))
        wait_method(connection, BASIC_CONSUME_OK)
        self._tag = b""
        self._settle_head = struct.pack(">BHII", METHOD, CHANNEL, 13, BASIC_ACK)
        self._settle_tail = bytes([0, FRAME_END])

    def take(self, buffer: bytearray, end: int) -> int:
        position = 0
        while end - position >= FRAME_EXTRA:
            next_frame = position + int.from_bytes(buffer[position + 3 : position + 7], "big") + FRAME_EXTRA
            if next_frame > end:
                break
            kind = buffer[position]
            if kind == METHOD:
                payload = bytes(buffer[position + 7 : next_frame - 1])
                if int.from_bytes(payload[:4], "big") != BASIC_DELIVER:
                    raise FrameFault(f"the broker ended the delivery: {describe_close(payload)}")
                tag_start = 5 + payload[4]
                self._tag = payload[tag_start : tag_start + 8]
            elif kind == BODY:
                self._ledger.note(read_sequence(buffer, position + 7))
                self.unsent += self._settle_head + self._tag + self._settle_tail
            position = next_frame
        return position
