"""The few packets the floods need, over blocking sockets."""

from __future__ import annotations

import contextlib
import socket
import struct

from benchmarks.load.queue_amqp import (
    BODY,
    CHANNEL,
    FRAME_MAX,
    HEADER,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    connect_amqp,
    encode_frame,
    encode_method,
    encode_table,
    short_string,
    wait_method,
)

BASIC_PUBLISH = 0x003C0028
BASIC_CONSUME = 0x003C0014
BASIC_CONSUME_OK = 0x003C0015
QUEUE_BIND = 0x00320014
TX_SELECT = 0x005A000A
TX_SELECT_OK = 0x005A000B
CONNECT_TIMEOUT_S = 20.0


class Gone(Exception):
    """The broker closed the connection or does not answer."""


def encode_length(size: int) -> bytes:
    out = bytearray()
    while True:
        size, low = divmod(size, 128)
        out.append(low | 0x80 if size else low)
        if not size:
            return bytes(out)


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + encode_length(len(body)) + body


def text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(2, "big") + data


def publish(topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, *, retain: bool = False) -> bytes:
    number = packet_id.to_bytes(2, "big") if qos else b""
    return packet(0x30 | qos << 1 | int(retain), text(topic) + number + payload)


class Mqtt:
    """An MQTT 3.1.1 client."""

    def __init__(self, port: int, client_id: str, *, clean: bool = True, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(CONNECT_TIMEOUT_S)
        try:
            self.socket.connect(("127.0.0.1", port))
            flags = 2 if clean else 0
            self.socket.sendall(packet(0x10, text("MQTT") + bytes([4, flags, 0, 0]) + text(client_id)))
            if self.read(4)[3] != 0:
                raise Gone("refused")
        except OSError as error:
            self.socket.close()
            raise Gone(str(error)) from None

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except OSError as error:
                raise Gone(str(error)) from None
            if not part:
                raise Gone("closed")
            data += part
        return data

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Gone(str(error)) from None

    def subscribe(self, topic: str, qos: int) -> None:
        self.send(packet(0x82, b"\x00\x01" + text(topic) + bytes([qos])))
        self.read(5)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


class Amqp:
    """One connection with one channel."""

    def __init__(self, port: int) -> None:
        try:
            self.socket = connect_amqp("127.0.0.1", port)
        except OSError as error:
            raise Gone(str(error)) from None

    def declare(self, queue: bytes) -> None:
        """Transient: it lives in memory."""
        arguments = b"\x00\x00" + short_string(queue) + b"\x00" + encode_table({})
        self.socket.sendall(encode_method(CHANNEL, QUEUE_DECLARE, arguments))
        wait_method(self.socket, QUEUE_DECLARE_OK)

    def consume(self, queue: bytes) -> None:
        """Without acknowledgements."""
        arguments = b"\x00\x00" + short_string(queue) + short_string(b"c") + b"\x02" + encode_table({})
        self.socket.sendall(encode_method(CHANNEL, BASIC_CONSUME, arguments))
        wait_method(self.socket, BASIC_CONSUME_OK)

    def begin_transactions(self) -> None:
        self.socket.sendall(encode_method(CHANNEL, TX_SELECT, b""))
        wait_method(self.socket, TX_SELECT_OK)

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Gone(str(error)) from None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def declare_bound(name: str) -> bytes:
    """An exclusive queue, bound to three keys; nothing of it is waited for."""
    queue = short_string(name.encode())
    arguments = encode_table({})
    data = encode_method(CHANNEL, QUEUE_DECLARE, b"\x00\x00" + queue + b"\x04" + arguments)
    for key in ("a", "b.*", "c.#"):
        binding = queue + short_string(b"amq.topic") + short_string(f"{name}.{key}".encode()) + b"\x00"
        data += encode_method(CHANNEL, QUEUE_BIND, b"\x00\x00" + binding + arguments)
    return data


def amqp_publish(queue: bytes, body: bytes, announced: int = -1) -> bytes:
    """To a queue by the default exchange. `announced`: the size in the header, if the body is not whole."""
    size = len(body) if announced < 0 else announced
    method = encode_method(
        CHANNEL, BASIC_PUBLISH, b"\x00\x00" + short_string(b"") + short_string(queue) + b"\x00"
    )
    header = encode_frame(HEADER, CHANNEL, struct.pack(">HHQ", 60, 0, size) + b"\x00\x00")
    piece = FRAME_MAX - 8
    bodies = [encode_frame(BODY, CHANNEL, body[at : at + piece]) for at in range(0, len(body), piece)]
    return method + header + b"".join(bodies)
