"""The decoders of AMQP 0-9-1: methods, tables, properties, frames, and the one look at a whole publish."""

from __future__ import annotations

from target import Target, expect
from test_amqp091_codec import Found, find_fast, find_slowly
from vectors.amqp091_contents import EVERYTHING, GOOD_TABLES, PROPERTIES_VECTORS, PUBLISHES, TABLE_VECTORS
from vectors.amqp091_methods import METHOD_VECTORS
from vectors.amqp091_vector import FRAME_MAX, frame, header, long, method, publish, short

from millstream.protocols.amqp091.wire.codes import HEADER, METHOD
from millstream.protocols.amqp091.wire.field_table import (
    check_table,
    decode_table,
    encode_entries,
    encode_table,
)
from millstream.protocols.amqp091.wire.frames import decode_header, find_frame_end
from millstream.protocols.amqp091.wire.methods import METHODS, Method, decode_method, encode_method
from millstream.protocols.amqp091.wire.properties import (
    BasicProperties,
    check_properties,
    decode_properties,
    delivery_mode_of,
    encode_properties,
    expiration_of,
    find_headers,
    priority_of,
    with_headers,
    without_expiration,
    without_headers,
)
from millstream.protocols.amqp091.wire.violation import Violation

ADDED = encode_entries({b"x-death": [{b"count": 1}]})


def read_method(data: bytes) -> object:
    """The first byte chooses the method, the rest is its arguments."""
    if not data:
        return None
    kind = METHODS[data[0] % len(METHODS)]
    payload = method(kind.class_id, kind.method_id, data[1:])
    return decode_method(payload, 0, len(payload))


def check_method(data: bytes, found: object) -> None:
    if not isinstance(found, Method):
        return
    written = encode_method(found)
    again = decode_method(written, 0, len(written))
    # by bytes: a float that is no number is not equal to itself
    expect(encode_method(again) == written, "what was read can be written and read again")
    expect(type(again) is type(found), "a method stays what it is")


def read_table(data: bytes) -> object:
    return decode_table(data, 0, len(data))


def check_written_table(data: bytes, found: object) -> None:
    assert isinstance(found, tuple)
    table, position = found
    expect(position == check_table(data, 0, len(data)), "the check and the decoder end at the same place")
    written = encode_table(table)
    again, _ = decode_table(written, 0, len(written))
    expect(encode_table(again) == written, "what was read can be written and read again")


def read_properties(data: bytes) -> object:
    return decode_properties(data)


def check_parts(data: bytes, found: object) -> None:
    """The small readers and the editors on what the decoder let pass."""
    assert isinstance(found, BasicProperties)
    written = encode_properties(found)
    expect(encode_properties(decode_properties(written)) == written, "properties survive the wire")
    expect(delivery_mode_of(data) == (found.delivery_mode or 0), "both find the same delivery mode")
    priority = -1 if found.priority is None else found.priority
    expect(priority_of(data) == priority, "both find the same priority")
    expect(expiration_of(data) == (found.expiration or b""), "both find the same expiration")
    start, end = find_headers(data)
    expect((start == 0) == (found.headers is None), "both find headers or none")
    expect(start == 0 or check_table(data, start, end) == end, "headers are a whole table")
    names = list(found.headers or {})
    for edited in (
        without_expiration(data),
        without_headers(data, names),
        with_headers(without_headers(data, names), ADDED),
    ):
        check_properties(edited)
    expect(decode_properties(without_headers(data, names)).headers in (None, {}), "headers can be taken out")


def read_frames(data: bytes) -> object:
    """Bytes as they come from a socket, frame by frame, each payload decoded."""
    position = 0
    while position < len(data):
        end = find_frame_end(data, position, len(data), FRAME_MAX)
        if end == 0:
            break
        expect(position + 8 <= end <= len(data), "a frame moves on by its size")
        if data[position] == METHOD:
            decode_method(data, position + 7, end - 1)
        elif data[position] == HEADER:
            class_id, body_size = decode_header(data, position + 7, end - 1)
            expect(0 <= class_id <= 0xFFFF and body_size >= 0, "a header has a class and a size")
        position = end
    return position


def scan_publish(data: bytes) -> object:
    """The bytes as they are, then as the parts of a publish whose sizes are right."""
    return data, find_fast(data), wrap(data), find_fast(wrap(data))


def wrap(data: bytes) -> bytes:
    """The first two bytes say where the arguments end and where the properties do; the rest is the body."""
    arguments_end = 2 + (data[0] if data else 0)
    properties_end = arguments_end + (data[1] if len(data) > 1 else 0)
    body = data[properties_end:]
    parts = frame(1, 1, method(60, 40, data[2:arguments_end]))
    parts += frame(2, 1, header(len(body), data[arguments_end:properties_end]))
    return parts + frame(3, 1, body) if body else parts


def check_scan(data: bytes, result: object) -> None:
    assert isinstance(result, tuple)
    for buffer, found in (result[:2], result[2:]):
        if isinstance(found, Found):
            try:
                slow = find_slowly(buffer)
            except Violation as violation:
                raise AssertionError("one look takes what frame by frame refuses") from violation
            expect(slow == found, "one look and frame by frame find the same")


# as much work as a few kilobytes can ask for
MANY = [
    long(b"\x00V" * 1024),
    long(b"\x00V" * 2000),
    long(b"\x01kA", long(b"V" * 1023)),
    long(b"\x01kA", long(b"A\x00\x00\x00\x00" * 1023)),
    long(b"".join(short(b"%d" % number) + b"T" + b"\x00" * 8 for number in range(1024))),
    long(b"".join(short(b"%d" % number) + b"F\x00\x00\x00\x00" for number in range(1024))),
    long(b"\x00S", long(b"x" * 100_000)),
]
TABLES = [vector.data for vector in TABLE_VECTORS] + MANY
PROPERTIES = [vector.data for vector in PROPERTIES_VECTORS]
PROPERTIES += [b"\x20\x00" + table for table in [vector.data for vector in GOOD_TABLES] + MANY]
CHOICES = {(kind.class_id, kind.method_id): at for at, kind in enumerate(METHODS)}


def choose(data: bytes) -> list[bytes]:
    """The arguments of a method behind the byte that chooses it; nothing when there is no such method."""
    at = CHOICES.get((int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")))
    return [] if at is None else [bytes([at]) + data[4:]]


ARGUMENTS = [chosen for vector in METHOD_VECTORS for chosen in choose(vector.data)]
for table in MANY:
    ARGUMENTS += choose(method(50, 10, b"\x00\x00", short(b"q"), b"\x00", table))
FRAMES = [frame(1, 1, vector.data) for vector in METHOD_VECTORS if len(vector.data) < FRAME_MAX]
FRAMES += PUBLISHES
FRAMES += [
    b"".join(PUBLISHES),
    frame(8, 0) * 128,
    frame(3, 1) * 128,
    frame(1, 1, method(60, 80, b"\x00" * 9)) * 40,
]
SCANS = [
    *PUBLISHES,
    b"\x07\x02\x00\x00\x01e\x01k\x00\x00\x00body",
    b"\x05" + bytes([len(EVERYTHING)]) + b"\x00\x00\x00\x00\x03" + EVERYTHING,
    frame(1, 1, publish(b"e" * 255, b"k" * 255)) + frame(2, 1, header(0, b"\x00\x00")),
]

AMQP091_TARGETS: dict[str, Target] = {
    "amqp091-methods": Target(read_method, ARGUMENTS, check_method),
    "amqp091-tables": Target(read_table, TABLES, check_written_table),
    "amqp091-properties": Target(read_properties, PROPERTIES, check_parts),
    "amqp091-frames": Target(read_frames, FRAMES),
    "amqp091-publish-scan": Target(scan_publish, SCANS, check_scan),
}
