"""From basic.publish to a message: the canonical view of its properties, expiry, further keys, codes."""

from __future__ import annotations

import json

import pytest

from millstream.broker.line import Ending
from millstream.model.errors import Reason, Refused
from millstream.model.message import Message
from millstream.model.native_properties import canonical_part, native_part
from millstream.protocols.amqp091.from_message import read_native
from millstream.protocols.amqp091.json_values import plain_properties
from millstream.protocols.amqp091.mapping import (
    ENDING_CODES,
    ENDING_TEXTS,
    HARD_CODES,
    REPLY_CODES,
    PropertyCache,
    expiry_of,
    extra_keys,
    make_message,
    plain_arguments,
    user_id_of,
)
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, FieldTable, Timestamp
from millstream.protocols.amqp091.wire.properties import (
    BasicProperties,
    decode_properties,
    encode_properties,
)
from millstream.protocols.mqtt.wire.kinds import PUBLISH
from millstream.protocols.mqtt.wire.primitives import encode_varint
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.protocols.mqtt.wire.properties import decode_properties as decode_mqtt
from millstream.queues.publish_options import PublishOptions, read_publish_options

NOW = 5_000_000_000
PROPERTIES_MAX = 1000


def publish(properties: BasicProperties, cache: PropertyCache | None = None) -> Message:
    raw = encode_properties(properties)
    return make_message(cache or PropertyCache(), b"ex", b"a.b", b"ex/a/b", raw, b"body", 1, 0, "amqp-1")


def with_headers(headers: FieldTable) -> BasicProperties:
    properties = BasicProperties()
    properties.headers = headers
    return properties


def view_of(message: Message) -> Properties:
    """What an MQTT client would read: decoded with all rules of MQTT 5."""
    block = canonical_part(message.properties)
    data = encode_varint(len(block)) + block
    return decode_mqtt(data, 0, len(data), PUBLISH, PROPERTIES_MAX)[0] or Properties()


def pairs_of(headers: FieldTable) -> list[tuple[bytes, bytes]]:
    return view_of(publish(with_headers(headers))).user_properties


def directions_of(message: Message) -> PublishOptions:
    found = read_publish_options(message.properties)
    assert found is not None
    return found


# ------------------------------------------------------------------- tables


def test_every_reason_and_every_ending_has_a_code() -> None:
    assert set(REPLY_CODES) == set(Reason)
    assert set(ENDING_CODES) == set(ENDING_TEXTS) == set(Ending)
    assert all(code in codes.NAMES for code in (*REPLY_CODES.values(), *ENDING_CODES.values()))


def test_codes_of_channels_are_not_hard() -> None:
    soft = {311, 312, 313, 403, 404, 405, 406, 200}
    assert set(codes.NAMES) - HARD_CODES == soft


# --------------------------------------------------------------------- view


def test_properties_with_a_counterpart_are_mqtt_properties() -> None:
    properties = BasicProperties()
    properties.content_type = b"text/plain"
    properties.correlation_id = b"\xff\x00 any bytes"
    properties.reply_to = b"answers.here"
    view = view_of(publish(properties))
    assert view.content_type == b"text/plain"
    assert view.correlation_data == b"\xff\x00 any bytes"
    assert view.response_topic == b"answers/here"
    assert view.user_properties == []


def test_the_other_properties_are_user_properties_behind_the_headers() -> None:
    properties = with_headers({b"first": b"1", b"second": b"2"})
    properties.content_encoding = b"gzip"
    properties.priority = 7
    properties.message_id = b"m-1"
    properties.timestamp = 1_700_000_000
    properties.type = b"order"
    properties.user_id = b"guest"
    properties.app_id = b"shop"
    properties.cluster_id = b"c"
    assert view_of(publish(properties)).user_properties == [
        (b"first", b"1"),
        (b"second", b"2"),
        (b"content-encoding", b"gzip"),
        (b"priority", b"7"),
        (b"message-id", b"m-1"),
        (b"timestamp", b"1700000000"),
        (b"type", b"order"),
        (b"user-id", b"guest"),
        (b"app-id", b"shop"),
        (b"cluster-id", b"c"),
    ]


def test_delivery_mode_and_expiration_do_not_stand_in_the_block() -> None:
    properties = BasicProperties()
    properties.delivery_mode = 2
    properties.expiration = b"1000"
    message = publish(properties)
    assert canonical_part(message.properties) == b""
    assert native_part(message.properties) == b"\x01\x02ex\x03a.b" + encode_properties(properties)


def test_header_values_of_every_type_are_texts() -> None:
    pairs = pairs_of(
        {
            b"text": "å".encode(),
            b"true": True,
            b"whole": -5,
            b"large": 2**60,
            b"float": 1.5,
            b"none": None,
            b"time": Timestamp(1_700_000_000),
            b"decimal": Decimal091(2, 314),
            b"bytes": ByteArray(b"\x00\xff"),
            b"no text": b"\xff\xfe",
            b"list": [1, b"two", [None]],
            b"table": {b"a": {b"b": Timestamp(3)}},
        }
    )
    assert dict(pairs) == {
        b"text": "å".encode(),
        b"true": b"true",
        b"whole": b"-5",
        b"large": str(2**60).encode(),
        b"float": b"1.5",
        b"none": b"null",
        b"time": b"1700000000",
        b"decimal": b"3.14",
        b"bytes": b"AP8=",
        b"no text": b"//4=",
        b"list": b'[1,"two",[null]]',
        b"table": b'{"a":{"b":3}}',
    }


def test_names_that_are_no_text_are_made_one() -> None:
    assert pairs_of({b"a\x00b": b"1", b"\xff": b"2"}) == [(b"a\\x00b", b"1"), (b"\\xff", b"2")]


def test_a_value_longer_than_mqtt_can_say_is_left_to_amqp_clients() -> None:
    message = publish(with_headers({b"long": b"x" * 65_536, b"longest": b"y" * 65_535}))
    assert [name for name, _ in view_of(message).user_properties] == [b"longest"]
    message.encoding = None  # as it comes back from a record
    headers = decode_properties(read_native(message).properties).headers
    assert headers is not None
    assert headers[b"long"] == b"x" * 65_536


def test_binary_correlation_data_and_the_payload_format_find_their_way_back() -> None:
    view = view_of(publish(with_headers({b"x-correlation-id": ByteArray(b"\x00\xff"), b"payload-format": 1})))
    assert view.correlation_data == b"\x00\xff"
    assert view.payload_format_indicator == 1


# --------------------------------------------------------------- directions


def test_the_queue_follows_the_priority_of_basic_and_not_a_header_of_that_name() -> None:
    properties = with_headers({b"priority": 9})
    assert directions_of(publish(properties)).priority == 0
    properties.priority = 4
    assert directions_of(publish(properties)).priority == 4


def test_the_header_x_delay_is_a_delay() -> None:
    assert directions_of(publish(with_headers({b"x-delay": 1500}))).delay_ms == 1500
    assert read_publish_options(publish(with_headers({b"x-delay": -1})).properties) is None


def test_producer_and_sequence_are_headers_of_those_names() -> None:
    found = directions_of(publish(with_headers({b"producer-id": b"p", b"sequence": 12})))
    assert (found.producer, found.sequence) == (b"p", 12)


# -------------------------------------------------------------------- cache


def test_equal_publishes_share_one_block_and_one_native() -> None:
    cache = PropertyCache()
    properties = with_headers({b"a": b"b"})
    first = publish(properties, cache)
    second = publish(properties, cache)
    assert second.properties is first.properties
    assert read_native(second) is read_native(first)
    properties.headers = {b"a": b"c"}
    third = publish(properties, cache)
    assert pairs_in(first) == [(b"a", b"b")]
    assert pairs_in(third) == [(b"a", b"c")]


def pairs_in(message: Message) -> list[tuple[bytes, bytes]]:
    return view_of(message).user_properties


def test_another_exchange_or_key_is_not_taken_for_the_last_one() -> None:
    cache = PropertyCache()
    raw = encode_properties(BasicProperties())
    for exchange, key in ((b"a", b"b"), (b"a", b"c"), (b"d", b"c"), (b"", b"")):
        message = make_message(cache, exchange, key, b"t", raw, b"", 0, 0, "")
        message.encoding = None
        native = read_native(message)
        assert (native.exchange, native.routing_key, native.properties) == (exchange, key, raw)


def test_more_properties_than_a_channel_remembers_are_still_their_own() -> None:
    cache = PropertyCache()
    for _ in range(2):
        for number in range(200):
            message = publish(with_headers({b"number": number}), cache)
            assert pairs_in(message) == [(b"number", str(number).encode())]


# ---------------------------------------------------------------- CC and BCC


def test_further_keys_are_read_from_cc_and_bcc() -> None:
    raw = encode_properties(with_headers({b"BCC": [b"hidden"], b"CC": [b"one", b"two", 3], b"other": b"CC"}))
    assert extra_keys(raw) == [b"one", b"two", b"hidden"]
    assert extra_keys(encode_properties(with_headers({b"other": b"CC"}))) == []
    assert extra_keys(encode_properties(BasicProperties())) == []


def test_a_cc_header_that_is_no_array_is_refused() -> None:
    with pytest.raises(Refused) as raised:
        extra_keys(encode_properties(with_headers({b"CC": b"one"})))
    assert raised.value.reason is Reason.PRECONDITION_FAILED


def test_nobody_receives_bcc() -> None:
    message = publish(with_headers({b"BCC": [b"hidden"], b"CC": [b"one"], b"kept": b"1"}))
    assert pairs_in(message) == [(b"CC", b'["one"]'), (b"kept", b"1")]
    assert b"hidden" not in message.properties
    headers = decode_properties(read_native(message).properties).headers
    assert headers == {b"CC": [b"one"], b"kept": b"1"}


# ------------------------------------------------------------------- others


def with_expiration(text: bytes) -> bytes:
    properties = BasicProperties()
    properties.expiration = text
    return encode_properties(properties)


def test_an_expiration_is_a_deadline() -> None:
    assert expiry_of(encode_properties(BasicProperties()), NOW) == 0
    assert expiry_of(with_expiration(b"1500"), NOW) == NOW + 1_500_000_000
    assert expiry_of(with_expiration(b"315360000000"), NOW) == NOW + 315_360_000_000_000_000


def test_an_expiration_of_nothing_is_good_for_this_moment_only() -> None:
    deadline = expiry_of(with_expiration(b"0"), NOW)
    message = Message(b"t", b"", 0, False, b"", deadline, "")
    assert not message.is_expired(NOW)
    assert message.is_expired(NOW + 1)


@pytest.mark.parametrize("text", [b"+1500", b"01500", b"+" + b"0" * 200 + b"1500"])
def test_an_expiration_may_have_a_sign_and_zeros_in_front(text: bytes) -> None:
    assert expiry_of(with_expiration(text), NOW) == NOW + 1_500_000_000
    assert expiry_of(with_expiration(b"-0"), NOW) == expiry_of(with_expiration(b"0"), NOW)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"-1", "{value_negative,-1}"),
        (b"315360000001", "{value_too_large,315360000001}"),
        (b"9" * 200, "{value_too_large," + "9" * 200 + "}"),
        (b"1.5", '{leftover_string,".5"}'),
        (b"1 ", '{leftover_string," "}'),
        (b'-0"\\\n', '{leftover_string,"\\"\\\\\\n"}'),
        (b" 1", "no_integer"),
        (b"", "no_integer"),
        (b"+", "no_integer"),
        (b"+-1", "no_integer"),
        (b"soon", "no_integer"),
        ("٣".encode(), "no_integer"),
    ],
)
def test_an_expiration_that_is_no_number_of_milliseconds_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(Refused) as raised:
        expiry_of(with_expiration(text), NOW)
    assert raised.value.reason is Reason.PRECONDITION_FAILED
    assert raised.value.text == f"invalid expiration '{text.decode()}': {why}"


def test_the_user_id_is_read_if_there_is_one() -> None:
    properties = with_headers({b"a": b"b"})
    assert user_id_of(encode_properties(properties)) is None
    properties.user_id = b""
    assert user_id_of(encode_properties(properties)) == b""
    properties.user_id = b"guest"
    assert user_id_of(encode_properties(properties)) == b"guest"


def test_arguments_become_what_json_can_say() -> None:
    plain = plain_arguments(
        {b"x-message-ttl": 1000, b"x-list": [b"a", {b"b": True}], b"x-time": Timestamp(1), b"x-none": None}
    )
    assert plain == {"x-message-ttl": 1000, "x-list": ["a", {"b": True}], "x-time": 1, "x-none": None}
    assert json.loads(json.dumps(plain)) == plain


def test_all_properties_can_be_shown() -> None:
    properties = with_headers({b"a": ByteArray(b"\x00")})
    properties.delivery_mode = 2
    properties.app_id = b"shop"
    shown = plain_properties(encode_properties(properties))
    assert shown == {"headers": {"a": "AA=="}, "delivery-mode": 2, "app-id": "shop"}
