"""Inputs to queues: very many records, deliveries, consumers, groups and channels."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import Any

from pika.spec import Basic, Channel, Connection, Queue, Tx

from benchmarks.attack_suite.amqp import AmqpChannel, encode_properties, encode_publishes
from benchmarks.attack_suite.preparation import (
    declare_queues,
    fill,
    method,
    read_deliveries,
    read_some,
    send_all,
    take_all,
)
from benchmarks.suite.brokers import find_python_path
from benchmarks.turns_suite.case import case
from benchmarks.turns_suite.mqtt import nothing
from benchmarks.turns_suite.world import World

MANY = 1_000_000
OPEN = 60_000
CLOSE_OK = b"\x00\x0a\x00\x33"  # class and method


def fill_queue(world: World, count: int = MANY, **options: Any) -> AmqpChannel:
    channel = world.amqp()
    channel.declare("q", **options)
    fill(channel, "q", world.count(count))
    return channel


def fill_durable(world: World) -> AmqpChannel:
    return fill_queue(world, durable=True)


@case("queue-purge", "queue.purge of 1,000,000 transient messages", fill_queue)
def purge(world: World, channel: AmqpChannel) -> None:
    channel.call(Queue.Purge(queue="q"), Queue.PurgeOk)


@case("queue-purge-durable", "queue.purge of 1,000,000 messages of a durable queue", fill_durable)
def purge_durable(world: World, channel: AmqpChannel) -> None:
    channel.call(Queue.Purge(queue="q"), Queue.PurgeOk)


@case("queue-delete", "queue.delete of 1,000,000 messages", fill_queue)
def delete(world: World, channel: AmqpChannel) -> None:
    channel.delete("q")


# ------------------------------------------------------------------ open deliveries


def hold_many(world: World, **options: Any) -> AmqpChannel:
    channel = fill_queue(world, OPEN, **options)
    take_all(channel, "q", world.count(OPEN))
    return channel


def hold_many_durable(world: World) -> AmqpChannel:
    return hold_many(world, durable=True)


def lose(world: World, channel: AmqpChannel) -> None:
    channel.client.socket.shutdown(socket.SHUT_RDWR)


case("queue-lost-unacked", "a connection with 60,000 unacked deliveries is lost", hold_many)(lose)
case("queue-lost-unacked-durable", "the same of a durable queue", hold_many_durable)(lose)


@case("queue-recover", "basic.recover of 60,000 deliveries", hold_many)
def recover(world: World, channel: AmqpChannel) -> None:
    channel.send(Basic.Recover(requeue=True))
    read_deliveries(channel, world.count(OPEN))


@case(
    "queue-nack-all", "basic.nack with requeue of 60,000 deliveries, to be delivered again", hold_many_durable
)
def nack_all(world: World, channel: AmqpChannel) -> None:
    channel.nack(0, multiple=True)
    read_deliveries(channel, world.count(OPEN))


@case("queue-ack-all", "basic.ack of 60,000 deliveries at once", hold_many_durable)
def ack_all(world: World, channel: AmqpChannel) -> None:
    channel.ack(0, multiple=True)
    world.wait_handed_out("q", 0)


@case(
    "queue-ack-backwards",
    "30,000 deliveries acked one by one, every other, the last first",
    hold_many_durable,
)
def ack_backwards(world: World, channel: AmqpChannel) -> None:
    last = world.count(OPEN)
    send_all(channel, b"".join(method(channel, Basic.Ack(delivery_tag=tag)) for tag in range(last, 0, -2)))
    world.wait_handed_out("q", last // 2)


def hold_with_dead_letters(world: World) -> AmqpChannel:
    channel = world.amqp()
    channel.declare("dead", durable=True)
    return hold_many(
        world,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )


@case("queue-reject-all", "60,000 deliveries rejected at once, to dead letters", hold_with_dead_letters)
def reject_all(world: World, channel: AmqpChannel) -> None:
    channel.nack(0, multiple=True, requeue=False)
    world.wait_records("dead", world.count(OPEN))


def fill_expiring(world: World) -> AmqpChannel:
    channel = world.amqp()
    channel.declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-message-ttl": 8000}
    channel.declare("q", arguments=arguments)
    fill(channel, "q", world.count(300_000))
    return channel


@case("queue-expiry", "300,000 messages expire in one moment, to dead letters", fill_expiring)
def expire(world: World, channel: AmqpChannel) -> None:
    world.wait_records("dead", world.count(300_000))


def fill_expiring_many(world: World) -> AmqpChannel:
    channel = world.amqp()
    names = [f"e{number}" for number in range(world.count(500))]
    declare_queues(channel, names, arguments={"x-message-ttl": 10_000})
    for name in names:
        fill(channel, name, 1000, 0)
    return channel


@case("queue-expiry-many", "1,000 messages in each of 500 queues expire in one moment", fill_expiring_many)
def expire_many(world: World, channel: AmqpChannel) -> None:
    for number in range(world.count(500)):
        world.wait_records(f"e{number}", 0)


# ------------------------------------------------------------------- transactions


@case("queue-commit", "tx.commit of as many publishes as a transaction may hold", nothing)
def commit(world: World, _: None) -> None:
    channel = world.amqp()
    channel.declare("q", durable=True)
    channel.tx_select()
    one = encode_publishes(["q"], 16, bytes_wanted=1)
    try:
        for _round in range(world.count(20)):
            send_all(channel, one * 4999)
        channel.send(Tx.Commit())
        channel.sync()
    except Exception as error:  # noqa: BLE001 a smaller bound closes the channel, which is fine
        print("commit:", str(error)[:100])


# ---------------------------------------------------------- channels and consumers


def open_channels(world: World) -> AmqpChannel:
    """2,047 channels with 10 consumers each on one queue, each with a delivery open."""
    channel = world.amqp()
    channel.declare("q")
    fill(channel, "q", world.count(2046) * 10)
    batch = bytearray()
    for number in range(2, world.count(2046) + 2):
        other = AmqpChannel(channel.client, number)
        channel.client.channels[number] = other
        batch += method(other, Channel.Open())
        batch += method(other, Basic.Qos(prefetch_count=1))
        for at in range(10):
            batch += method(other, Basic.Consume(queue="q", consumer_tag=f"c{at}", nowait=True))
    send_all(channel, bytes(batch))
    read_deliveries(channel, world.count(2046) * 10)
    return channel


case(
    "queue-channels-lost",
    "a connection with 2,047 channels, 20,460 consumers and unacked is lost",
    open_channels,
)(lose)


@case("queue-channels-close", "connection.close of the same", open_channels)
def close_connection(world: World, channel: AmqpChannel) -> None:
    channel.client.send(0, Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0))
    last = b""
    while CLOSE_OK not in last:
        last = last[-len(CLOSE_OK) :] + read_some(channel.client.socket)


@case("queue-consumers-ack", "1,000 acks on a queue with 20,460 consumers without credit", open_channels)
def ack_among_consumers(world: World, channel: AmqpChannel) -> None:
    numbers = range(2, min(1002, world.count(2046)))
    acks = (method(channel.client.channels[number], Basic.Ack(delivery_tag=1)) for number in numbers)
    send_all(channel, b"".join(acks))
    world.wait_handed_out("q", world.count(2046) * 10 - len(numbers))


@case("queue-delete-consumers", "queue.delete with 20,460 consumers", open_channels)
def delete_consumed(world: World, channel: AmqpChannel) -> None:
    world.amqp().delete("q")


def exclusive_queues(world: World) -> AmqpChannel:
    channel = world.amqp()
    declare_queues(channel, [f"x{number}" for number in range(world.count(50_000))], exclusive=True)
    return channel


case("queue-exclusive-lost", "a connection with 50,000 exclusive queues is lost", exclusive_queues)(lose)


# ------------------------------------------------------------------------ groups


def open_groups(world: World) -> AmqpChannel:
    """5,000 consumers, each in a group of its own, with all records open."""
    channel = world.amqp()
    channel.declare("q")
    fill(channel, "q", 1)
    batch = bytearray()
    for number in range(world.count(5000)):
        arguments = {"x-consumer-group": f"g{number}"}
        batch += method(
            channel, Basic.Consume(queue="q", consumer_tag=f"c{number}", nowait=True, arguments=arguments)
        )
    send_all(channel, bytes(batch))
    read_deliveries(channel, world.count(5000))
    return channel


@case("queue-groups", "50 publishes to a queue with 5,000 groups", open_groups)
def publish_to_groups(world: World, channel: AmqpChannel) -> None:
    send_all(channel, encode_publishes(["q"], 0, bytes_wanted=1) * 50)
    read_deliveries(channel, 50 * world.count(5000))


# ----------------------------------------------------------------- special records


def fill_delayed(world: World) -> AmqpChannel:
    channel = world.amqp()
    channel.declare("q", arguments={"x-max-priority": 10})
    fill(channel, "q", world.count(30) * 10_000, 0, raw_properties=encode_properties(priority=5))
    return channel


@case("queue-priorities", "queue.purge of 300,000 messages with priorities", fill_delayed)
def purge_priorities(world: World, channel: AmqpChannel) -> None:
    channel.call(Queue.Purge(queue="q"), Queue.PurgeOk)
    channel.declare("q", arguments={"x-max-priority": 10})


@case("queue-priorities-consume", "300,000 messages with priorities are consumed", fill_delayed)
def consume_priorities(world: World, channel: AmqpChannel) -> None:
    take_all(channel, "q", min(OPEN, world.count(30) * 10_000))


# ----------------------------------------------------------------------- control


def declare_many(world: World) -> AmqpChannel:
    channel = world.amqp()
    for start in range(0, world.count(100_000), 10_000):
        declare_queues(
            channel, [f"m{number}" for number in range(start, start + min(10_000, world.count(100_000)))]
        )
    return channel


def run_command(world: World, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "millstream", *words, "--set", f"data_dir={world.folder}/data"],
        env={"PYTHONPATH": find_python_path(), "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        cwd="/",
        check=False,
        capture_output=True,
        timeout=300,
    )


@case("control-queue-list", "`millstream queue list` over 100,000 queues", declare_many)
def list_queues(world: World, channel: AmqpChannel) -> None:
    run_command(world, "queue", "list")


@case("control-definitions", "`millstream definitions export` over 100,000 queues", declare_many)
def export_definitions(world: World, channel: AmqpChannel) -> None:
    run_command(world, "definitions", "export")


@case("control-idle", "100,000 idle queues, for three seconds", declare_many)
def idle(world: World, channel: AmqpChannel) -> None:
    time.sleep(3)


def open_many_channels(world: World) -> list[AmqpChannel]:
    opened = []
    for _ in range(world.count(100)):
        channel = world.amqp()
        batch = b"".join(
            method(AmqpChannel(channel.client, number), Channel.Open()) for number in range(2, 2047)
        )
        send_all(channel, batch)
        opened.append(channel)
    return opened


@case(
    "control-idle-channels",
    "100 connections with 2,046 idle channels each, for three seconds",
    open_many_channels,
)
def idle_channels(world: World, channels: list[AmqpChannel]) -> None:
    time.sleep(3)
