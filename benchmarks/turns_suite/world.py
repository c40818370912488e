"""What an input is made with: clients of both protocols, and batches of frames encoded beforehand."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pika import frame as frames
from pika.spec import Basic, BasicProperties, Exchange, Queue

from benchmarks.attack_suite.amqp import AmqpChannel, AmqpClient, encode_publishes
from benchmarks.attack_suite.mqtt import MqttClient
from benchmarks.load.frames import SUBACK

TIMEOUT_S = 120.0
FILTERS_PER_PACKET = 500
READ_BYTES = 1 << 20


class World:
    def __init__(self, ports: dict[str, int], folder: Path, scale: float) -> None:
        self.ports = ports
        self.folder = folder
        self.scale = scale
        self._numbers = 0
        self._open: list[Any] = []

    def count(self, number: int) -> int:
        return max(1, int(number * self.scale))

    def mqtt(self, name: str = "", **options: Any) -> MqttClient:
        self._numbers += 1
        opened = socket.create_connection(("127.0.0.1", self.ports["mqtt"]), TIMEOUT_S)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = MqttClient(opened).open(name or f"turns-{self._numbers}", **options)
        self._open.append(client)
        return client

    def amqp(self) -> AmqpChannel:
        client = AmqpClient(self.ports["amqp"]).open()
        client.socket.settimeout(TIMEOUT_S)
        self._open.append(client)
        return client.channel()

    def close(self) -> None:
        for client in self._open:
            client.socket.close()


def subscribe_all(client: MqttClient, filters: Iterable[bytes], qos: int = 0) -> None:
    waiting = list(filters)
    for at in range(0, len(waiting), FILTERS_PER_PACKET):
        client.subscribe(*waiting[at : at + FILTERS_PER_PACKET], qos=qos)
        client.expect(SUBACK)


def ping(client: MqttClient) -> None:
    """Everything before it has been acted on."""
    client.socket.sendall(b"\xc0\x00")
    client.expect(0xD0)


def send_all(channel: AmqpChannel, batch: bytes) -> None:
    """Reads meanwhile, and throws away what comes: pumping frames through the codec would be the slower part."""
    wire = channel.client.socket
    wire.setblocking(False)
    view = memoryview(batch)
    while view:
        readable, writable, _ = select.select([wire], [wire], [], TIMEOUT_S)
        if readable:
            channel.client._unread += wire.recv(READ_BYTES)
        if writable:
            view = view[wire.send(view) :]
    wire.settimeout(TIMEOUT_S)


def sync(channel: AmqpChannel) -> None:
    channel.sync()


def method(channel: AmqpChannel, spec_method: Any) -> bytes:
    return bytes(frames.Method(channel.number, spec_method).marshal())


def declare_queues(channel: AmqpChannel, names: Iterable[str], **options: Any) -> None:
    send_all(
        channel,
        b"".join(method(channel, Queue.Declare(queue=name, nowait=True, **options)) for name in names),
    )
    sync(channel)


def bind_queues(
    channel: AmqpChannel, bindings: Iterable[tuple[str, str, str]], arguments: Any = None
) -> None:
    """(queue, exchange, key) each."""
    send_all(
        channel,
        b"".join(
            method(
                channel,
                Queue.Bind(queue=queue, exchange=exchange, routing_key=key, nowait=True, arguments=arguments),
            )
            for queue, exchange, key in bindings
        ),
    )
    sync(channel)


def bind_exchanges(channel: AmqpChannel, bindings: Iterable[tuple[str, str, str]]) -> None:
    """(target, source, key) each."""
    send_all(
        channel,
        b"".join(
            method(channel, Exchange.Bind(destination=target, source=source, routing_key=key, nowait=True))
            for target, source, key in bindings
        ),
    )
    sync(channel)


def fill(channel: AmqpChannel, queue: str, count: int, size: int = 16) -> None:
    one = encode_publishes([queue], size, bytes_wanted=1, channel=channel.number)
    for done in range(0, count, 10_000):
        send_all(channel, one * min(10_000, count - done))
    sync(channel)


def take_all(channel: AmqpChannel, queue: str, count: int) -> int:
    """Have so many deliveries open; the last tag. Counts frames by their first bytes instead of decoding them."""
    channel.send(Basic.Consume(queue=queue, consumer_tag="turns"))
    wire = channel.client.socket
    wire.settimeout(TIMEOUT_S)
    data = bytearray(channel.client._unread)
    channel.client._unread = b""
    found, at = 0, 0
    while found < count:
        while len(data) - at >= 8:
            size = struct.unpack_from(">I", data, at + 3)[0]
            if len(data) - at < size + 8:
                break
            if data[at] == 1 and data[at + 7 : at + 11] == b"\x00\x3c\x00\x3c":
                found += 1
            at += size + 8
        if found < count:
            if at > READ_BYTES:
                del data[:at]
                at = 0
            data += wire.recv(READ_BYTES)
    time.sleep(0.1)
    channel.client._unread = bytes(data[at:])
    return found


def properties(**values: Any) -> bytes:
    return b"".join(BasicProperties(**values).encode())
