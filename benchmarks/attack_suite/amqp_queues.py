"""Attacks on queues over AMQP: floods of publishes, and the costly operations of consumers."""

from __future__ import annotations

from benchmarks.attack_suite.amqp import AmqpChannel, encode_publishes, open_channel
from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target

PUBLISHERS = 20
QUEUE = "attack-queue"


def open_publishers(target: Target, count: int = PUBLISHERS) -> list[AmqpChannel]:
    return [open_channel(target) for _ in range(target.count(count))]


def flood(target: Target, publishers: list[AmqpChannel], chunk: bytes) -> Facts:
    return pump(target, [channel.client.socket for channel in publishers], [chunk])


def delete_queue(target: Target) -> None:
    open_channel(target).delete(QUEUE)


@attack(
    "amqp-empty-flood",
    "20 publishers of empty messages, one transient queue, an auto-ack consumer that reads slowly",
    finding="C1",
)
def empty_flood(target: Target) -> Facts:
    consumer = open_channel(target)
    consumer.declare(QUEUE, auto_delete=True)
    consumer.consume(QUEUE, no_ack=True)
    return flood(target, open_publishers(target), encode_publishes([QUEUE], 0))


@attack("amqp-empty-flood-50", "20 publishers of empty messages into 50 transient queues", finding="C1")
def empty_flood_50(target: Target) -> Facts:
    consumer = open_channel(target)
    names = [f"{QUEUE}-{number}" for number in range(50)]
    for name in names:
        consumer.declare(name, auto_delete=True)
        consumer.consume(name, no_ack=True)
    return flood(target, open_publishers(target), encode_publishes(names, 0))


@attack(
    "amqp-transient-fill",
    "4 publishers of 1 kB messages into a transient queue without a consumer",
    finding="C1, F7",
    clean=delete_queue,
)
def transient_fill(target: Target) -> Facts:
    publishers = open_publishers(target, 4)
    publishers[0].declare(QUEUE)
    return flood(target, publishers, encode_publishes([QUEUE], 1000))
