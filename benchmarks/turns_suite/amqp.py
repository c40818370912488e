"""Inputs of AMQP clients: exchanges, bindings, headers, copies."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from pika.spec import Exchange

from benchmarks.attack_suite.amqp import AmqpChannel, encode_properties
from benchmarks.attack_suite.preparation import (
    bind_exchanges,
    bind_headers,
    bind_queues,
    declare_queues,
    send_all,
)
from benchmarks.load.queue_amqp import BASIC_PUBLISH, HEADER, encode_frame, encode_method, short_string
from benchmarks.turns_suite.case import case
from benchmarks.turns_suite.mqtt import cache_routes, nothing
from benchmarks.turns_suite.world import World


def publish(
    channel: AmqpChannel, exchange: str, keys: list[str], raw_properties: bytes = b"\x00\x00"
) -> None:
    header = encode_frame(HEADER, channel.number, struct.pack(">HHQ", 60, 0, 0) + raw_properties)
    batch = bytearray()
    for key in keys:
        arguments = b"\x00\x00" + short_string(exchange.encode()) + short_string(key.encode()) + b"\x00"
        batch += encode_method(channel.number, BASIC_PUBLISH, arguments) + header
    send_all(channel, bytes(batch))
    channel.sync()


# --------------------------------------------------------------------- headers


def open_headers_exchange(world: World, tables: Iterable[dict[str, Any]]) -> AmqpChannel:
    channel = world.amqp()
    channel.exchange("h", "headers")
    channel.declare("hq")
    bind_headers(channel, "hq", "h", tables)
    return channel


def bind_small_headers(world: World) -> AmqpChannel:
    return open_headers_exchange(
        world,
        (
            {"x-match": "any", **{f"k{at}": number * 100 + at for at in range(20)}}
            for number in range(world.count(9000))
        ),
    )


@case(
    "amqp-headers",
    "publishes with 20 headers to an exchange with 9,000 bindings by 20 headers, as many as are admitted",
    bind_small_headers,
)
def publish_headers(world: World, channel: AmqpChannel) -> None:
    publish(channel, "h", [""] * 20, encode_properties(headers={f"k{at}": -1 for at in range(20)}))


def bind_headers_tables(world: World) -> AmqpChannel:
    table = {f"n{at}": at for at in range(2000)}
    return open_headers_exchange(
        world,
        ({"x-match": "any", "big": {**table, "own": number}} for number in range(world.count(95))),
    )


@case(
    "amqp-headers-tables",
    "publishes with a table of 2,000 entries against 95 bindings by such, as many as are admitted",
    bind_headers_tables,
)
def publish_tables(world: World, channel: AmqpChannel) -> None:
    publish(
        channel,
        "h",
        [""] * 20,
        encode_properties(headers={"big": {**{f"n{at}": at for at in range(2000)}, "own": -1}}),
    )


# -------------------------------------------------------------------- patterns


def bind_patterns(world: World) -> AmqpChannel:
    channel = world.amqp()
    channel.exchange("t", "topic")
    channel.declare("tq")
    letters = "abcdefgh"
    bindings = []
    for number in range(world.count(400)):
        words = [letters[number >> 3 * at & 7] for at in range(5)]
        bindings.append(("tq", "t", "#." + ".#.".join(words)))
    bind_queues(channel, bindings)
    return channel


@case(
    "amqp-patterns",
    "publishes with new keys of 120 words against 400 patterns like #.a.#.b.#.c, as many as are admitted",
    bind_patterns,
)
def publish_patterns(world: World, channel: AmqpChannel) -> None:
    words = "abcdefgh" * 15
    publish(channel, "t", [".".join(words[: 100 + number]) for number in range(20)])


# ---------------------------------------------------------- exchanges to exchanges


def bind_diamond(world: World) -> AmqpChannel:
    """Layers that are bound each to each: every binding is looked at once per message."""
    channel = world.amqp()
    wide, deep = 100, world.count(20)
    for layer in range(deep):
        for at in range(wide):
            channel.exchange(f"d{layer}-{at}", "topic" if layer == 0 else "fanout")
    channel.declare("dq")
    for layer in range(deep - 1):
        bind_exchanges(
            channel,
            [(f"d{layer + 1}-{to}", f"d{layer}-{at}", "#") for at in range(wide) for to in range(wide)],
        )
    bind_queues(channel, [("dq", f"d{deep - 1}-{at}", "#") for at in range(wide)])
    return channel


@case(
    "amqp-diamond",
    "publishes with new keys through 20 layers of 100 exchanges, each bound to each",
    bind_diamond,
)
def publish_diamond(world: World, channel: AmqpChannel) -> None:
    publish(channel, "d0-0", [f"k{number}" for number in range(20)])


def bind_chain(world: World) -> AmqpChannel:
    channel = world.amqp()
    count = world.count(9000)
    for at in range(count):
        channel.exchange(f"c{at}", "topic")
    bind_exchanges(channel, [(f"c{at + 1}", f"c{at}", "#") for at in range(count - 1)])
    return channel


@case("amqp-chain", "publishes with new keys through a chain of 9,000 exchanges", bind_chain)
def publish_chain(world: World, channel: AmqpChannel) -> None:
    publish(channel, "c0", [f"k{number}" for number in range(20)])


# --------------------------------------------------------------------- fan-out


def bind_fan_out(world: World, **options: Any) -> AmqpChannel:
    channel = world.amqp()
    channel.exchange("f", "fanout", durable=bool(options))
    names = [f"f{number}" for number in range(world.count(12_000))]
    declare_queues(channel, names, **options)
    bind_queues(channel, [(name, "f", "") for name in names])
    return channel


@case("amqp-fan-out", "publishes to 12,000 transient queues", bind_fan_out)
def publish_fan_out(world: World, channel: AmqpChannel) -> None:
    publish(channel, "f", [""] * 3)


@case(
    "amqp-fan-out-durable",
    "publishes to 12,000 durable queues",
    lambda world: bind_fan_out(world, durable=True),
)
def publish_fan_out_durable(world: World, channel: AmqpChannel) -> None:
    publish(channel, "f", [""] * 3)


# ---------------------------------------------------------------------- copies


@case("amqp-copies", "publishes with 1,000 keys in CC to a topic exchange of 400 patterns", bind_patterns)
def publish_copies(world: World, channel: AmqpChannel) -> None:
    keys = [f"a.b.c.{number}" for number in range(world.count(1000))]
    publish(channel, "t", ["a"] * 3, encode_properties(headers={"CC": keys}))


@case("amqp-copies-default", "publishes with 1,000 keys in CC to the default exchange", nothing)
def publish_copies_default(world: World, _: None) -> None:
    channel = world.amqp()
    publish(
        channel,
        "",
        ["a"] * 5,
        encode_properties(headers={"CC": [f"c{number}" for number in range(world.count(1000))]}),
    )


# --------------------------------------------------------------------- removal


def bind_many(world: World) -> AmqpChannel:
    channel = world.amqp()
    channel.exchange("b", "topic")
    channel.declare("bq", durable=True)
    bind_queues(channel, [("bq", "b", f"k{number}.#") for number in range(world.count(100_000))])
    return channel


@case("amqp-queue-delete", "queue.delete with 100,000 bindings", bind_many)
def delete_queue(world: World, channel: AmqpChannel) -> None:
    channel.delete("bq")


@case("amqp-exchange-delete", "exchange.delete with 100,000 bindings", bind_many)
def delete_exchange(world: World, channel: AmqpChannel) -> None:
    channel.call(Exchange.Delete(exchange="b"), Exchange.DeleteOk)


@case("amqp-declares", "20,000 queue.declare in one write, 190,000 routes cached", cache_routes)
def declare_storm(world: World, _: Any) -> None:
    channel = world.amqp()
    declare_queues(channel, [f"s{number}" for number in range(world.count(20_000))])


@case("amqp-large-body", "a durable message of 16 MiB, the largest by default", nothing)
def publish_large(world: World, _: None) -> None:
    channel = world.amqp()
    channel.declare("large", durable=True)
    channel.publish("", "large", b"x" * world.count(16 << 20))
    channel.sync()
