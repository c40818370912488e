"""Connecting to a broker: TCP, or WebSocket when a path is given; then CONNECT and SUBSCRIBE, each awaited."""

from __future__ import annotations

import os
import socket
from typing import Final

from benchmarks.load.frames import (
    CONNACK,
    SUBACK,
    FrameFault,
    Packet,
    PacketReader,
    encode_connect,
    encode_subscribe,
)
from benchmarks.load.job import Job

HANDSHAKE_TIMEOUT_S: Final = 20.0
KEEP_ALIVE_S: Final = 1200


def open_socket(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=HANDSHAKE_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def wait_packet(connection: socket.socket, first_byte: int) -> Packet:
    """Blocking: the next packet, which must be of this kind; nothing may follow it yet."""
    reader = PacketReader()
    while True:
        chunk = connection.recv(4096)
        if not chunk:
            raise FrameFault("the broker closed the connection during the handshake")
        packets = reader.feed(chunk)
        if packets:
            if packets[0].first_byte != first_byte:
                raise FrameFault(f"packet 0x{packets[0].first_byte:02x} instead of 0x{first_byte:02x}")
            return packets[0]


def connect_client(job: Job, client_id: str) -> socket.socket:
    """A connected, non-blocking MQTT client."""
    connection = open_socket(job.host, job.port)
    connection.sendall(encode_connect(client_id.encode(), job.version, KEEP_ALIVE_S))
    accepted = wait_packet(connection, CONNACK)
    if accepted.body[1] != 0:
        raise FrameFault(f"the broker refused the connection with code {accepted.body[1]}")
    connection.setblocking(False)
    return connection


def subscribe(connection: socket.socket, job: Job, topic_filter: bytes) -> None:
    connection.settimeout(HANDSHAKE_TIMEOUT_S)
    connection.sendall(encode_subscribe(1, topic_filter, job.qos, job.version))
    granted = wait_packet(connection, SUBACK).body[-1]
    if granted != job.qos:
        raise FrameFault(f"the broker granted QoS {granted} instead of {job.qos}")
    connection.setblocking(False)


def encode_upgrade(host: str, port: int, path: str) -> bytes:
    """The HTTP request that opens a WebSocket with the mqtt subprotocol."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: bWlsbHN0cmVhbS1iZW5jaA==\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    ).encode()


def mask_frame(payload: bytes) -> bytes:
    """One masked binary WebSocket frame of less than 126 bytes, as a client must send it."""
    if len(payload) > 125:
        raise FrameFault("only short WebSocket frames are needed here")
    mask = os.urandom(4)
    masked = bytes([byte ^ mask[index % 4] for index, byte in enumerate(payload)])
    return bytes([0x82, 0x80 | len(payload)]) + mask + masked


def unwrap_frames(data: bytes) -> bytes:
    """The payloads of short unmasked frames put together; an incomplete frame at the end is ignored."""
    position = 0
    payload = bytearray()
    while position + 2 <= len(data):
        length = data[position + 1]
        if length > 125:
            raise FrameFault("a WebSocket frame longer than any answer expected here")
        if position + 2 + length > len(data):
            break
        payload += data[position + 2 : position + 2 + length]
        position += 2 + length
    return bytes(payload)
