"""A work queue, a stream or a persistent session over MQTT 3.1.1: QoS 1 in, QoS 1 out, PUBACK settles.

Millstream takes a queue's messages at `$queue/<name>`; the group of a 3.1.1 consumer is its client id up to the first
hyphen, so all `readers-<n>` share one.
"""

from __future__ import annotations

import socket
from typing import Final

from benchmarks.load.frames import (
    ANSWER_LENGTH,
    CONNECT,
    PUBACK,
    PUBLISH,
    SEQUENCE_LENGTH,
    SUBACK,
    FrameFault,
    answer_run,
    count_run,
    encode_length,
    encode_packet,
    encode_string,
    encode_subscribe,
)
from benchmarks.load.link import HANDSHAKE_TIMEOUT_S, KEEP_ALIVE_S, open_socket
from benchmarks.load.queue_parties import (
    Ledger,
    QueueConsumer,
    QueuePublisher,
    read_exactly,
    read_sequence,
)

QUEUE_TOPIC: Final = b"$queue/bench"
SESSION_TOPIC: Final = b"bench/session"
PACKET_IDS: Final = 65_535
DELIVERY: Final = PUBLISH | 0x02
REPEATED_DELIVERY: Final = DELIVERY | 0x08
CLEAN: Final = 0x02
CONNACK_BYTES: Final = 4
SUBACK_BYTES: Final = 5


def connect_mqtt(host: str, port: int, client_id: str, is_clean: bool) -> socket.socket:
    connection = open_socket(host, port)
    connection.settimeout(HANDSHAKE_TIMEOUT_S)
    head = encode_string(b"MQTT") + bytes([4, CLEAN if is_clean else 0]) + KEEP_ALIVE_S.to_bytes(2, "big")
    connection.sendall(encode_packet(CONNECT, head + encode_string(client_id.encode())))
    answer = read_exactly(connection, CONNACK_BYTES)
    if answer[0] != 0x20 or answer[3] != 0:
        raise FrameFault(f"the broker refused the connection: {answer.hex(' ')}")
    return connection


def check_subscribed(answer: bytes) -> None:
    if answer[0] != SUBACK or answer[4] != 1:
        raise FrameFault(f"the broker refused the subscription: {answer.hex(' ')}")


class MqttPublisher(QueuePublisher):
    """Packet ids run from 1 to 65,535 and round again; confirms come in the order of the publishes."""

    def __init__(self, connection: socket.socket, topic: bytes, payload_bytes: int) -> None:
        super().__init__(connection)
        rest = len(encode_string(topic)) + 2 + payload_bytes
        self._head = bytes([DELIVERY]) + encode_length(rest) + encode_string(topic)
        self._tail = b"\x01" * (payload_bytes - SEQUENCE_LENGTH)

    def encode(self, sequence: int) -> bytes:
        packet_id = self.sent % PACKET_IDS + 1
        return (
            self._head + packet_id.to_bytes(2, "big") + sequence.to_bytes(SEQUENCE_LENGTH, "big") + self._tail
        )

    def take(self, buffer: bytearray, end: int) -> int:
        position = 0
        while end - position >= ANSWER_LENGTH:
            expected = self.confirmed % PACKET_IDS + 1
            found = (buffer[position + 2] << 8) | buffer[position + 3]
            if buffer[position] != PUBACK or found != expected:
                raise FrameFault(
                    f"confirms out of order or refused: {bytes(buffer[position : position + 8]).hex(' ')}"
                )
            self.confirmed += 1
            position += ANSWER_LENGTH
        return position


class MqttConsumer(QueueConsumer):
    """All deliveries of a scenario have one length, so they are found by stride and settled in batches."""

    def __init__(self, connection: socket.socket, ledger: Ledger, topic: bytes, payload_bytes: int) -> None:
        super().__init__(connection, ledger)
        rest = len(encode_string(topic)) + 2 + payload_bytes
        self._head = encode_length(rest) + encode_string(topic)  # behind the first byte
        self._stride = 1 + len(encode_length(rest)) + rest
        self._id_offset = 1 + len(self._head)

    def subscribe(self, topic_filter: bytes) -> None:
        """Deliveries may come before the answer [MQTT3-3.8.4], so it is awaited among them."""
        self.unsent += encode_subscribe(1, topic_filter, 1, 4)

    def take(self, buffer: bytearray, end: int) -> int:
        position = 0
        while end - position >= SUBACK_BYTES:
            first_byte = buffer[position]
            if first_byte == SUBACK:
                check_subscribed(bytes(buffer[position : position + SUBACK_BYTES]))
                position += SUBACK_BYTES
                continue
            if first_byte not in (DELIVERY, REPEATED_DELIVERY):
                raise FrameFault(f"an unexpected packet: {bytes(buffer[position : position + 16]).hex(' ')}")
            run = count_run(buffer, position, end, self._stride, first_byte)
            if run == 0:
                break
            self._settle_run(buffer, position, run)
            position += run * self._stride
        return position

    def _settle_run(self, buffer: bytearray, position: int, run: int) -> None:
        stride = self._stride
        for place in range(position, position + run * stride, stride):
            if buffer[place + 1 : place + self._id_offset] != self._head:
                raise FrameFault(f"an unexpected delivery: {bytes(buffer[place : place + 24]).hex(' ')}")
            self._ledger.note(read_sequence(buffer, place + self._id_offset + 2))
        self.unsent += answer_run(buffer, position, run, stride, self._id_offset, PUBACK)


def connect_session(host: str, port: int) -> socket.socket:
    """The persistent session of the session scenarios, subscribed; what follows the answers is left unread."""
    connection = connect_mqtt(host, port, "bench-session", False)
    connection.sendall(encode_subscribe(1, SESSION_TOPIC, 1, 4))
    check_subscribed(read_exactly(connection, SUBACK_BYTES))
    return connection


def return_to_session(host: str, port: int) -> socket.socket:
    """Its client comes back and sends nothing but CONNECT: everything kept for it follows."""
    return connect_mqtt(host, port, "bench-session", False)


def leave_session(connection: socket.socket) -> None:
    connection.sendall(b"\xe0\x00")
    connection.close()
