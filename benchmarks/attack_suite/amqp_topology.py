"""Attacks on exchanges, bindings and declarations over AMQP."""

from __future__ import annotations

import itertools

from pika.spec import Exchange

from benchmarks.attack_suite.amqp import encode_properties, encode_publishes, open_channel
from benchmarks.attack_suite.amqp_queues import QUEUE, flood, open_publishers
from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.preparation import bind_exchanges, bind_queues
from benchmarks.attack_suite.target import Target
from benchmarks.load.queue_amqp import CHANNEL, encode_method, encode_table, short_string

EXCHANGE = "attack-exchange"
QUEUE_DECLARE = 0x0032000A
QUEUE_DELETE = 0x00320028
QUEUE_BIND = 0x00320014
EXCHANGE_DECLARE = 0x0028000A
EXCHANGE_DELETE = 0x00280014


def delete_exchange(target: Target) -> None:
    channel = open_channel(target)
    channel.call(Exchange.Delete(exchange=EXCHANGE), Exchange.DeleteOk)


@attack("amqp-declare-storm", "20 channels that declare and delete queues of ever the same 1,000 names each")
def declare_storm(target: Target) -> Facts:
    chunks = []
    for part in range(20):
        names = [short_string(b"attack-%d-%d" % (part, number)) for number in range(1000)]
        chunk = [
            encode_method(CHANNEL, QUEUE_DECLARE, b"\x00\x00" + name + b"\x00" + encode_table({}))
            for name in names
        ]
        chunk += [encode_method(CHANNEL, QUEUE_DELETE, b"\x00\x00" + name + b"\x00") for name in names]
        chunks.append(b"".join(chunk))
    return flood(target, open_publishers(target), *chunks)


@attack("amqp-declare-durable", "8 channels that declare and delete durable queues and exchanges")
def declare_durable(target: Target) -> Facts:
    chunks = []
    for part in range(8):
        chunk = []
        for number in range(200):
            name = short_string(b"attack-%d-%d" % (part, number))
            kind = short_string(b"topic")
            chunk += [
                encode_method(CHANNEL, QUEUE_DECLARE, b"\x00\x00" + name + b"\x02" + encode_table({})),
                encode_method(
                    CHANNEL, EXCHANGE_DECLARE, b"\x00\x00" + name + kind + b"\x02" + encode_table({})
                ),
                encode_method(CHANNEL, QUEUE_BIND, b"\x00\x00" + name * 3 + b"\x00" + encode_table({})),
                encode_method(CHANNEL, EXCHANGE_DELETE, b"\x00\x00" + name + b"\x00"),
                encode_method(CHANNEL, QUEUE_DELETE, b"\x00\x00" + name + b"\x00"),
            ]
        chunks.append(b"".join(chunk))
    return flood(target, open_publishers(target, 8), *chunks)


@attack(
    "amqp-bindings-pathological",
    "4,000 bindings of `*` and `#` to one topic exchange, publishes with ever new keys",
    finding="F6",
    clean=delete_exchange,
)
def bindings_pathological(target: Target) -> Facts:
    channel = open_channel(target)
    channel.exchange(EXCHANGE, "topic")
    queue = channel.temporary()
    bound = 0
    for number in range(target.count(4000)):
        if target.is_over():
            break
        key = ".".join("*" if number >> bit & 1 else "a" for bit in range(12)) + (
            ".#" if number & 1 else ".#.b"
        )
        channel.bind(queue, EXCHANGE, key)
        bound += 1
    keys = [".".join(["a"] * 12) + f".{number}" for number in range(5000)]
    return {
        "bound": bound,
        **flood(target, open_publishers(target, 4), encode_publishes(keys, 0, exchange=EXCHANGE)),
    }


@attack(
    "amqp-bindings-hashes",
    "keys of 60 words against bindings of `#.a.#.a.#` that all but match",
    finding="F6",
    clean=delete_exchange,
)
def bindings_hashes(target: Target) -> Facts:
    channel = open_channel(target)
    channel.exchange(EXCHANGE, "topic")
    queue = channel.temporary()
    words = [".#.".join(["a"] * number) for number in range(2, 60)]
    bind_queues(channel, [(queue, EXCHANGE, f"#.{each}.#.b") for each in words])
    keys = [".".join(["a"] * 60) + f".{number}" for number in range(1000)]
    return flood(target, open_publishers(target, 4), encode_publishes(keys, 0, exchange=EXCHANGE))


@attack(
    "amqp-headers-exchange",
    "2,000 bindings of a headers exchange with 20 headers each, messages with 200 headers",
    finding="F6",
    clean=delete_exchange,
)
def headers_exchange(target: Target) -> Facts:
    channel = open_channel(target)
    channel.exchange(EXCHANGE, "headers")
    queue = channel.temporary()
    bound = 0
    for number in range(target.count(2000)):
        if target.is_over():
            break
        headers = {f"name-{index}": f"value-{index}" for index in range(19)}
        channel.bind(queue, EXCHANGE, "", **{"x-match": "all", **headers, "last": str(number)})
        bound += 1
    raw = encode_properties(headers={f"name-{index}": f"value-{index}" for index in range(200)})
    publishes = encode_publishes([""], 0, exchange=EXCHANGE, raw_properties=raw)
    return {"bound": bound, **flood(target, open_publishers(target, 4), publishes)}


@attack(
    "amqp-exchange-diamonds",
    "14 layers of two exchanges, each bound to both of the next: 16,384 ways",
    finding="F6",
)
def exchange_diamonds(target: Target) -> Facts:
    channel = open_channel(target)
    layers = [
        [channel.exchange(f"attack-{layer}-{side}", "fanout", auto_delete=True) for side in "ab"]
        for layer in range(14)
    ]
    queue = channel.temporary()
    for name in layers[-1]:
        channel.bind(queue, name)
    pairs = itertools.pairwise(layers)
    bind_exchanges(channel, [(low, up, "#") for upper, lower in pairs for up in upper for low in lower])
    publishes = encode_publishes([f"key-{number}" for number in range(2000)], 0, exchange=layers[0][0])
    return flood(target, open_publishers(target, 4), publishes)


@attack("amqp-exchange-cycle", "200 exchanges bound in a circle, publishes with ever new keys", finding="F6")
def exchange_cycle(target: Target) -> Facts:
    channel = open_channel(target)
    names = [channel.exchange(f"attack-{number}", "topic", auto_delete=True) for number in range(200)]
    following = names[1:] + names[:1]
    bind_exchanges(channel, [(after, name, "#") for name, after in zip(names, following, strict=True)])
    channel.bind(channel.temporary(), names[100], "#")
    keys = [f"key.{number}" for number in range(5000)]
    return flood(target, open_publishers(target, 4), encode_publishes(keys, 0, exchange=names[0]))


@attack(
    "amqp-fan-out-queues",
    "a fanout exchange with 2,000 transient queues, 4 publishers of 100 bytes at full speed",
    finding="C1, F7",
    clean=delete_exchange,
)
def fan_out_queues(target: Target) -> Facts:
    channel = open_channel(target)
    channel.exchange(EXCHANGE, "fanout")
    queues = 0
    for _ in range(target.count(2000)):
        if target.is_over():
            break
        channel.bind(channel.temporary(), EXCHANGE)
        queues += 1
    publishes = encode_publishes([QUEUE], 100, exchange=EXCHANGE)
    return {"queues": queues, **flood(target, open_publishers(target, 4), publishes)}
