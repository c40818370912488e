"""The decoder against the table of packets."""

from __future__ import annotations

import pytest
from vectors.mqtt_packets import VECTORS
from vectors.mqtt_vector import SIZE_MAX, Vector

from millstream.protocols.mqtt.wire.decode import FILTERS_MAX, decode_frame, decode_packet
from millstream.protocols.mqtt.wire.packets import PingReq, Publish
from millstream.protocols.mqtt.wire.violation import Violation

PACKETS = [vector for vector in VECTORS if vector.packet is not None]
FAULTS = [vector for vector in VECTORS if vector.violation is not None]
BEGINNINGS = [vector for vector in VECTORS if vector.packet is None and vector.violation is None]


def name_of(vector: Vector) -> str:
    return vector.name


def test_every_row_of_the_table_has_a_name_of_its_own() -> None:
    assert len({vector.name for vector in VECTORS}) == len(VECTORS) >= 150


@pytest.mark.parametrize("vector", PACKETS, ids=name_of)
def test_a_good_packet_is_decoded_wherever_it_stands_in_the_buffer(vector: Vector) -> None:
    around = b"\x55\xaa\x55"
    packet, position = decode_frame(around + vector.data + around, 3, vector.version, SIZE_MAX)
    assert packet == vector.packet
    assert position == 3 + len(vector.data)


@pytest.mark.parametrize("vector", FAULTS, ids=name_of)
def test_a_bad_packet_is_refused_with_its_reason(vector: Vector) -> None:
    with pytest.raises(Violation) as caught:
        decode_frame(vector.data, 0, vector.version, SIZE_MAX)
    assert caught.value.reason == vector.violation
    assert str(caught.value) == caught.value.text


@pytest.mark.parametrize("vector", FAULTS, ids=name_of)
def test_bytes_after_a_bad_packet_do_not_repair_it(vector: Vector) -> None:
    with pytest.raises(Violation) as caught:
        decode_frame(vector.data + b"\x01" * 64, 0, vector.version, SIZE_MAX)
    assert caught.value.reason == vector.violation


@pytest.mark.parametrize("vector", BEGINNINGS, ids=name_of)
def test_the_beginning_of_a_packet_waits_for_more(vector: Vector) -> None:
    assert decode_frame(vector.data, 0, vector.version, SIZE_MAX) == (None, 0)


@pytest.mark.parametrize("vector", PACKETS, ids=name_of)
def test_a_packet_cut_anywhere_waits_for_more(vector: Vector) -> None:
    for length in range(len(vector.data)):
        assert decode_frame(vector.data[:length], 0, vector.version, SIZE_MAX) == (None, 0)


def test_packets_in_a_row_come_out_one_by_one() -> None:
    buffer = b"\xc0\x00\x30\x04\x00\x01ax\xc0"
    first, position = decode_frame(buffer, 0, 4, SIZE_MAX)
    second, position = decode_frame(buffer, position, 4, SIZE_MAX)
    third, last = decode_frame(buffer, position, 4, SIZE_MAX)
    assert (first, second, third) == (PingReq(), Publish(b"a", b"x"), None)
    assert last == position == 8


def test_a_body_is_decoded_from_a_range_of_a_larger_buffer() -> None:
    buffer = b"....\x00\x01apayload...."
    assert decode_packet(buffer, 0x30, 4, 14, 4) == Publish(b"a", b"payload")


@pytest.mark.parametrize(
    ("first_byte", "head", "item"),
    [
        (0x82, b"\x00\x01\x00", b"\x00\x01a\x00"),
        (0x90, b"\x00\x01\x00", b"\x00"),
        (0xA2, b"\x00\x01\x00", b"\x00\x01a"),
        (0xB0, b"\x00\x01\x00", b"\x11"),
    ],
    ids=["SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK"],
)
def test_the_number_of_filters_in_a_packet_is_bounded(first_byte: int, head: bytes, item: bytes) -> None:
    for count, filters_max in ((FILTERS_MAX, FILTERS_MAX), (3, 3)):
        fits = head + item * count
        decode_packet(fits, first_byte, 0, len(fits), 5, filters_max)
        with pytest.raises(Violation) as caught:
            decode_packet(fits + item, first_byte, 0, len(fits + item), 5, filters_max)
        assert caught.value.reason == 0x97
