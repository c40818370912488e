"""Tables are complete, and messages and wills keep what belongs to them."""

from __future__ import annotations

import pytest
from fakes import START_NS

from millstream.broker.line import Ending
from millstream.model.errors import Reason
from millstream.model.message import NANOSECONDS
from millstream.protocols.mqtt.machine.events import PublishReceived
from millstream.protocols.mqtt.mapping import (
    ENDING_CODES,
    ENDING_TEXTS,
    REASON_CODES,
    encode_block,
    to_message,
    to_return_code,
    to_will,
)
from millstream.protocols.mqtt.wire import kinds, packets
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.properties import Properties, decode_properties


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_ours_has_a_code_of_mqtt(reason: Reason) -> None:
    assert code.get_reason_name(REASON_CODES[reason])
    is_fine = reason in (Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS, Reason.NO_SUBSCRIPTION_EXISTED)
    assert (REASON_CODES[reason] < 0x80) == is_fine


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_has_a_code_for_disconnect_and_a_sentence(ending: Ending) -> None:
    assert ENDING_CODES[ending] in code.ALLOWED_REASONS[kinds.DISCONNECT]
    assert ENDING_TEXTS[ending]


def test_two_endings_share_a_code_only_where_the_client_holds_too_much() -> None:
    assert ENDING_CODES[Ending.OUT_OF_MEMORY] == ENDING_CODES[Ending.TOO_SLOW]
    assert len(set(ENDING_CODES.values())) == len(Ending) - 1


@pytest.mark.parametrize(
    ("reason", "return_code"),
    [
        (code.SUCCESS, 0),
        (code.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (code.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (code.BAD_USER_NAME_OR_PASSWORD, 4),
        (code.NOT_AUTHORIZED, 5),
        (code.SERVER_BUSY, 3),
        (code.QUOTA_EXCEEDED, 3),
        (code.UNSPECIFIED_ERROR, 3),
    ],
)
def test_older_versions_hear_the_nearest_of_their_six_return_codes(reason: int, return_code: int) -> None:
    assert to_return_code(reason) == return_code


def test_a_publish_becomes_a_message_whose_expiry_is_a_deadline() -> None:
    event = PublishReceived(b"t", b"p", 2, 7, True, False)
    event.properties = b"\x01\x01"
    event.expiry_s = 30
    message = to_message(event, "c", START_NS)
    assert (message.topic, message.payload, message.guarantee, message.retain) == (b"t", b"p", 2, True)
    assert message.properties == b"\x01\x01"
    assert message.expires_ns == START_NS + 30 * NANOSECONDS
    assert message.publisher == "c"


def test_a_publish_without_expiry_never_expires_and_one_of_zero_is_over_at_once() -> None:
    event = PublishReceived(b"t", b"p", 0, 0, False, False)
    assert to_message(event, "c", START_NS).expires_ns == 0
    event.expiry_s = 0
    assert to_message(event, "c", START_NS).is_expired(START_NS)


def test_a_will_keeps_its_properties_apart_from_delay_and_expiry() -> None:
    wishes = Properties()
    wishes.will_delay_interval = 90
    wishes.message_expiry_interval = 40
    wishes.content_type = b"text"
    wishes.user_properties = [(b"a", b"1"), (b"a", b"1")]
    will = to_will(packets.Will(b"w", b"gone", 1, True, wishes), "c", 60)
    assert (will.delay_s, will.lifetime_s) == (60, 40)
    assert (will.message.topic, will.message.guarantee, will.message.retain) == (b"w", 1, True)
    kept, _ = decode_properties(
        bytes([len(will.message.properties)]) + will.message.properties,
        0,
        len(will.message.properties) + 1,
        kinds.PUBLISH,
    )
    assert kept is not None
    assert kept.content_type == b"text"
    assert kept.user_properties == [(b"a", b"1"), (b"a", b"1")]
    assert kept.message_expiry_interval is None


@pytest.mark.parametrize(("interval", "lifetime_s"), [(None, 0), (0, 1), (1, 1), (30, 30)])
def test_a_will_without_expiry_never_expires_and_one_of_zero_does(
    interval: int | None, lifetime_s: int
) -> None:
    properties = Properties()
    properties.message_expiry_interval = interval
    assert to_will(packets.Will(b"w", b"x", 0, True, properties), "c", 100).lifetime_s == lifetime_s


def test_a_block_has_no_length_in_front_however_long_it_is() -> None:
    properties = Properties()
    assert encode_block(properties) == b""
    properties.content_type = b"x" * 300
    assert encode_block(properties) == b"\x03\x01\x2c" + b"x" * 300
