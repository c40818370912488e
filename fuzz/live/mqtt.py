"""Conversations of MQTT clients: every packet, every property, names that many connections share.

Few names, so that connections meet: they take over each other's sessions, read each other's queues, and wake what
others have left.
"""

from __future__ import annotations

import random
import struct

from fuzz.live.script import Script, make_script

CLIENTS = [b"fuzz-%d" % number for number in range(40)] + [b"", b"worker-1", b"worker-2"]
TOPICS = [
    *(b"a", b"a/b", b"a/b/c", b"/", b"//", b"plant/press", b"\xc3\xa9t\xc3\xa9", b"$SYS/x", b"$SYS"),
    *(b"$queue/tasks", b"$queue/tasks", b"$queue/stream", b"$queue/jobs/new", b"$queue/light", b"$dlq/tasks"),
    *(
        b"$queue/tasks/$ack",
        b"$queue/tasks/$reject",
        b"$queue/tasks/$nack",
        b"$queue/",
        b"$queue",
        b"$queue/$dlq/tasks",
    ),
    *(b"", b"#", b"a/+", b"$share/g/a", b"\xed\xa0\x80", b"a\x00b", b"t" * 300, b"/".join([b"l"] * 40)),
    *(
        b"amq/rabbitmq/reply-to/x",
        b"amq.topic",
        b"$queue/secre%74",
        b"$queue/a%2Fb",
        b"$exchange/amq.topic/a",
    ),
]
FILTERS = [
    *TOPICS,
    *(
        b"#",
        b"+",
        b"a/#",
        b"a/+/c",
        b"+/+",
        b"/+",
        b"$SYS/#",
        b"$queue/+",
        b"$queue/#",
        b"$dlq/#",
        b"$dlq/tasks",
    ),
    *(
        b"$share/g/a/#",
        b"$share/g/#",
        b"$share//a",
        b"$share/g",
        b"$share/g/",
        b"$share/+/a",
        b"$share/g/$queue/tasks",
    ),
    *(
        b"$share/g/$SYS/#",
        b"a/#/b",
        b"a#",
        b"+a",
        b"plant/#",
        b"$queue/stream",
        b"$queue/tasks",
        b"$queue/light",
    ),
]
WORDS = [
    *(
        (b"consumer-group", b"g"),
        (b"consumer-group", b""),
        (b"priority", b"9"),
        (b"priority", b"-1"),
        (b"priority", b"x"),
    ),
    *((b"delay-ms", b"1"), (b"delay-ms", b"50"), (b"delay-ms", b"99999999999999999999"), (b"delay-ms", b"")),
    *(
        (b"producer-id", b"p1"),
        (b"sequence", b"1"),
        (b"sequence", b"0"),
        (b"sequence", b"18446744073709551616"),
    ),
    *(
        (b"message-id", b"tasks:0"),
        (b"message-id", b"0"),
        (b"group-id", b"g"),
        (b"offset", b"0"),
        (b"offset", b"first"),
    ),
    *(
        (b"offset", b"last"),
        (b"offset", b"-1"),
        (b"offset", b"timestamp=1"),
        (b"redelivered", b"true"),
        (b"start", b"first"),
    ),
    *((b"delivery-count", b"1"), (b"_dlq_reason", b"x"), (b"x-death", b"[]"), (b"", b""), (b"k", b"v" * 200)),
    *(
        (b"from", b"first"),
        (b"prefetch", b"1"),
        (b"prefetch", b"0"),
        (b"reason", b"no"),
        (b"k\x00", b"v"),
        (b"\xff", b""),
    ),
]
PAYLOADS = [b"", b"x", b"{}", b"\x00" * 40, b"y" * 700, b"\xff\xfe"]
USERS = [
    (b"fuzz", b"correct"),
    (b"fuzz", b"wrong"),
    (b"", b""),
    (b"nobody", b"x"),
    (b"anonymous", b""),
    (b"", b"a.b.c"),
]
REASONS = (0, 0, 0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x92, 0x97, 0x99, 0x01, 0xFF)


def text(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def count(number: int) -> bytes:
    """A variable byte integer."""
    parts = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        parts.append(low | 0x80 if number else low)
        if not number:
            return bytes(parts)


def packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + count(len(body)) + body


def word(chance: random.Random) -> bytes:
    name, value = chance.choice(WORDS)
    return b"\x26" + text(name) + text(value)


def words(chance: random.Random) -> bytes:
    return b"".join(word(chance) for _ in range(chance.choice((0, 0, 1, 1, 2, 3))))


def block(chance: random.Random, choices: list[bytes]) -> bytes:
    """A property block with some of these, and some words."""
    body = b"".join(one for one in choices if chance.random() < 0.3) + words(chance)
    return count(len(body)) + body


def small(chance: random.Random, values: tuple[int, ...] = (0, 1, 2, 5, 100, 0xFFFF)) -> bytes:
    return struct.pack(">H", chance.choice(values))


def large(chance: random.Random) -> bytes:
    return struct.pack(">I", chance.choice((0, 0, 1, 1, 2, 3, 0x7FFFFFFF, 0xFFFFFFFF)))


def make_connect(chance: random.Random, version: int) -> bytes:
    flags = chance.choice((0, 2, 2))
    client = chance.choice(CLIENTS)
    payload = text(client)
    if chance.random() < 0.4:
        flags |= 4 | chance.choice((0, 8, 16)) | chance.choice((0, 32))
        if version == 5:
            payload += block(
                chance,
                [
                    *(
                        b"\x18" + large(chance),
                        b"\x01" + bytes((chance.randrange(3),)),
                        b"\x02" + large(chance),
                    ),
                    *(b"\x03" + text(b"json"), b"\x08" + text(chance.choice(TOPICS)), b"\x09" + text(b"c")),
                ],
            )
        payload += text(chance.choice(TOPICS)) + text(chance.choice(PAYLOADS))
    if chance.random() < 0.02:  # passwords are slow to check
        user, password = chance.choice(USERS)
        flags |= 0xC0 if version == 5 or user else 0
        payload += text(user) + text(password) if flags & 0xC0 else b""
    name = b"\x00\x06MQIsdp\x03" if version == 3 else b"\x00\x04MQTT" + bytes((version,))
    body = name + bytes((flags,)) + small(chance, (0, 0, 1, 60, 0xFFFF))
    if version == 5:
        body += block(
            chance,
            [
                *(
                    b"\x11" + struct.pack(">I", chance.choice((0, 0, 1, 2, 30, 0xFFFFFFFF))),
                    b"\x21" + small(chance),
                ),
                *(
                    b"\x27" + struct.pack(">I", chance.choice((1, 20, 100, 0xFFFFFFF, 0))),
                    b"\x22" + small(chance),
                ),
                *(b"\x19" + bytes((chance.randrange(3),)), b"\x17" + bytes((chance.randrange(3),))),
                *(
                    (b"\x15" + text(chance.choice((b"SCRAM-SHA-256", b"x", b""))),)
                    if chance.random() < 0.15
                    else ()
                ),
                *(
                    (b"\x16" + text(chance.choice((b"n,,n=fuzz,r=abc", b"", b"x"))),)
                    if chance.random() < 0.15
                    else ()
                ),
            ],
        )
    return packet(0x10, body + payload)


def make_publish(chance: random.Random, version: int) -> bytes:
    qos = chance.choice((0, 1, 1, 2))
    first = 0x30 | qos << 1 | chance.choice((0, 0, 1)) | (chance.choice((0, 0, 8)) if qos else 0)
    body = text(chance.choice(TOPICS))
    if qos:
        body += small(chance, (1, 1, 2, 3, 7, 0, 0xFFFF))
    if version == 5:
        body += block(
            chance,
            [
                *(b"\x01" + bytes((chance.randrange(3),)), b"\x02" + large(chance)),
                *(b"\x23" + small(chance, (1, 2, 0, 10, 0xFFFF)), b"\x03" + text(b"json")),
                *(b"\x08" + text(chance.choice(TOPICS)), b"\x09" + text(b"corr")),
                *((b"\x0b" + count(chance.choice((0, 1, 268435455))),) if chance.random() < 0.1 else ()),
            ],
        )
    return packet(first, body + chance.choice(PAYLOADS))


def make_subscribe(chance: random.Random, version: int) -> bytes:
    body = small(chance, (1, 2, 3, 0xFFFF))
    if version == 5:
        body += block(chance, [b"\x0b" + count(chance.choice((1, 2, 268435455, 0)))])
    options = (0, 1, 2, 1, 2) if version < 5 else (0, 1, 2, 0x05, 0x0A, 0x18, 0x2E, 0x11, 0x03)
    for _ in range(chance.choice((1, 1, 2, 4))):
        body += text(chance.choice(FILTERS)) + bytes((chance.choice(options),))
    return packet(0x82, body)


def make_unsubscribe(chance: random.Random, version: int) -> bytes:
    body = small(chance, (1, 2, 3, 0xFFFF))
    if version == 5:
        body += block(chance, [])
    for _ in range(chance.choice((1, 1, 2))):
        body += text(chance.choice(FILTERS))
    return packet(0xA2, body)


def make_answer(chance: random.Random, version: int) -> bytes:
    body = small(chance, (1, 1, 2, 3, 4, 0, 0xFFFF))
    if version == 5 and chance.random() < 0.5:
        body += bytes((chance.choice(REASONS),))
        if chance.random() < 0.5:
            body += block(chance, [b"\x1f" + text(b"because")])
    return packet(chance.choice((0x40, 0x40, 0x50, 0x62, 0x62, 0x70)), body)


def make_end(chance: random.Random, version: int) -> bytes:
    if version < 5 or chance.random() < 0.3:
        return packet(0xE0, b"")
    return packet(
        0xE0, bytes((chance.choice((0, 4, 0x80, 0x8E)),)) + block(chance, [b"\x11" + large(chance)])
    )


def make_auth(chance: random.Random, version: int) -> bytes:
    method = b"\x15" + text(chance.choice((b"SCRAM-SHA-256", b"x")))
    data = b"\x16" + text(chance.choice((b"n,,n=fuzz,r=abc", b"c=biws,r=abc,p=AA==", b"")))
    return packet(0xF0, bytes((chance.choice((0, 0x18, 0x19)),)) + block(chance, [method, data]))


MAKERS = (
    *(make_publish,) * 6,
    *(make_subscribe,) * 4,
    *(make_answer,) * 3,
    *(make_unsubscribe, make_end, make_auth, lambda chance, version: packet(0xC0, b"")),
)


def make_packet(chance: random.Random, version: int) -> bytes:
    return chance.choice(MAKERS)(chance, version)


def make_any(chance: random.Random) -> bytes:
    """A packet of any version, also those that only a broker sends."""
    if chance.random() < 0.1:
        return packet(
            chance.choice((0x20, 0x90, 0xB0, 0xD0, 0x00, 0xF0)), chance.randbytes(chance.randrange(6))
        )
    if chance.random() < 0.1:
        return make_connect(chance, chance.choice((3, 4, 5)))
    return make_packet(chance, chance.choice((4, 5)))


def make_conversation(chance: random.Random) -> tuple[bytes, list[bytes]]:
    version = chance.choice((3, 4, 4, 5, 5, 5, 5))
    return make_connect(chance, version), [make_packet(chance, version) for _ in range(chance.randrange(7))]


def make_mqtt(chance: random.Random) -> Script:
    connect, packets = make_conversation(chance)
    return make_script(chance, "mqtt", [connect], packets, make_any)
