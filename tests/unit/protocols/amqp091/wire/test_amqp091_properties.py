"""Message properties: whole against their vectors, read in part, and edited."""

from __future__ import annotations

import pytest
from vectors.amqp091_contents import BAD_PROPERTIES, EVERYTHING, GOOD_PROPERTIES, HEADERS
from vectors.amqp091_vector import SYNTAX, PropertiesVector, long

from millstream.protocols.amqp091.wire.field_table import encode_entries
from millstream.protocols.amqp091.wire.properties import (
    EMPTY,
    BasicProperties,
    check_properties,
    check_properties_at,
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

MIXED = long(b"\x01bb\x05", b"\x03BCCA\x00\x00\x00\x00", b"\x01sS\x00\x00\x00\x01x", b"\x03BCCV")


def name_of(vector: PropertiesVector) -> str:
    return vector.name


@pytest.mark.parametrize("vector", GOOD_PROPERTIES, ids=name_of)
def test_good_properties_are_decoded_and_encoded_as_they_were(vector: PropertiesVector) -> None:
    check_properties(vector.data)
    assert vector.properties is not None
    assert decode_properties(vector.data) == vector.properties
    assert encode_properties(vector.properties) == vector.data


@pytest.mark.parametrize("vector", BAD_PROPERTIES, ids=name_of)
def test_bad_properties_are_refused(vector: PropertiesVector) -> None:
    for read in (check_properties, decode_properties):
        with pytest.raises(Violation) as caught:
            read(vector.data)
        assert (caught.value.code, caught.value.is_hard) == (SYNTAX, True)


@pytest.mark.parametrize("vector", GOOD_PROPERTIES, ids=name_of)
def test_properties_are_checked_inside_their_bounds(vector: PropertiesVector) -> None:
    buffer = b"\xff\xff" + vector.data + b"\xff\xff"
    end = 2 + len(vector.data)
    check_properties_at(buffer, 2, end)
    for wrong in (*range(2, end), end + 1):
        with pytest.raises(Violation):
            check_properties_at(buffer, 2, wrong)


@pytest.mark.parametrize("vector", GOOD_PROPERTIES, ids=name_of)
def test_a_small_reader_finds_what_the_decoder_finds(vector: PropertiesVector) -> None:
    properties = vector.properties
    assert properties is not None
    assert delivery_mode_of(vector.data) == (properties.delivery_mode or 0)
    assert priority_of(vector.data) == (-1 if properties.priority is None else properties.priority)
    assert expiration_of(vector.data) == (properties.expiration or b"")
    start, end = find_headers(vector.data)
    assert (start == 0) == (properties.headers is None)
    if start:
        assert vector.data[start:end] == (HEADERS if properties.headers else long())


def test_headers_are_appended_byte_for_byte() -> None:
    more = encode_entries({b"x": b"y"})
    start, end = find_headers(EVERYTHING)
    assert with_headers(EVERYTHING, more) == EVERYTHING[:start] + long(HEADERS[4:], more) + EVERYTHING[end:]


@pytest.mark.parametrize(
    "properties",
    [
        BasicProperties(),
        BasicProperties(content_type=b"a", content_encoding=b"b"),
        BasicProperties(delivery_mode=2, cluster_id=b"c"),
        BasicProperties(content_type=b"a", priority=1, headers={}),
    ],
)
def test_headers_are_made_where_there_were_none(properties: BasicProperties) -> None:
    edited = decode_properties(with_headers(encode_properties(properties), encode_entries({b"x": 1})))
    assert edited.headers == {b"x": 1}
    edited.headers = properties.headers
    assert edited == properties


def test_headers_are_taken_out_and_the_others_keep_their_bytes() -> None:
    raw = b"\xa0\x00\x01a" + MIXED
    check_properties(raw)
    kept = long(b"\x01bb\x05", b"\x01sS\x00\x00\x00\x01x")
    assert without_headers(raw, [b"BCC", b"nothing"]) == b"\xa0\x00\x01a" + kept
    assert without_headers(raw, [b"b", b"s", b"BCC"]) == b"\xa0\x00\x01a" + long()
    assert without_headers(raw, [b"b"])[:4] == raw[:4]


def test_properties_without_such_headers_stay_the_same_object() -> None:
    for raw in (EMPTY, b"\xa0\x00\x01a" + MIXED, EVERYTHING, b"\x20\x00" + long()):
        assert without_headers(raw, [b"nothing"]) is raw


def test_the_expiration_is_taken_out() -> None:
    properties = decode_properties(EVERYTHING)
    properties.expiration = None
    assert without_expiration(EVERYTHING) == encode_properties(properties)
    assert without_expiration(b"\x01\x00\x03100") == EMPTY
    assert without_expiration(EMPTY) is EMPTY


@pytest.mark.parametrize(
    "properties",
    [
        BasicProperties(content_type=b"a" * 256),
        BasicProperties(priority=256),
        BasicProperties(delivery_mode=-1),
        BasicProperties(timestamp=1 << 64),
        BasicProperties(headers={b"k": object()}),
    ],
)
def test_what_cannot_be_carried_is_the_callers_error(properties: BasicProperties) -> None:
    with pytest.raises(ValueError):
        encode_properties(properties)


def test_only_what_is_there_is_shown() -> None:
    assert repr(BasicProperties(type=b"t", priority=0)) == "BasicProperties(priority=0, type=b't')"
