"""A message as AMQP clients get it: their own byte for byte, others' made from the canonical block."""

from __future__ import annotations

import json

import pytest

from millstream.model.message import NANOSECONDS, Message
from millstream.model.native_properties import canonical_part, has_carried, with_address
from millstream.model.routing_key import topic_of_name
from millstream.protocols.amqp091.from_message import Native, NativeCache, read_native, reply_to_of
from millstream.protocols.amqp091.mapping import PropertyCache, make_message
from millstream.protocols.amqp091.wire.field_table import ByteArray, FieldTable, Timestamp
from millstream.protocols.amqp091.wire.properties import (
    BasicProperties,
    check_properties,
    decode_properties,
    encode_properties,
)
from millstream.protocols.mqtt.mapping import encode_block
from millstream.protocols.mqtt.wire.frames import PublishFrames, get_frames
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.queues.publish_options import encode_user_property, read_user_properties

NOW = 9_000_000_000
DEATHS = [
    {
        "count": 2,
        "reason": "expired",
        "queue": "waiting",
        "time": 1_700_000_000,
        "exchange": "",
        "routing-keys": ["waiting", "x"],
        "original-expiration": "500",
    },
    {
        "count": 1,
        "reason": "rejected",
        "queue": "work",
        "time": 1_600_000_000,
        "exchange": "e",
        "routing-keys": [],
    },
]


def of_mqtt(
    properties: Properties, topic: bytes = b"a/b", guarantee: int = 1, expires_ns: int = 0
) -> Message:
    return Message(topic, b"body", guarantee, False, encode_block(properties), expires_ns, "client")


def with_pairs(*pairs: tuple[bytes, bytes]) -> Properties:
    properties = Properties()
    properties.user_properties = list(pairs)
    return properties


def made(message: Message, now_ns: int = 0) -> BasicProperties:
    native = read_native(message, now_ns)
    check_properties(native.properties)
    return decode_properties(native.properties)


def headers_of(message: Message) -> FieldTable:
    return made(message).headers or {}


def from_record(message: Message) -> Message:
    """As it comes back from a store."""
    return Message(
        message.topic,
        message.payload,
        message.guarantee,
        message.retain,
        message.properties,
        message.expires_ns,
        message.publisher,
    )


def amqp_message(headers: FieldTable | None = None, expiration: bytes | None = None) -> Message:
    properties = BasicProperties()
    properties.headers = headers
    properties.expiration = expiration
    properties.delivery_mode = 2
    raw = encode_properties(properties)
    return make_message(PropertyCache(), b"ex", b"key", b"ex/key", raw, b"body", 1, 0, "amqp-1")


# ------------------------------------------------------------------ carried


@pytest.mark.parametrize("size", [0, 10, 65_000, 65_535, 130_000, 400_000])
def test_properties_of_an_amqp_publisher_come_back_byte_for_byte(size: int) -> None:
    # a type letter that our encoder does not write: it must survive
    entry = b"\x01ss\x00\x05" + b"\x01xx" + size.to_bytes(4, "big") + bytes(size)
    raw = b"\x20\x00" + len(entry).to_bytes(4, "big") + entry
    message = make_message(PropertyCache(), b"ex", b"key", b"ex/key", raw, b"", 0, 0, "")
    for native in (read_native(message), read_native(from_record(message))):
        assert (native.exchange, native.routing_key, native.properties) == (b"ex", b"key", raw)


def test_a_message_from_a_record_is_read_once_for_all_its_receivers() -> None:
    message = from_record(amqp_message())
    assert read_native(message) is read_native(message)


def test_neighbours_from_records_share_what_was_read() -> None:
    cache = NativeCache()
    first, second = from_record(amqp_message()), from_record(amqp_message())
    assert cache.read(first, NOW) is cache.read(second, NOW)
    other = from_record(amqp_message({b"a": 1}))
    assert cache.read(other, NOW).properties != read_native(first).properties
    plain = cache.read(of_mqtt(with_pairs((b"a", b"b")), b"x/y"), NOW)
    assert plain.routing_key == b"x.y"


def test_a_fan_out_to_both_protocols_keeps_what_each_of_them_made() -> None:
    ours = amqp_message()
    native = read_native(ours)
    frames = get_frames(ours)
    assert get_frames(ours) is frames
    assert read_native(ours) is native
    theirs = of_mqtt(with_pairs((b"a", b"b")))
    theirs.encoding = frames = PublishFrames()
    native = read_native(theirs)
    assert get_frames(theirs) is frames
    assert read_native(theirs) is native


def test_frames_of_one_message_never_hang_on_a_native_that_others_share() -> None:
    cache = PropertyCache()
    raw = encode_properties(BasicProperties())
    first = make_message(cache, b"", b"q", b"$queue/q", raw, b"one", 0, 0, "")
    second = make_message(cache, b"", b"q", b"$queue/q", raw, b"two", 0, 0, "")
    get_frames(first)
    assert isinstance(second.encoding, Native)
    assert second.encoding.other is None
    assert get_frames(second) is not get_frames(first)


# ------------------------------------------------------------- dead letters


def letter_of(message: Message, deaths: object, *words: bytes) -> Message:
    block = message.properties + encode_user_property(b"x-death", json.dumps(deaths).encode())
    for word in words:
        block += encode_user_property(word, b"w")
    return Message(message.topic, message.payload, 1, False, block, 0, message.publisher)


def test_a_dead_letter_says_what_became_of_it_and_never_expires_again() -> None:
    message = amqp_message({b"kept": 1}, b"500")
    native = read_native(letter_of(message, DEATHS, b"x-first-death-queue", b"another"))
    decoded = decode_properties(native.properties)
    assert decoded.expiration is None
    assert decoded.delivery_mode == 2
    assert decoded.headers == {
        b"kept": 1,
        b"x-death": [
            {
                b"count": 2,
                b"reason": b"expired",
                b"queue": b"waiting",
                b"time": Timestamp(1_700_000_000),
                b"exchange": b"",
                b"routing-keys": [b"waiting", b"x"],
                b"original-expiration": b"500",
            },
            {
                b"count": 1,
                b"reason": b"rejected",
                b"queue": b"work",
                b"time": Timestamp(1_600_000_000),
                b"exchange": b"e",
                b"routing-keys": [],
            },
        ],
        b"x-first-death-queue": b"w",
    }


def test_a_letter_that_died_before_has_one_history() -> None:
    """The publisher sent the history it had received: the queue's goes on from there and replaces it."""
    first = read_native(letter_of(amqp_message(), DEATHS[1:]))
    again = make_message(PropertyCache(), b"", b"q", b"$queue/q", first.properties, b"", 1, 0, "")
    assert json.loads(dict(read_user_properties(again.properties))[b"x-death"]) == [DEATHS[1]]
    block = again.properties
    start = block.index(b"\x26\x00\x07x-death")
    letter = Message(again.topic, b"", 1, False, block[:start], 0, "")
    deaths = headers_of(letter_of(letter, DEATHS))[b"x-death"]
    assert isinstance(deaths, list)
    assert len(deaths) == 2


def test_a_letter_published_again_is_an_ordinary_message_until_it_dies_again() -> None:
    headers = headers_of(letter_of(amqp_message(), DEATHS))
    again = from_record(amqp_message(headers, b"5000"))
    assert made(again).expiration == b"5000"
    assert headers_of(again) == headers


def test_a_dead_letter_of_an_mqtt_publisher_has_the_same_history() -> None:
    letter = letter_of(of_mqtt(with_pairs((b"a", b"b"))), DEATHS)
    readdressed = with_address(letter.properties, b"dlx", b"dead")
    message = Message(b"a/b", b"", 1, False, readdressed, 0, "")
    native = read_native(message)
    assert (native.exchange, native.routing_key) == (b"dlx", b"dead")
    headers = headers_of(message)
    assert headers[b"a"] == b"b"
    deaths = headers[b"x-death"]
    assert isinstance(deaths, list)
    assert deaths[0][b"time"] == Timestamp(1_700_000_000)


@pytest.mark.parametrize("text", [b"no json", b"{}", b'["x"]', b"[" * 5000, b"1"])
def test_a_history_that_is_none_is_a_text(text: bytes) -> None:
    assert headers_of(of_mqtt(with_pairs((b"x-death", text)))) == {b"x-death": text}
    message = amqp_message()
    block = message.properties + encode_user_property(b"x-death", text)
    assert headers_of(Message(b"t", b"", 1, False, block, 0, "")) == {b"x-death": text}


@pytest.mark.parametrize(
    "entry",
    [
        {"count": 2**70},
        {"time": -1},
        {"time": 2**64},
        {"queue": "q" * 300},
        {"routing-keys": [None, {}]},
        {"count": 1.5},
        {"queue": "\ud800"},
    ],
)
def test_whatever_stands_in_a_history_can_be_encoded(entry: dict[str, object]) -> None:
    message = of_mqtt(with_pairs((b"x-death", json.dumps([entry]).encode())))
    assert b"x-death" in headers_of(message)


def test_a_mark_inside_another_value_is_no_history() -> None:
    message = amqp_message({b"trap": b"\x26\x00\x07x-death"})
    assert headers_of(from_record(message)) == {b"trap": b"\x26\x00\x07x-death"}


# --------------------------------------------------------------------- made


def test_an_mqtt_message_comes_from_the_topic_exchange() -> None:
    native = read_native(of_mqtt(Properties(), b"sensors/v1.2/temp", 0))
    assert (native.exchange, native.routing_key) == (b"amq.topic", b"sensors.v1/2.temp")
    assert decode_properties(native.properties).delivery_mode == 1
    assert made(of_mqtt(Properties())).delivery_mode == 2


def test_an_mqtt_message_to_a_queue_comes_from_the_default_exchange() -> None:
    plain = of_mqtt(Properties(), b"$queue/ta%2Fsks")
    assert (read_native(plain).exchange, read_native(plain).routing_key) == (b"", b"ta/sks")
    assert made(plain).headers is None
    keyed = of_mqtt(Properties(), b"$queue/tasks/eu/one")
    assert (read_native(keyed).exchange, read_native(keyed).routing_key) == (b"", b"tasks")
    assert headers_of(keyed) == {b"x-source-topic": b"$queue/tasks/eu/one"}


def test_the_topic_of_a_key_that_had_to_be_cut_stands_in_a_header() -> None:
    topic = b"long/" + "é".encode() * 300
    message = of_mqtt(Properties(), topic)
    key = read_native(message).routing_key
    assert key == b"long." + "é".encode() * 125
    assert headers_of(message) == {b"x-source-topic": topic}


def test_properties_of_mqtt_have_their_counterparts() -> None:
    properties = with_pairs(
        (b"message-id", b"m"),
        (b"timestamp", b"1700000000"),
        (b"type", b"t"),
        (b"app-id", b"app"),
        (b"content-encoding", b"gzip"),
        (b"cluster-id", b"c"),
        (b"priority", b"9"),
        (b"other", b"o"),
    )
    properties.content_type = b"text/plain"
    properties.response_topic = b"answers/v1.0"
    properties.correlation_data = b"id-1"
    properties.payload_format_indicator = 1
    found = made(of_mqtt(properties))
    assert found.content_type == b"text/plain"
    assert found.reply_to == b"answers/v1.0"
    assert found.correlation_id == b"id-1"
    assert (found.message_id, found.type, found.app_id) == (b"m", b"t", b"app")
    assert (found.content_encoding, found.cluster_id) == (b"gzip", b"c")
    assert (found.timestamp, found.priority, found.delivery_mode) == (1_700_000_000, 9, 2)
    assert found.headers == {b"payload-format": 1, b"other": b"o"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"priority", b"256"),
        (b"priority", b"high"),
        (b"timestamp", b"1700000000000"),
        (b"timestamp", b"now"),
        (b"message-id", b"x" * 256),
        (b"user-id", b"admin"),
        (b"expiration", b"5"),
        (b"delivery-mode", b"1"),
        (b"reply-to", b"somewhere"),
    ],
)
def test_what_cannot_be_a_property_or_must_not_be_one_is_a_header(name: bytes, value: bytes) -> None:
    found = made(of_mqtt(with_pairs((name, value))))
    assert found.headers == {name: value}
    assert (found.priority, found.timestamp, found.message_id, found.user_id) == (None, None, None, None)
    assert (found.expiration, found.delivery_mode, found.reply_to) == (None, 2, None)


def test_long_texts_and_binary_correlation_data_are_headers() -> None:
    properties = Properties()
    properties.content_type = b"t" * 256
    properties.correlation_data = b"\xff\x00"
    properties.response_topic = b"r" * 300
    found = made(of_mqtt(properties))
    assert (found.content_type, found.correlation_id, found.reply_to) == (None, None, None)
    assert found.headers == {
        b"content-type": b"t" * 256,
        b"x-correlation-id": ByteArray(b"\xff\x00"),
        b"reply-to": b"r" * 300,
    }


def test_a_name_that_comes_more_than_once_is_an_array_in_order() -> None:
    pairs = ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"type", b"x"), (b"type", b"y"))
    found = made(of_mqtt(with_pairs(*pairs)))
    assert found.headers == {b"a": [b"1", b"3"], b"b": b"2", b"type": [b"x", b"y"]}
    assert found.type is None


def test_names_longer_than_a_table_takes_are_not_lost() -> None:
    found = headers_of(of_mqtt(with_pairs((b"n" * 256, b"1"), (b"n" * 255, b"2"))))
    assert found == {b"n" * 255: b"2", b"x-user-properties": [[b"n" * 256, b"1"]]}


def test_the_time_left_is_the_expiration() -> None:
    message = of_mqtt(with_pairs((b"a", b"b")), expires_ns=NOW + 90 * NANOSECONDS)
    assert made(message, NOW).expiration == b"90000"
    assert made(of_mqtt(Properties(), expires_ns=NOW + 1), NOW).expiration == b"0"
    assert made(of_mqtt(Properties(), expires_ns=NOW + 1)).expiration is None


@pytest.mark.parametrize(
    ("topic", "reply_to"),
    [
        (b"a/b", b"a.b"),
        (b"a", b"a"),
        (b"a/b.c", b"a/b.c"),
        (b"$queue/answers", b"answers"),
        (b"$queue/a%2Fb", b"a/b"),
        (b"$queue/answers/x", b"$queue/answers/x"),
        (b"$dlq/answers", b"$dlq/answers"),
    ],
)
def test_a_response_topic_is_where_the_default_exchange_leads_to_it(topic: bytes, reply_to: bytes) -> None:
    assert reply_to_of(topic) == reply_to
    if not topic.startswith(b"$"):
        assert topic_of_name(reply_to) == topic


def test_nothing_made_here_is_carried_by_mqtt_messages() -> None:
    message = of_mqtt(with_pairs((b"a", b"b")))
    read_native(message)
    assert not has_carried(message.properties)
    assert canonical_part(message.properties) is message.properties
