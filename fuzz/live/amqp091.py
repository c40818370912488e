"""Conversations of AMQP 0.9.1 clients: a handshake that is sent ahead of its answers, then channels and all methods."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from fuzz.live.script import Script, make_script

QUEUES = [
    b"tasks",
    b"stream",
    b"jobs/new",
    b"fuzz.a",
    b"fuzz.b",
    b"fuzz.c",
    b"",
    b"$dlq/tasks",
    b"amq.gen-x",
    b"nope",
]
EXCHANGES = [
    *(
        b"",
        b"amq.topic",
        b"amq.direct",
        b"amq.fanout",
        b"amq.headers",
        b"fuzz.x",
        b"fuzz.y",
        b"fuzz.d",
        b"nope",
    ),
    *(b"amq.match", b"amq.rabbitmq.trace", b"\xff", b"x" * 255),
]
KEYS = [
    b"",
    b"a",
    b"a.b",
    b"a.*",
    b"#",
    b"*.#",
    b"tasks",
    b"fuzz.a",
    b"a/b",
    b"k" * 255,
    b"amq.rabbitmq.reply-to",
    b"a.#.b.#",
]
TAGS = [b"", b"c1", b"c2", b"t" * 255, b"\xff"]
ARGUMENTS = [
    *(
        b"x-message-ttl",
        b"x-expires",
        b"x-max-length",
        b"x-max-length-bytes",
        b"x-max-priority",
        b"x-delivery-limit",
    ),
    *(
        b"x-overflow",
        b"x-dead-letter-exchange",
        b"x-dead-letter-routing-key",
        b"x-queue-type",
        b"x-single-active-consumer",
    ),
    *(
        b"x-queue-mode",
        b"x-max-age",
        b"x-match",
        b"alternate-exchange",
        b"x-stream-offset",
        b"x-priority",
        b"a",
        b"b",
    ),
    *(
        b"x-consumer-group",
        b"x-group-id",
        b"x-offset",
        b"x-stream-max-segment-size-bytes",
        b"x-delayed-type",
        b"x-topic",
    ),
]
HEADERS = [
    *(
        b"CC",
        b"BCC",
        b"x-death",
        b"x-delay",
        b"x-first-death-queue",
        b"a",
        b"b",
        b"x-match",
        b"x-source-topic",
        b"x-priority",
    ),
    *(
        b"x-user-properties",
        b"x-correlation-id",
        b"producer-id",
        b"sequence",
        b"message-id",
        b"delay-ms",
        b"x-policy",
    ),
]
TEXTS = [
    *(
        b"",
        b"drop-head",
        b"reject-publish",
        b"reject-publish-dlx",
        b"quorum",
        b"classic",
        b"stream",
        b"all",
        b"any",
    ),
    *(
        b"first",
        b"last",
        b"next",
        b"1h",
        b"7D",
        b"fuzz.x",
        b"fuzz.a",
        b"topic",
        b"lazy",
        b"any-with-x",
        b"\xff",
        b"1",
    ),
]
TYPES = [b"direct", b"fanout", b"topic", b"headers", b"x-delayed-message", b"nope", b""]
BODIES = [b"", b"x", b"y" * 100, b"z" * 900]


def short(data: bytes) -> bytes:
    return bytes((min(len(data), 255),)) + data[:255]


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel & 0xFFFF, len(payload)) + payload + b"\xce"


def method(channel: int, of_class: int, number: int, *parts: bytes) -> bytes:
    return frame(1, channel, struct.pack(">HH", of_class, number) + b"".join(parts))


def value(chance: random.Random, depth: int = 0) -> bytes:
    """A field value of any kind, with its letter."""
    kind = chance.randrange(15)
    if kind <= 3:
        return b"S" + long(chance.choice(TEXTS))
    if kind <= 6:
        return b"I" + struct.pack(">i", chance.choice((0, 1, 5, 10, 255, 256, 1000, -1, 0x7FFFFFFF)))
    if kind == 7:
        return b"l" + struct.pack(">q", chance.choice((0, 1, 100, -1, 1 << 62, -(1 << 63))))
    if kind == 8:
        return b"t" + bytes((chance.randrange(3),))
    if kind == 9 and depth < 4:
        return b"F" + table(chance, HEADERS, depth + 1)
    if kind == 10 and depth < 4:
        return b"A" + long(b"".join(value(chance, depth + 1) for _ in range(chance.randrange(4))))
    simple = (
        *(
            b"V",
            b"b\x80",
            b"B\xff",
            b"s\xff\xff",
            b"u\x00\x01",
            b"i\xff\xff\xff\xff",
            b"L" + bytes(8),
            b"f" + b"\x7f\xc0\0\0",
        ),
        *(b"d" + b"\xff\xf0" + bytes(6), b"d" + bytes(8), b"D\x02\x00\x00\x00\x01", b"D\xff\xff\xff\xff\xff"),
        *(b"T" + bytes(8), b"T" + b"\xff" * 8, b"x" + long(b"\x00\xff")),
    )
    return chance.choice(simple)


def table(chance: random.Random, names: list[bytes], depth: int = 0) -> bytes:
    size = chance.choice((0, 0, 0, 1, 1, 2, 3))
    return long(b"".join(short(chance.choice(names)) + value(chance, depth) for _ in range(size)))


def bits(chance: random.Random, width: int, likely: int = 0) -> bytes:
    return bytes((chance.choice((likely, 0, chance.randrange(1 << width))),))


def tag(chance: random.Random) -> bytes:
    return struct.pack(">Q", chance.choice((1, 1, 1, 2, 2, 3, 4, 0, 100, (1 << 64) - 1)))


def number(chance: random.Random, values: tuple[int, ...]) -> bytes:
    return struct.pack(">H", chance.choice(values))


PROPERTIES = (
    (15, lambda chance: short(chance.choice((b"json", b"", b"\xff", b"c" * 255)))),
    (14, lambda chance: short(chance.choice((b"gzip", b"")))),
    (13, lambda chance: table(chance, HEADERS)),
    (12, lambda chance: bytes((chance.choice((0, 1, 2, 2, 255)),))),
    (11, lambda chance: bytes((chance.choice((0, 1, 9, 10, 255)),))),
    (10, lambda chance: short(chance.choice((b"c1", b"", b"k" * 255)))),
    (9, lambda chance: short(chance.choice((b"amq.rabbitmq.reply-to", b"tasks", b"")))),
    (8, lambda chance: short(chance.choice((b"0", b"1", b"50", b"-1", b"x", b"", b"99999999999999999999")))),
    (7, lambda chance: short(b"m1")),
    (6, lambda chance: struct.pack(">Q", chance.choice((0, 1, 1 << 40, (1 << 64) - 1)))),
    (5, lambda chance: short(b"type")),
    (4, lambda chance: short(chance.choice((b"guest", b"anonymous", b"fuzz")))),
    (3, lambda chance: short(b"app")),
    (2, lambda chance: short(b"")),
)


def make_content(chance: random.Random, channel: int, of_class: int = 60) -> bytes:
    """A header and the body that belongs to it, or something near it."""
    flags, fields = 0, b""
    for bit, make in PROPERTIES:
        if chance.random() < 0.2:
            flags |= 1 << bit
            fields += make(chance)
    body = chance.choice(BODIES)
    size = (
        len(body) if chance.random() < 0.9 else chance.choice((0, 1, len(body) + 1, 1 << 40, (1 << 64) - 1))
    )
    content = frame(2, channel, struct.pack(">HHQH", of_class, 0, size, flags) + fields)
    middle = chance.randrange(len(body) + 1)
    for part in (body[:middle], body[middle:]):
        if part or chance.random() < 0.05:
            content += frame(3, channel, part)
    return content


def publish(chance: random.Random, channel: int) -> bytes:
    head = b"\0\0" + short(chance.choice(EXCHANGES)) + short(chance.choice(KEYS))
    return method(channel, 60, 40, head, bits(chance, 2)) + make_content(chance, channel)


def declare_queue(chance: random.Random, channel: int) -> bytes:
    name = short(chance.choice(QUEUES))
    return method(channel, 50, 10, b"\0\0", name, bits(chance, 5, 2), table(chance, ARGUMENTS))


def declare_exchange(chance: random.Random, channel: int) -> bytes:
    name = short(chance.choice(EXCHANGES)) + short(chance.choice(TYPES))
    return method(channel, 40, 10, b"\0\0", name, bits(chance, 5), table(chance, ARGUMENTS))


def bind_queue(chance: random.Random, channel: int) -> bytes:
    names = short(chance.choice(QUEUES)) + short(chance.choice(EXCHANGES)) + short(chance.choice(KEYS))
    if chance.random() < 0.3:
        return method(channel, 50, 50, b"\0\0", names, table(chance, HEADERS))
    return method(channel, 50, 20, b"\0\0", names, bits(chance, 1), table(chance, HEADERS))


def bind_exchange(chance: random.Random, channel: int) -> bytes:
    names = short(chance.choice(EXCHANGES)) + short(chance.choice(EXCHANGES)) + short(chance.choice(KEYS))
    which = chance.choice((30, 30, 40))
    return method(channel, 40, which, b"\0\0", names, bits(chance, 1), table(chance, HEADERS))


def consume(chance: random.Random, channel: int) -> bytes:
    names = short(chance.choice((*QUEUES, b"amq.rabbitmq.reply-to"))) + short(chance.choice(TAGS))
    return method(channel, 60, 20, b"\0\0", names, bits(chance, 4), table(chance, ARGUMENTS))


def remove(chance: random.Random, channel: int) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return method(channel, 50, 30, b"\0\0", short(chance.choice(QUEUES)), bits(chance, 1))
    if kind == 1:
        return method(channel, 50, 40, b"\0\0", short(chance.choice(QUEUES)), bits(chance, 3))
    if kind == 2:
        return method(channel, 40, 20, b"\0\0", short(chance.choice(EXCHANGES)), bits(chance, 2))
    return method(channel, 60, 30, short(chance.choice(TAGS)), bits(chance, 1))


def settle(chance: random.Random, channel: int) -> bytes:
    kind = chance.choice((80, 80, 90, 120, 110, 100))
    if kind in (100, 110):
        return method(channel, 60, kind, bits(chance, 1, 1))
    return method(channel, 60, kind, tag(chance), bits(chance, 1 if kind != 120 else 2))


def small_method(chance: random.Random, channel: int) -> bytes:
    kind = chance.randrange(9)
    if kind == 0:
        size = struct.pack(">I", chance.choice((0, 0, 1, 0xFFFFFFFF)))
        return method(channel, 60, 10, size, number(chance, (0, 1, 2, 100, 0xFFFF)), bits(chance, 1))
    if kind == 1:
        return method(channel, 60, 70, b"\0\0", short(chance.choice(QUEUES)), bits(chance, 1))
    if kind == 2:
        return method(channel, 85, 10, bits(chance, 1))
    if kind <= 4:
        return method(channel, 90, chance.choice((10, 20, 30)))
    if kind == 5:
        return method(channel, 20, 20, bits(chance, 1))
    if kind == 6:
        return method(channel, 20, 40, b"\0\xc8", short(b"bye"), bytes(4))
    if kind == 7:
        return frame(8, chance.choice((0, 0, channel)), b"")
    return method(channel, 20, chance.choice((10, 41)), b"" if chance.random() < 0.5 else b"\0")


def strange_method(chance: random.Random, channel: int) -> bytes:
    """Numbers that exist or nearly do, with anything behind them; also what only the broker sends."""
    of_class = chance.choice((10, 20, 30, 40, 50, 60, 85, 90, 0, 70))
    return method(channel, of_class, chance.choice(range(125)), chance.randbytes(chance.randrange(12)))


Maker = Callable[[random.Random, int], bytes]
MAKERS: tuple[Maker, ...] = (
    *(publish,) * 5,
    *(declare_queue,) * 3,
    *(declare_exchange,) * 2,
    *(bind_queue,) * 2,
    bind_exchange,
    *(consume,) * 3,
    *(remove,) * 2,
    *(settle,) * 4,
    *(small_method,) * 5,
    strange_method,
    make_content,
)


def make_any(chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return chance.choice(make_opening(chance))
    return chance.choice(MAKERS)(chance, chance.choice((0, 1, 1, 2, 3, 0xFFFF)))


def make_opening(chance: random.Random) -> list[bytes]:
    mechanism, login = b"ANONYMOUS", b""
    if chance.random() < 0.02:  # passwords are slow to check
        mechanism = chance.choice((b"PLAIN", b"PLAIN", b"AMQPLAIN", b"EXTERNAL", b"SCRAM-SHA-256", b""))
        login = chance.choice((b"\0fuzz\0correct", b"\0fuzz\0wrong", b"\0\0", b"", b"n,,n=fuzz,r=abc"))
    capabilities = (b"consumer_cancel_notify", b"basic.nack", b"publisher_confirms", b"connection.blocked")
    features = b"".join(short(name) + b"t" + bytes((chance.randrange(2),)) for name in capabilities)
    properties = long(
        short(b"capabilities") + b"F" + long(features) + short(b"product") + b"S" + long(b"fuzz")
    )
    tune = struct.pack(
        ">HIH",
        chance.choice((0, 2047, 1, 2, 0xFFFF)) if chance.random() < 0.2 else 2047,
        chance.choice((4096, 131072, 0, 1, 0xFFFFFFFF)) if chance.random() < 0.2 else 131072,
        chance.choice((0, 0, 1, 60, 0xFFFF)),
    )
    host = b"/" if chance.random() < 0.95 else chance.choice((b"", b"nope", b"\xff"))
    return [
        b"AMQP\x00\x00\x09\x01",
        method(0, 10, 11, properties, short(mechanism), long(login), short(b"en_US")),
        method(0, 10, 31, tune),
        method(0, 10, 40, short(host), b"\0\0"),
        method(1, 20, 10, b"\0"),
        *((method(2, 20, 10, b"\0"),) if chance.random() < 0.3 else ()),
    ]


def make_amqp(chance: random.Random) -> Script:
    opening = make_opening(chance)
    channels = (1, 1, 1, 1, 2, 0) if len(opening) == 5 else (1, 1, 2, 2, 1, 3)
    packets = [chance.choice(MAKERS)(chance, chance.choice(channels)) for _ in range(chance.randrange(9))]
    if chance.random() < 0.4:  # what makes the most of the rest: a queue that is there, and a mode
        modes = (method(1, 85, 10, b"\0"), method(1, 90, 10), method(1, 60, 10, bytes(4), b"\0\1", b"\0"))
        packets = [declare_queue(chance, 1), chance.choice(modes), *packets]
    if chance.random() < 0.1:
        packets.append(method(0, 10, chance.choice((50, 51)), b"\0\xc8", short(b"bye"), bytes(4)))
    return make_script(chance, "amqp", opening, packets, make_any)
