"""Field tables, message properties and whole publishes of AMQP 0-9-1 as data.

Shared by the unit tests and, as seeds, by the fuzzers.
"""

from __future__ import annotations

from vectors.amqp091_vector import PropertiesVector, TableVector, frame, header, long, publish, short

from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, FieldTable, Timestamp
from millstream.protocols.amqp091.wire.properties import BasicProperties


def one(letter: bytes, *value: bytes) -> bytes:
    """A table of one value called k."""
    return long(short(b"k"), letter, *value)


def good(name: str, data: bytes, value: object) -> TableVector:
    return TableVector(name, data, {b"k": value})


def odd(name: str, data: bytes, value: object) -> TableVector:
    return TableVector(name, data, {b"k": value}, canonical=False)


def nested(depth: int) -> bytes:
    """Tables in tables, `depth` with the outermost."""
    inside = long()
    for _ in range(depth - 1):
        inside = one(b"F", inside)
    return inside


def nested_table(depth: int) -> FieldTable:
    table: FieldTable = {}
    for _ in range(depth - 1):
        table = {b"k": table}
    return table


GOOD_TABLES = [
    TableVector("empty", long(), {}),
    good("true", one(b"t", b"\x01"), True),
    good("false", one(b"t", b"\x00"), False),
    odd("true as any other byte", one(b"t", b"\x02"), True),
    odd("b", one(b"b", b"\xff"), -1),
    odd("B", one(b"B", b"\xff"), 255),
    odd("s", one(b"s", b"\x80\x00"), -32768),
    odd("u", one(b"u", b"\x80\x00"), 32768),
    good("I, the smallest", one(b"I", b"\x80\x00\x00\x00"), -(2**31)),
    good("I, the largest", one(b"I", b"\x7f\xff\xff\xff"), 2**31 - 1),
    odd("i", one(b"i", b"\xff\xff\xff\xff"), 2**32 - 1),
    good("l, the smallest", one(b"l", b"\x80", b"\x00" * 7), -(2**63)),
    good("l, the largest", one(b"l", b"\x7f", b"\xff" * 7), 2**63 - 1),
    odd("L", one(b"L", b"\xff" * 8), -1),
    odd("f", one(b"f", b"\x3f\x80\x00\x00"), 1.0),
    good("d", one(b"d", b"\x3f\xf8", b"\x00" * 6), 1.5),
    good("D", one(b"D", b"\x02", b"\xff\xff\xff\xfe"), Decimal091(2, 4294967294)),
    good("T", one(b"T", b"\xff" * 8), Timestamp(2**64 - 1)),
    good("V", one(b"V"), None),
    good("S", one(b"S", long(b"\xff\x00")), b"\xff\x00"),
    good("x", one(b"x", long(b"\xff\x00")), ByteArray(b"\xff\x00")),
    good("A, empty", one(b"A", long()), []),
    good("A", one(b"A", long(b"V", b"t\x01", b"A", long(b"S", long(b"v")))), [None, True, [b"v"]]),
    good("F", one(b"F", one(b"F", long())), {b"k": {}}),
    TableVector("no name", long(short(b""), b"V"), {b"": None}),
    TableVector("the longest name", long(short(b"n" * 255), b"V"), {b"n" * 255: None}),
    TableVector(
        "a name twice: the last counts", long(b"\x01kV", b"\x01kt\x01"), {b"k": True}, canonical=False
    ),
    TableVector("32 tables in one another", nested(32), nested_table(32)),
    TableVector("1024 values", long(b"\x01kV" * 1024), {b"k": None}, canonical=False),
    TableVector("8192 values in an array", one(b"A", long(b"V" * 8191)), {b"k": [None] * 8191}),
]

BAD_TABLES = [
    TableVector("no length", b"\x00\x00\x00"),
    TableVector("longer than what is left", b"\x00\x00\x00\x01"),
    TableVector("4 GiB", b"\xff\xff\xff\xff\x01kV"),
    TableVector("a name cut short", long(b"\x02k")),
    TableVector("a name and no letter", long(b"\x01k")),
    TableVector("an unknown letter", one(b"Z")),
    TableVector("the letter 0", one(b"\x00")),
    TableVector("the letter 255", one(b"\xff")),
    TableVector("a bool cut short", one(b"t")),
    TableVector("a long integer cut short", one(b"l", b"\x00" * 7)),
    TableVector("a decimal cut short", one(b"D", b"\x00" * 4)),
    TableVector("a length cut short", one(b"S", b"\x00\x00\x00")),
    TableVector("a string that is too long", one(b"S", b"\x00\x00\x00\x02x")),
    TableVector("a string of 4 GiB", one(b"S", b"\xff\xff\xff\xffx")),
    TableVector("an array that is too long", one(b"A", b"\x00\x00\x00\x02V")),
    TableVector("a value that passes the end of its array", one(b"A", long(b"I\x00\x00"), b"\x01jV")),
    TableVector("a value that passes the end of its table", one(b"F", long(b"\x01jI\x00"), b"\x01jV")),
    TableVector("33 tables in one another", nested(33)),
    TableVector("8193 values", long(b"\x01kV" * 8193)),
    TableVector("8193 values, all but one in arrays", one(b"A", long(b"A", long(b"V" * 8191)))),
]

TABLE_VECTORS = [*GOOD_TABLES, *BAD_TABLES]

HEADERS = long(short(b"k"), b"I", b"\x00\x00\x00\x07")
EVERYTHING = b"".join(
    [
        b"\xff\xfc", short(b"text/plain"), short(b"gzip"), HEADERS, b"\x02", b"\x09", short(b"c"), short(b"r"),
        short(b"60000"), short(b"m"), b"\x00\x00\x00\x00\x00\x00\x00\x05", short(b"t"), short(b"u"), short(b"a"),
        short(b"cl"),
    ]
)  # fmt: skip

GOOD_PROPERTIES = [
    PropertiesVector("none", b"\x00\x00", BasicProperties()),
    PropertiesVector(
        "all",
        EVERYTHING,
        BasicProperties(
            b"text/plain", b"gzip", {b"k": 7}, 2, 9, b"c", b"r", b"60000", b"m", 5, b"t", b"u", b"a", b"cl"
        ),
    ),
    PropertiesVector("content type", b"\x80\x00" + short(b"a"), BasicProperties(content_type=b"a")),
    PropertiesVector("empty strings are there", b"\x80\x04\x00\x00", BasicProperties(b"", cluster_id=b"")),
    PropertiesVector("empty headers are there", b"\x20\x00" + long(), BasicProperties(headers={})),
    PropertiesVector("delivery mode", b"\x10\x00\x02", BasicProperties(delivery_mode=2)),
    PropertiesVector("priority", b"\x08\x00\xff", BasicProperties(priority=255)),
    PropertiesVector("timestamp", b"\x00\x40" + b"\xff" * 8, BasicProperties(timestamp=2**64 - 1)),
    PropertiesVector("expiration", b"\x01\x00" + short(b"100"), BasicProperties(expiration=b"100")),
    PropertiesVector(
        "the longest id", b"\x00\x80" + short(b"m" * 255), BasicProperties(message_id=b"m" * 255)
    ),
]

BAD_PROPERTIES = [
    PropertiesVector("nothing", b""),
    PropertiesVector("half of the flags", b"\x00"),
    PropertiesVector("more flags", b"\x00\x01\x00\x00"),
    PropertiesVector("a flag that means nothing", b"\x00\x02"),
    PropertiesVector("content type missing", b"\x80\x00"),
    PropertiesVector("content type cut short", b"\x80\x00\x02a"),
    PropertiesVector("headers missing", b"\x20\x00"),
    PropertiesVector("length of the headers cut short", b"\x20\x00\x00\x00\x00"),
    PropertiesVector("headers cut short", b"\x20\x00\x00\x00\x00\x03\x01k"),
    PropertiesVector("headers of nonsense", b"\x20\x00" + long(b"\x01kZ")),
    PropertiesVector("delivery mode missing", b"\x10\x00"),
    PropertiesVector("timestamp cut short", b"\x00\x40" + b"\x00" * 7),
    PropertiesVector("bytes behind the last", b"\x10\x00\x02\x00"),
    PropertiesVector("bytes behind none", b"\x00\x00\x00"),
]

PROPERTIES_VECTORS = [*GOOD_PROPERTIES, *BAD_PROPERTIES]

# whole publishes on channel 1: method, header, body frames
PUBLISHES = [
    frame(1, 1, publish(b"", b"q")) + frame(2, 1, header(0, b"\x00\x00")),
    frame(1, 1, publish(b"e", b"a.b", 1)) + frame(2, 1, header(4, EVERYTHING)) + frame(3, 1, b"body"),
    frame(1, 1, publish(b"e", b"k", 3)) + frame(2, 1, header(1, b"\x10\x00\x02")) + frame(3, 1, b"\xce"),
    frame(1, 1, publish("ä".encode(), "ö".encode())) + frame(2, 1, header(1, b"\x00\x00")) + frame(3, 1, b"x"),
    frame(1, 1, publish(b"e", b"k")) + frame(2, 1, header(4, b"\x00\x00")) + frame(3, 1, b"bo") + frame(3, 1, b"dy"),
]  # fmt: skip
