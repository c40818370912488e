"""The AMQP 0-9-1 codec on methods, tables, properties and bytes nobody thought of."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectors.amqp091_contents import PROPERTIES_VECTORS, PUBLISHES, TABLE_VECTORS
from vectors.amqp091_methods import METHOD_VECTORS
from vectors.amqp091_vector import FRAME_MAX, MethodVector, PropertiesVector, TableVector, frame, header

from millstream.protocols.amqp091.wire.codes import BASIC, BODY, HEADER, METHOD
from millstream.protocols.amqp091.wire.field_table import (
    ByteArray,
    Decimal091,
    FieldTable,
    Timestamp,
    check_table,
    decode_table,
    encode_entries,
    encode_table,
)
from millstream.protocols.amqp091.wire.frames import HEADER_SIZE, PublishScan, decode_header, find_frame_end
from millstream.protocols.amqp091.wire.method import (
    BIT,
    DELIVERY_TAG,
    LONG,
    LONG_STRING,
    OCTET,
    ROUTING_KEY,
    SHORT,
    SHORT_STRING,
    TABLE,
)
from millstream.protocols.amqp091.wire.methods import (
    METHODS,
    BasicPublish,
    Method,
    decode_method,
    encode_method,
)
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

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(str.encode)
binaries = st.binary(max_size=12)
octets = st.integers(0, 0xFF)
shorts = st.integers(0, 0xFFFF)
longs = st.integers(0, 0xFFFFFFFF)
seconds = st.integers(0, 2**64 - 1)

scalars: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    binaries,
    st.builds(ByteArray, binaries),
    st.builds(Timestamp, seconds),
    st.builds(Decimal091, octets, longs),
)
values: st.SearchStrategy[object] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(binaries, inner, max_size=3),
    max_leaves=8,
)
tables: st.SearchStrategy[FieldTable] = st.dictionaries(binaries, values, max_size=4)

FIELDS: dict[int, st.SearchStrategy[object]] = {
    BIT: st.booleans(),
    OCTET: octets,
    SHORT: shorts,
    LONG: longs,
    DELIVERY_TAG: st.integers(0, 2**63 - 1),
    SHORT_STRING: names,
    ROUTING_KEY: binaries,
    LONG_STRING: binaries,
    TABLE: tables,
}
optional = st.none() | binaries
property_sets: st.SearchStrategy[BasicProperties] = st.builds(
    BasicProperties,
    optional,
    optional,
    st.none() | tables,
    st.none() | octets,
    st.none() | octets,
    optional,
    optional,
    optional,
    optional,
    st.none() | seconds,
    optional,
    optional,
    optional,
    optional,
)


def methods_of(kind: type[Method]) -> st.SearchStrategy[Method]:
    return st.tuples(*[FIELDS[field] for field in kind.layout if field in FIELDS]).map(
        lambda arguments: kind(*arguments)
    )


methods: st.SearchStrategy[Method] = st.sampled_from(METHODS).flatmap(methods_of)


@st.composite
def publish_frames(draw: st.DrawFn) -> bytes:
    """A publish as a client sends it: whole, in one or several body frames, sometimes on two channels by mistake."""
    channels = st.sampled_from([1, 1, 1, 1, 1, 1, 2, 0])
    exchange, key = draw(names), draw(binaries)
    method = encode_method(BasicPublish(exchange, key, draw(st.booleans()), draw(st.booleans())))
    raw = encode_properties(draw(property_sets))
    bodies = draw(st.lists(st.binary(min_size=1, max_size=20), max_size=2))
    size = len(b"".join(bodies)) + draw(st.sampled_from([0, 0, 0, 0, 1]))
    parts = [frame(METHOD, draw(channels), method), frame(HEADER, draw(channels), header(size, raw))]
    parts += [frame(BODY, draw(channels), body) for body in bodies]
    return b"".join(parts)


class Found(NamedTuple):
    channel: int
    method: BasicPublish
    properties: bytes
    body: bytes
    end: int


def find_slowly(data: bytes) -> Found | None:
    """The publish at the beginning, frame by frame; None when there is none that is whole and in order."""
    end = find_frame_end(data, 0, len(data), FRAME_MAX)
    if not end or data[0] != METHOD:
        return None
    channel = data[1:3]
    method = decode_method(data, 7, end - 1)
    start, end = end, find_frame_end(data, end, len(data), FRAME_MAX)
    if not isinstance(method, BasicPublish) or not end or data[start] != HEADER:
        return None
    if data[start + 1 : start + 3] != channel or channel == b"\x00\x00":
        return None
    class_id, body_size = decode_header(data, start + 7, end - 1)
    properties = data[start + 7 + HEADER_SIZE : end - 1]
    body = b""
    while class_id == BASIC and len(body) < body_size:
        start, end = end, find_frame_end(data, end, len(data), FRAME_MAX)
        if not end or data[start] != BODY or data[start + 1 : start + 3] != channel:
            return None
        body += data[start + 7 : end - 1]
    if class_id != BASIC or len(body) != body_size:
        return None
    return Found(int.from_bytes(channel, "big"), method, properties, body, end)


def find_fast(data: bytes) -> Found | None:
    scan = PublishScan()
    if not scan.scan(data, 0, len(data), FRAME_MAX):
        return None
    return Found(
        scan.channel,
        BasicPublish(scan.exchange, scan.routing_key, scan.mandatory, scan.immediate),
        data[scan.properties_start : scan.properties_end],
        data[scan.body_start : scan.body_end],
        scan.end,
    )


def is_refused(data: bytes) -> bool:
    try:
        check_properties(data)
    except Violation:
        return True
    return False


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(methods)
def test_a_method_survives_the_wire(method: Method) -> None:
    written = encode_method(method)
    assert decode_method(b"xyz" + written + b"\xce", 3, 3 + len(written)) == method


def test_every_method_takes_the_fields_of_its_layout() -> None:
    for kind in METHODS:
        fields = [field for field in kind.layout if field in FIELDS]
        assert len(inspect.signature(kind).parameters) == len(fields)


@given(tables)
def test_a_table_survives_the_wire(table: FieldTable) -> None:
    written = encode_table(table)
    found, position = decode_table(b"xyz" + written + b"z", 3, 4 + len(written))
    assert found == table
    assert repr(found) == repr(table)
    assert position == 3 + len(written)


@given(property_sets)
def test_properties_survive_the_wire_and_are_read_alike_in_part(properties: BasicProperties) -> None:
    raw = encode_properties(properties)
    check_properties(raw)
    assert decode_properties(raw) == properties
    assert delivery_mode_of(raw) == (properties.delivery_mode or 0)
    assert priority_of(raw) == (-1 if properties.priority is None else properties.priority)
    assert expiration_of(raw) == (properties.expiration or b"")
    start, end = find_headers(raw)
    assert raw[start:end] == (b"" if properties.headers is None else encode_table(properties.headers))


@given(property_sets, tables)
def test_editing_properties_changes_what_it_says_and_nothing_else(
    properties: BasicProperties, more: FieldTable
) -> None:
    raw = encode_properties(properties)
    shorter = decode_properties(without_expiration(raw))
    assert shorter.expiration is None
    shorter.expiration = properties.expiration
    assert shorter == properties

    extended = with_headers(raw, encode_entries(more))
    found = decode_properties(extended)
    assert found.headers == {**(properties.headers or {}), **more}
    found.headers = properties.headers
    assert found == properties

    removed = decode_properties(without_headers(extended, list(more)))
    kept = {name: value for name, value in (properties.headers or {}).items() if name not in more}
    assert removed.headers == kept


@given(publish_frames())
def test_one_look_finds_what_frame_by_frame_finds(data: bytes) -> None:
    fast = find_fast(data)
    if fast is not None:
        assert find_slowly(data) == fast
    for place in range(len(data)):
        assert find_fast(data[:place]) in (None, fast)


@given(publish_frames(), st.data())
def test_one_look_accepts_no_changed_bytes_that_frame_by_frame_refuses(
    data: bytes, chance: st.DataObject
) -> None:
    changed = bytearray(data)
    for _ in range(chance.draw(st.integers(1, 3))):
        changed[chance.draw(st.integers(0, len(data) - 1))] = chance.draw(octets)
    fast = find_fast(bytes(changed))
    if fast is not None:
        assert find_slowly(bytes(changed)) == fast


@given(names, binaries, property_sets, binaries, st.integers(1, 0xFFFF))
def test_one_look_finds_every_ordinary_publish(
    exchange: bytes, key: bytes, properties: BasicProperties, body: bytes, channel: int
) -> None:
    raw = encode_properties(properties)
    data = frame(METHOD, channel, encode_method(BasicPublish(exchange, key, False, False)))
    data += frame(HEADER, channel, header(len(body), raw))
    if body:
        data += frame(BODY, channel, body)
    found = find_fast(data)
    assert (found is not None) == exchange.isascii()
    assert found in (None, find_slowly(data))


def read_every_way(data: bytes) -> None:
    for read in (check_table, decode_table, decode_method, decode_header):
        try:
            read(data, 0, len(data))
        except Violation:
            pass
    try:
        find_slowly(data)
    except Violation:
        pass
    find_fast(data)


@given(st.binary(max_size=60) | st.sampled_from(PUBLISHES))
def test_bytes_nobody_sent_raise_nothing_but_violations(data: bytes) -> None:
    for start in range(min(len(data), 8) + 1):
        read_every_way(data[start:])
        read_every_way(b"\x00\x3c\x00\x14" + data[start:])
        is_refused(data[start:])


@given(st.sampled_from(METHOD_VECTORS), st.data())
def test_a_changed_method_raises_nothing_but_violations(vector: MethodVector, chance: st.DataObject) -> None:
    data = bytearray(vector.data)
    if data:
        data[chance.draw(st.integers(0, len(data) - 1))] = chance.draw(octets)
    try:
        found = decode_method(bytes(data), 0, len(data))
    except Violation:
        return
    written = encode_method(found)
    assert decode_method(written, 0, len(written)) == found


@given(st.sampled_from(TABLE_VECTORS), st.data())
def test_the_check_of_a_table_and_its_decoder_agree(vector: TableVector, chance: st.DataObject) -> None:
    data = bytearray(vector.data)
    data[chance.draw(st.integers(0, len(data) - 1))] = chance.draw(octets)
    try:
        end = check_table(bytes(data), 0, len(data))
    except Violation:
        end = 0
    try:
        after = decode_table(bytes(data), 0, len(data))[1]
    except Violation:
        after = 0
    assert end == after


@given(st.sampled_from(PROPERTIES_VECTORS), st.data())
def test_changed_properties_are_refused_or_can_be_read(
    vector: PropertiesVector, chance: st.DataObject
) -> None:
    data = bytearray(vector.data)
    if data:
        data[chance.draw(st.integers(0, len(data) - 1))] = chance.draw(octets)
    raw = bytes(data)
    if is_refused(raw):
        return
    properties = decode_properties(raw)
    assert expiration_of(without_expiration(raw)) == b""
    assert delivery_mode_of(raw) == (properties.delivery_mode or 0)
    assert priority_of(raw) == (-1 if properties.priority is None else properties.priority)
    assert is_refused(without_headers(raw, list(properties.headers or {}))) is False
