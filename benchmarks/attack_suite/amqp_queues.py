"""Attacks on queues over AMQP: floods of publishes, bodies that are too large or never whole, transactions."""

from __future__ import annotations

import struct

from benchmarks.attack_suite.amqp import (
    AmqpChannel,
    encode_properties,
    encode_publishes,
    open_amqp,
    open_channel,
)
from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target
from benchmarks.load.queue_amqp import (
    BASIC_PUBLISH,
    BODY,
    CHANNEL,
    HEADER,
    encode_frame,
    encode_method,
    short_string,
)

PUBLISHERS = 20
QUEUE = "attack-queue"
LARGEST = 16 << 20  # bytes of a body that the broker takes by default
TX_COMMIT = 0x005A0014
TX_ROLLBACK = 0x005A001E


def open_publishers(target: Target, count: int = PUBLISHERS) -> list[AmqpChannel]:
    return [open_channel(target) for _ in range(target.count(count))]


def open_queue(target: Target, count: int = PUBLISHERS, *, durable: bool = False) -> list[AmqpChannel]:
    """The queue, and so many channels to it."""
    channels = open_publishers(target, count)
    channels[0].declare(QUEUE, durable=durable)
    return channels


def consume_from(target: Target, names: list[str]) -> AmqpChannel:
    """Transient queues that go with their consumer, which takes whatever comes."""
    consumer = open_channel(target)
    for name in names:
        consumer.declare(name, auto_delete=True)
        consumer.consume(name, no_ack=True)
    return consumer


def flood(target: Target, publishers: list[AmqpChannel], *chunks: bytes, **options: bool) -> Facts:
    return pump(target, [channel.client.socket for channel in publishers], chunks, **options)  # type: ignore[arg-type]


def delete_queue(target: Target) -> None:
    open_channel(target).delete(QUEUE)


@attack(
    "amqp-empty-flood",
    "20 publishers of empty messages, one transient queue, an auto-ack consumer that reads slowly",
    finding="C1",
)
def empty_flood(target: Target) -> Facts:
    consume_from(target, [QUEUE])
    return flood(target, open_publishers(target), encode_publishes([QUEUE], 0))


@attack("amqp-empty-flood-50", "20 publishers of empty messages into 50 transient queues", finding="C1")
def empty_flood_50(target: Target) -> Facts:
    names = [f"{QUEUE}-{number}" for number in range(50)]
    consume_from(target, names)
    return flood(target, open_publishers(target), encode_publishes(names, 0))


@attack(
    "amqp-durable-flood",
    "20 publishers of durable messages of 100 bytes without confirms, one durable queue",
    finding="C1",
    clean=delete_queue,
)
def durable_flood(target: Target) -> Facts:
    publishers = open_queue(target, durable=True)
    return flood(target, publishers, encode_publishes([QUEUE], 100, is_durable=True))


@attack(
    "amqp-transient-fill",
    "4 publishers of 1 kB messages into a transient queue without a consumer",
    finding="C1, F7",
    clean=delete_queue,
)
def transient_fill(target: Target) -> Facts:
    publishers = open_queue(target, 4)
    return flood(target, publishers, encode_publishes([QUEUE], 1000))


@attack(
    "amqp-big-bodies",
    "8 publishers of messages as large as may be (16 MiB) into a transient queue",
    finding="F7",
    clean=delete_queue,
)
def big_bodies(target: Target) -> Facts:
    publishers = open_queue(target, 8)
    return flood(target, publishers, encode_content(QUEUE, LARGEST, LARGEST))


@attack(
    "amqp-unfinished-bodies",
    "200 connections that announce 16 MiB and send all but a part of it, slowly",
    finding="F7",
)
def unfinished_bodies(target: Target) -> Facts:
    publishers = open_publishers(target, 200)
    return pump(
        target,
        [channel.client.socket for channel in publishers],
        [encode_content(QUEUE, LARGEST, LARGEST - 1_000_000)],
        rounds=1,
    )


def encode_content(queue: str, announced: int, sent: int) -> bytes:
    """A publish whose body may be shorter than its header says."""
    piece = encode_frame(BODY, CHANNEL, bytes(131_072 - 8))
    arguments = b"\x00\x00\x00" + short_string(queue.encode()) + b"\x00"
    frames = [
        encode_method(CHANNEL, BASIC_PUBLISH, arguments),
        encode_frame(HEADER, CHANNEL, struct.pack(">HHQ", 60, 0, announced) + b"\x00\x00"),
        piece * (sent // (131_072 - 8)),
    ]
    rest = sent % (131_072 - 8)
    if rest:
        frames.append(encode_frame(BODY, CHANNEL, bytes(rest)))
    return b"".join(frames)


@attack(
    "amqp-headers-large",
    "8 publishers of messages with 100 kB of nested headers",
    finding="F7",
    clean=delete_queue,
)
def headers_large(target: Target) -> Facts:
    publishers = open_queue(target, 8)
    nested: dict[str, object] = {"end": 1}
    for _ in range(20):
        nested = {"in": nested}
    headers = {f"header-{number}": "x" * 50 for number in range(1500)}
    raw = encode_properties(headers={**headers, "nested": nested})
    return flood(target, publishers, encode_publishes([QUEUE], 10, raw_properties=raw))


@attack(
    "amqp-transactions-open",
    "8 publishers that never commit their transactions",
    finding="F7",
    clean=delete_queue,
)
def transactions_open(target: Target) -> Facts:
    publishers = open_queue(target, 8)
    for channel in publishers:
        channel.tx_select()
    return flood(target, publishers, encode_publishes([QUEUE], 1000))


@attack(
    "amqp-transactions-large",
    "8 publishers that commit or roll back 20,000 publishes at once",
    clean=delete_queue,
)
def transactions_large(target: Target) -> Facts:
    publishers = open_queue(target, 8, durable=True)
    for channel in publishers:
        channel.tx_select()
    publish = encode_publishes([QUEUE], 20, is_durable=True, bytes_wanted=1)
    ends = [encode_method(CHANNEL, end, b"") for end in (TX_COMMIT, TX_ROLLBACK)]
    chunks = [publish * 20_000 + ends[number % 2] for number in range(8)]
    return flood(target, publishers, *chunks)


@attack(
    "amqp-mandatory-returns", "20 publishers of messages that come back, and nobody reads them", finding="F7"
)
def mandatory_returns(target: Target) -> Facts:
    publishers = open_publishers(target)
    body = encode_frame(BODY, CHANNEL, b"x" * 1000)
    head = encode_frame(HEADER, CHANNEL, struct.pack(">HHQ", 60, 0, 1000) + b"\x00\x00")
    method = encode_method(
        CHANNEL, BASIC_PUBLISH, b"\x00\x00\x00" + short_string(b"attack-nowhere") + b"\x01"
    )
    return flood(target, publishers, (method + head + body) * 500, must_read=False)


@attack("amqp-heartbeats", "20 connections that send heartbeats at full speed")
def heartbeats(target: Target) -> Facts:
    clients = [open_amqp(target) for _ in range(20)]
    return pump(target, [client.socket for client in clients], [encode_frame(8, 0, b"") * 50_000])


@attack("amqp-channels", "20 connections that open and close 2,000 channels each, without a pause")
def channels(target: Target) -> Facts:
    clients = [open_amqp(target) for _ in range(20)]
    opens = b"".join(encode_method(number, 0x0014000A, b"\x00") for number in range(1, 2001))
    close = struct.pack(">H", 200) + b"\x00" + bytes(4)
    closes = b"".join(encode_method(number, 0x00140028, close) for number in range(1, 2001))
    return pump(target, [client.socket for client in clients], [opens + closes])
