"""Attacks by consumers over AMQP: what they take, give back, purge and do not read."""

from __future__ import annotations

import struct

from benchmarks.attack_suite.amqp import AmqpChannel, encode_publishes, open_channel
from benchmarks.attack_suite.amqp_queues import (
    PUBLISHERS,
    QUEUE,
    delete_queue,
    flood,
    open_publishers,
    open_queue,
)
from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.preparation import fill
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target
from benchmarks.load.queue_amqp import CHANNEL, encode_method, encode_table, short_string

MESSAGES = 200_000
BASIC_NACK = 0x003C0078
BASIC_GET = 0x003C0046
BASIC_CONSUME = 0x003C0014
BASIC_CANCEL = 0x003C001E
QUEUE_PURGE = 0x0032001E


def fill_queue(target: Target) -> None:
    channel = open_queue(target, 1)[0]
    fill(channel, QUEUE, int(MESSAGES * target.scale), 20)


def open_consumers(target: Target, count: int, prefetch: int) -> list[AmqpChannel]:
    channels = open_publishers(target, count)
    for channel in channels:
        channel.qos(prefetch)
        channel.consume(QUEUE)
    return channels


@attack(
    "amqp-nack-loop",
    "4 consumers that take 10,000 messages at a time and give them all back at once",
    prepare=fill_queue,
    clean=delete_queue,
)
def nack_loop(target: Target) -> Facts:
    channels = open_consumers(target, 4, 10_000)
    nack = encode_method(CHANNEL, BASIC_NACK, struct.pack(">QB", 0, 3))
    sockets = [channel.client.socket for channel in channels]
    rounds = 0
    while not target.is_over():
        facts = pump(target, sockets, [nack], rounds=50)
        rounds += 1
        if facts["closed"]:
            break
    return {"rounds": rounds}


@attack(
    "amqp-reject-loop",
    "20 consumers with a prefetch of one that give back whatever they get",
    prepare=fill_queue,
    clean=delete_queue,
)
def reject_loop(target: Target) -> Facts:
    channels = open_consumers(target, PUBLISHERS, 1)
    nack = encode_method(CHANNEL, BASIC_NACK, struct.pack(">QB", 0, 3))
    return pump(target, [channel.client.socket for channel in channels], [nack * 100])


@attack(
    "amqp-unacked-cut",
    "consumers without a prefetch limit that take 200,000 messages and are cut, again and again",
    prepare=fill_queue,
    clean=delete_queue,
)
def unacked_cut(target: Target) -> Facts:
    rounds = 0
    while not target.is_over():
        channel = open_channel(target)
        channel.consume(QUEUE)
        left = int(MESSAGES * target.scale) * 40
        while left > 0 and not target.is_over():
            data = channel.client.socket.recv(1 << 20)
            left -= len(data)
        channel.client.cut()
        rounds += 1
    return {"rounds": rounds}


@attack(
    "amqp-get-flood",
    "20 channels that ask for single messages at full speed and settle none",
    prepare=fill_queue,
    clean=delete_queue,
)
def get_flood(target: Target) -> Facts:
    get = encode_method(CHANNEL, BASIC_GET, b"\x00\x00" + short_string(QUEUE.encode()) + b"\x00")
    return flood(target, open_publishers(target), get * 2000)


@attack(
    "amqp-purge",
    "a queue that is filled at full speed by 8 publishers and purged without a pause",
    clean=delete_queue,
)
def purge(target: Target) -> Facts:
    publishers = open_queue(target, 8, durable=True)
    fill = encode_publishes([QUEUE], 20, is_durable=True)
    purges = encode_method(CHANNEL, QUEUE_PURGE, b"\x00\x00" + short_string(QUEUE.encode()) + b"\x00")
    return flood(target, publishers, purges * 100, fill)


@attack(
    "amqp-slow-consumers",
    "50 auto-ack consumers that do not read, 8 publishers at full speed",
    finding="C1, F7",
    clean=delete_queue,
)
def slow_consumers(target: Target) -> Facts:
    consumers = open_queue(target, 50)
    for consumer in consumers:
        consumer.consume(QUEUE, no_ack=True)
    return flood(target, open_publishers(target, 8), encode_publishes([QUEUE], 1000))


@attack(
    "amqp-consumers-many",
    "5,000 consumers of one queue that come and go without a pause",
    prepare=fill_queue,
    clean=delete_queue,
)
def consumers_many(target: Target) -> Facts:
    channels = open_publishers(target, 10)
    for channel in channels:
        channel.qos(1)
    come = bytearray()
    leave = bytearray()
    for number in range(500):
        tag = short_string(b"attack-%d" % number)
        queue = b"\x00\x00" + short_string(QUEUE.encode())
        come += encode_method(CHANNEL, BASIC_CONSUME, queue + tag + b"\x00" + encode_table({}))
        leave += encode_method(CHANNEL, BASIC_CANCEL, tag + b"\x00")
    return flood(target, channels, bytes(come + leave))


@attack(
    "amqp-dead-letter-cycle",
    "messages that expire at once into a queue that sends them back, without an end",
    clean=delete_queue,
)
def dead_letter_cycle(target: Target) -> Facts:
    channel = open_channel(target)
    names = [QUEUE, f"{QUEUE}-back"]
    for name, other in (names, names[::-1]):
        letter = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other, "x-message-ttl": 1}
        channel.declare(name, arguments=letter, auto_delete=name != QUEUE)
    consumer = open_channel(target)
    consumer.consume(names[1])
    return flood(target, open_publishers(target, 4), encode_publishes(names, 100))
