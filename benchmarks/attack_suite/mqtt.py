"""The attackers' MQTT client: packets of the broker's own encoder over a plain socket, and no rules at all."""

from __future__ import annotations

import socket
from typing import Final

from benchmarks.attack_suite.websocket import WebSocket
from benchmarks.load.frames import Packet as RawPacket
from benchmarks.load.frames import PacketReader
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, Packet, Publish, Subscribe, SubscribeEntry, Will
from millstream.protocols.mqtt.wire.properties import Properties

READ_BYTES: Final = 1 << 18


class Closed(Exception):
    """The broker ended the connection, or refused it."""


def properties(**values: object) -> Properties:
    made = Properties()
    for name, value in values.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


class MqttClient:
    """Version 5, blocking."""

    def __init__(self, connection: socket.socket | WebSocket) -> None:
        self.socket = connection
        self._reader = PacketReader()
        self._waiting: list[RawPacket] = []
        self._packet_id = 0

    def open(
        self,
        client_id: str,
        *,
        expiry_s: int = 0,
        clean_start: bool = True,
        will: Will | None = None,
        user: str | None = None,
        password: bytes | None = None,
        **more: object,
    ) -> MqttClient:
        wanted = properties(session_expiry_interval=expiry_s or None, **more)
        self.send(Connect(5, client_id, clean_start, 0, user, password, will, wanted))
        answer = self.expect(0x20)
        if answer.body[1] != 0:
            raise Closed(f"CONNACK 0x{answer.body[1]:02x}")
        return self

    def send(self, *packets: Packet) -> None:
        self.socket.sendall(encode(*packets))

    def publish(
        self, topic: bytes, payload: bytes = b"", qos: int = 0, retain: bool = False, **more: object
    ) -> None:
        packet_id = self.next_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties(**more)))

    def subscribe(self, *filters: bytes, qos: int = 0) -> None:
        self.send(Subscribe(self.next_id(), [SubscribeEntry(item, qos) for item in filters], properties()))

    def next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    def receive(self) -> RawPacket:
        while not self._waiting:
            data = self.socket.recv(READ_BYTES)
            if not data:
                raise Closed("the broker closed the connection")
            self._waiting = self._reader.feed(data)
        return self._waiting.pop(0)

    def expect(self, first_byte: int) -> RawPacket:
        """The next packet of this kind; others before it are passed over."""
        while True:
            packet = self.receive()
            if packet.first_byte & 0xF0 == first_byte:
                return packet
            if packet.first_byte == 0xE0:
                raise Closed(f"DISCONNECT 0x{packet.body[0] if packet.body else 0:02x}")

    def close(self) -> None:
        self.socket.close()


def encode(*packets: Packet) -> bytes:
    return b"".join([encode_packet(packet, 5) for packet in packets])


def encode_publish(
    topic: bytes, payload: bytes = b"", qos: int = 0, packet_id: int = 0, retain: bool = False, **more: object
) -> bytes:
    return encode_packet(Publish(topic, payload, qos, retain, False, packet_id, properties(**more)), 5)
