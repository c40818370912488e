"""Whatever an AMQP client publishes, MQTT clients can read, and the other way round."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.model.message import Message
from millstream.model.native_properties import canonical_part, with_address
from millstream.protocols.amqp091.from_message import NativeCache, make_native, read_native
from millstream.protocols.amqp091.json_values import plain_properties
from millstream.protocols.amqp091.mapping import PropertyCache, make_message
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, Timestamp
from millstream.protocols.amqp091.wire.properties import (
    BasicProperties,
    check_properties,
    decode_properties,
    encode_properties,
)
from millstream.protocols.mqtt.mapping import encode_block
from millstream.protocols.mqtt.wire.kinds import PUBLISH
from millstream.protocols.mqtt.wire.primitives import encode_varint
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.protocols.mqtt.wire.properties import decode_properties as decode_mqtt
from millstream.queues.publish_options import encode_user_property, read_publish_options, read_user_properties
from millstream.storage.segments.property_columns import PropertyReader

PAIRS_MAX = 1000
SHORT = st.one_of(
    st.none(), st.binary(max_size=255), st.sampled_from([b"", b"text", b"a.b", b"$queue/x", b"\xff"])
)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.binary(max_size=40),
    st.integers(0, 2**64 - 1).map(Timestamp),
    st.binary(max_size=40).map(ByteArray),
    st.builds(Decimal091, st.integers(0, 255), st.integers(0, 2**32 - 1)),
)
NAME = st.one_of(
    st.binary(max_size=255),
    st.sampled_from(
        [b"priority", b"x-delay", b"CC", b"BCC", b"x-death", b"payload-format", b"x-correlation-id"]
    ),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.binary(max_size=20), inner, max_size=3)
    ),
    max_leaves=8,
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=300).map(str.encode)
KNOWN_NAMES = (
    b"priority",
    b"timestamp",
    b"message-id",
    b"type",
    b"app-id",
    b"content-encoding",
    b"cluster-id",
)
KNOWN = st.sampled_from((*KNOWN_NAMES, b"user-id", b"x-death"))


@st.composite
def basic_properties(draw: st.DrawFn) -> BasicProperties:
    found = BasicProperties()
    found.content_type = draw(SHORT)
    found.content_encoding = draw(SHORT)
    found.headers = draw(st.one_of(st.none(), st.dictionaries(NAME, VALUE, max_size=5)))
    found.delivery_mode = draw(st.one_of(st.none(), st.integers(0, 255)))
    found.priority = draw(st.one_of(st.none(), st.integers(0, 255)))
    found.correlation_id = draw(SHORT)
    found.reply_to = draw(SHORT)
    found.expiration = draw(SHORT)
    found.message_id = draw(SHORT)
    found.timestamp = draw(st.one_of(st.none(), st.integers(0, 2**64 - 1)))
    found.type = draw(SHORT)
    found.user_id = draw(SHORT)
    found.app_id = draw(SHORT)
    found.cluster_id = draw(SHORT)
    return found


@st.composite
def mqtt_properties(draw: st.DrawFn) -> Properties:
    found = Properties()
    found.payload_format_indicator = draw(st.sampled_from([None, 0, 1]))
    found.content_type = draw(st.one_of(st.none(), TEXT))
    found.response_topic = draw(st.sampled_from([None, b"a/b.c", b"$queue/q", b"$queue/q/x", b"t" * 400]))
    found.correlation_data = draw(st.one_of(st.none(), st.binary(max_size=300)))
    names = st.one_of(TEXT, KNOWN)
    values = st.one_of(TEXT, st.sampled_from([b"5", b"-1", b"300", b"[]", b"[{}]", b'[{"count":1}]']))
    found.user_properties = draw(st.lists(st.tuples(names, values), max_size=6))
    return found


def read_as_mqtt(block: bytes) -> Properties:
    data = encode_varint(len(block)) + block
    found, end = decode_mqtt(data, 0, len(data), PUBLISH, PAIRS_MAX)
    assert end == len(data)
    return found or Properties()


def with_headers(headers: dict[bytes, object]) -> BasicProperties:
    found = BasicProperties()
    found.headers = headers
    return found


@settings(max_examples=150, deadline=None)
@example(with_headers({b"x-death": None}), b"", b"")
@given(basic_properties(), st.binary(max_size=255), st.binary(max_size=255))
def test_whatever_is_published_comes_back_whole_and_its_view_is_legal_mqtt(
    properties: BasicProperties, exchange: bytes, key: bytes
) -> None:
    raw = encode_properties(properties)
    message = make_message(PropertyCache(), exchange, key, b"t", raw, b"", 0, 0, "")
    attached = read_native(message)
    view = canonical_part(message.properties)
    stored = Message(b"t", b"", 0, False, message.properties, 0, "")
    for native in (make_native(stored, 0), NativeCache().read(stored, 0), attached):
        assert (native.exchange, native.routing_key) == (exchange, key)
        assert native.properties == attached.properties
    if b"BCC" not in (properties.headers or {}):
        assert attached.properties == raw
    read = read_as_mqtt(view)
    assert read.correlation_data is not None or properties.correlation_id is None
    read_publish_options(message.properties)
    reader = PropertyReader(True)
    reader.read(message.properties, 0, len(message.properties))
    assert reader.pair_count == len(read.user_properties)
    json.dumps(plain_properties(attached.properties))


@settings(max_examples=150, deadline=None)
@given(
    mqtt_properties(),
    st.sampled_from([b"a/b", b"$queue/q", b"$queue/q/k", b"$dlq/q", b"x/" * 200]),
    st.booleans(),
)
def test_whatever_mqtt_publishes_amqp_clients_can_decode(
    properties: Properties, topic: bytes, has_address: bool
) -> None:
    block = encode_block(properties)
    if has_address:
        block = with_address(block, b"dlx", b"key")
    native = read_native(Message(topic, b"", 1, False, block, 10_000_000_000, ""), 1)
    check_properties(native.properties)
    assert len(native.routing_key) <= 255
    found = decode_properties(native.properties)
    assert found.delivery_mode == 2
    told = set(found.headers or {})
    for name in KNOWN_NAMES:
        if getattr(found, name.decode().replace("-", "_")) is not None:
            told.add(name)
    for name, _ in properties.user_properties:
        assert name in told or (len(name) > 255 and b"x-user-properties" in told)
    for text in (found.content_type, found.reply_to, found.correlation_id, found.message_id):
        assert text is None or text.decode() is not None  # clients decode short strings as UTF-8


@settings(deadline=None)
@given(
    basic_properties(),
    st.lists(
        st.dictionaries(
            st.sampled_from(["queue", "count", "time"]),
            st.one_of(st.integers(), st.text(), st.none()),
            max_size=3,
        ),
        max_size=3,
    ),
)
def test_a_letter_can_always_be_delivered(
    properties: BasicProperties, deaths: list[dict[str, object]]
) -> None:
    raw = encode_properties(properties)
    message = make_message(PropertyCache(), b"", b"q", b"$queue/q", raw, b"", 0, 0, "")
    text = json.dumps(deaths).encode()
    block = message.properties + encode_user_property(b"x-death", text)
    native = read_native(Message(b"t", b"", 0, False, block, 0, ""))
    check_properties(native.properties)
    headers = decode_properties(native.properties).headers
    assert headers is not None
    assert b"x-death" in headers
    assert read_user_properties(block)[-1] == (b"x-death", text)
