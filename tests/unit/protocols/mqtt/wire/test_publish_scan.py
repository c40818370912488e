"""The scan of PUBLISH properties: what it finds, and that it judges as the decoder does."""

from __future__ import annotations

import pytest
from vectors.mqtt_publish_packets import PUBLISH_PROPERTIES
from vectors.mqtt_vector import USER, Vector, block, text

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.properties import decode_properties
from millstream.protocols.mqtt.wire.publish_scan import PublishScan
from millstream.protocols.mqtt.wire.violation import Violation


def scan(data: bytes, before: bytes = b"", after: bytes = b"") -> PublishScan:
    result = PublishScan()
    result.scan(before + data + after, len(before), len(before + data))
    return result


def test_an_empty_block_has_nothing() -> None:
    found = scan(b"\x00", b"topic", b"payload")
    assert (found.first, found.position) == (6, 6)
    assert (found.expiry_s, found.expiry_at) == (-1, -1)
    assert (found.topic_alias, found.alias_at) == (0, -1)
    assert found.payload_format == -1
    assert not found.has_other


def test_expiry_and_alias_are_found_with_their_places() -> None:
    data = block(b"\x02\xff\xff\xff\xfe", b"\x23\x01\x02")
    found = scan(data, b"xy", b"payload")
    assert (found.first, found.position) == (3, 2 + len(data))
    assert (found.expiry_s, found.expiry_at) == (0xFFFFFFFE, 4)
    assert (found.topic_alias, found.alias_at) == (0x0102, 9)
    assert not found.has_other


@pytest.mark.parametrize(
    "other",
    [
        USER,
        b"\x01\x01",
        b"\x03" + text("typ/ä".encode()),
        b"\x03" + text(b"x" * 200),
        b"\x08" + text(b"r"),
        b"\x09" + text(b"\x00"),
        USER * 64,
    ],
)
def test_anything_else_is_told_and_passed(other: bytes) -> None:
    data = block(other, b"\x23\x00\x07")
    found = scan(data)
    assert found.has_other
    assert found.topic_alias == 7
    assert found.position == len(data)


def test_the_format_of_the_payload_is_told() -> None:
    assert scan(block(b"\x01\x01")).payload_format == 1
    assert scan(block(b"\x01\x00")).payload_format == 0


def test_a_scan_forgets_the_one_before() -> None:
    result = PublishScan()
    data = block(b"\x01\x01", b"\x02\x00\x00\x00\x05", b"\x23\x00\x07")
    result.scan(data, 0, len(data))
    result.scan(b"\x00", 0, 1)
    assert (result.expiry_s, result.topic_alias, result.payload_format) == (-1, 0, -1)
    assert (result.expiry_at, result.alias_at, result.has_other) == (-1, -1, False)


def test_a_client_must_not_send_subscription_identifiers() -> None:
    with pytest.raises(Violation) as caught:
        scan(block(b"\x0b\x01"))
    assert caught.value.reason == 0x82


def test_the_number_of_user_properties_is_bounded_by_the_owner() -> None:
    data = block(USER * 3)
    PublishScan(3).scan(data, 0, len(data))
    with pytest.raises(Violation) as caught:
        PublishScan(2).scan(data, 0, len(data))
    assert caught.value.reason == 0x82


@pytest.mark.parametrize("vector", PUBLISH_PROPERTIES, ids=lambda vector: vector.name)
def test_the_scan_judges_as_the_decoder_does(vector: Vector) -> None:
    start = vector.data.index(b"\x00\x01a") + 3
    with pytest.raises(Violation) as decoded:
        decode_properties(vector.data, start, len(vector.data), kinds.PUBLISH)
    with pytest.raises(Violation) as scanned:
        PublishScan().scan(vector.data, start, len(vector.data))
    if vector.data[start + 1] != 0x0B:
        assert scanned.value.reason == decoded.value.reason == vector.violation


def test_a_bad_character_far_inside_a_string_is_found() -> None:
    for length in (5, 31, 32, 33, 200):
        with pytest.raises(Violation):
            scan(block(b"\x03" + text(b"x" * length + b"\xc3")))
        with pytest.raises(Violation):
            scan(block(b"\x03" + text(b"x" * length + b"\x00")))
