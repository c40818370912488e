"""What has to be there before an attack or a costly input, made in batches: queues, bindings, messages, filters.

Of `bench attack` and `bench turns` alike. Every function returns when the broker has dealt with all of it.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterable
from typing import Any, Final

from pika import frame as frames
from pika.spec import Basic, Exchange, Queue

from benchmarks.attack_suite.amqp import AmqpChannel, encode_publishes
from benchmarks.attack_suite.mqtt import MqttClient
from benchmarks.load.frames import SUBACK

TIMEOUT_S: Final = 120.0
READ_BYTES: Final = 1 << 20
BATCH_BYTES: Final = 1 << 18
FILTERS_PER_PACKET: Final = 500
MESSAGES_PER_BATCH: Final = 10_000
PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = 0xD0
DELIVER: Final = b"\x00\x3c\x00\x3c"  # class and method of basic.deliver

# ------------------------------------------------------------------------ MQTT


def ping(client: MqttClient) -> None:
    """Everything before it has been acted on."""
    client.socket.sendall(PINGREQ)
    client.expect(PINGRESP)


def publish_all(client: MqttClient, publishes: Iterable[bytes]) -> None:
    """Encoded ones, many in a write."""
    batch = bytearray()
    for publish in publishes:
        batch += publish
        if len(batch) > BATCH_BYTES:
            client.socket.sendall(batch)
            batch.clear()
    client.socket.sendall(batch)
    ping(client)


def subscribe_all(client: MqttClient, filters: Iterable[bytes], qos: int = 0) -> int:
    """In packets of a moderate size, one after the other; how many were granted."""
    waiting = list(filters)
    granted = 0
    for at in range(0, len(waiting), FILTERS_PER_PACKET):
        client.subscribe(*waiting[at : at + FILTERS_PER_PACKET], qos=qos)
        granted += sum(code < 0x80 for code in client.expect(SUBACK).body[3:])
    return granted


def spell_filter(number: int) -> bytes:
    """Thirteen levels that are `a` or `+`, then `#`: all of them match the same topics."""
    return b"/".join([b"+" if number >> bit & 1 else b"a" for bit in range(13)]) + b"/#"


# ------------------------------------------------------------------------ AMQP


def method(channel: AmqpChannel, spec_method: Any) -> bytes:
    return bytes(frames.Method(channel.number, spec_method).marshal())


def send_all(channel: AmqpChannel, batch: bytes) -> None:
    """Reads meanwhile, and keeps what comes unread: pumping frames through the codec would be the slower part."""
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


def say_all(channel: AmqpChannel, words: Iterable[Any]) -> None:
    """Methods that are not answered, until the broker has acted on all of them."""
    send_all(channel, b"".join(method(channel, word) for word in words))
    channel.sync()


def declare_queues(channel: AmqpChannel, names: Iterable[str], **options: Any) -> None:
    say_all(channel, (Queue.Declare(queue=name, nowait=True, **options) for name in names))


def bind_queues(channel: AmqpChannel, bindings: Iterable[tuple[str, str, str]]) -> None:
    """(queue, exchange, key) each."""
    binds = (
        Queue.Bind(queue=queue, exchange=exchange, routing_key=key, nowait=True)
        for queue, exchange, key in bindings
    )
    say_all(channel, binds)


def bind_headers(channel: AmqpChannel, queue: str, exchange: str, tables: Iterable[dict[str, Any]]) -> None:
    binds = (
        Queue.Bind(queue=queue, exchange=exchange, routing_key="", nowait=True, arguments=table)
        for table in tables
    )
    say_all(channel, binds)


def bind_exchanges(channel: AmqpChannel, bindings: Iterable[tuple[str, str, str]]) -> None:
    """(target, source, key) each."""
    binds = (
        Exchange.Bind(destination=target, source=source, routing_key=key, nowait=True)
        for target, source, key in bindings
    )
    say_all(channel, binds)


def fill(
    channel: AmqpChannel,
    queue: str,
    count: int,
    size: int = 16,
    *,
    is_durable: bool = False,
    raw_properties: bytes | None = None,
) -> None:
    """A queue that was declared gets so many messages."""
    one = encode_publishes(
        [queue],
        size,
        is_durable=is_durable,
        raw_properties=raw_properties,
        bytes_wanted=1,
        channel=channel.number,
    )
    for done in range(0, count, MESSAGES_PER_BATCH):
        send_all(channel, one * min(MESSAGES_PER_BATCH, count - done))
    channel.sync()


def take_all(channel: AmqpChannel, queue: str, count: int) -> int:
    """Have so many deliveries open; the last tag."""
    channel.send(Basic.Consume(queue=queue, consumer_tag="taker"))
    return read_deliveries(channel, count)


def read_deliveries(channel: AmqpChannel, count: int) -> int:
    """So many, of all channels of the connection. Counts frames by their first bytes instead of decoding them."""
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
            found += data[at] == 1 and data[at + 7 : at + 11] == DELIVER
            at += size + 8
        if found < count:
            if at > READ_BYTES:
                del data[:at]
                at = 0
            data += read_some(wire)
    channel.client._unread = bytes(data[at:])
    return found


def read_some(wire: socket.socket) -> bytes:
    data = wire.recv(READ_BYTES)
    if not data:
        raise ConnectionError("the broker closed the connection")
    return data
