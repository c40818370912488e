"""The encoder against the same table, and against what cannot be carried."""

from __future__ import annotations

import pytest
from vectors.mqtt_packets import VECTORS
from vectors.mqtt_vector import SIZE_MAX, Vector

from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Packet,
    PubAck,
    Publish,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Will,
)
from millstream.protocols.mqtt.wire.primitives import encode_varint
from millstream.protocols.mqtt.wire.properties import Properties, encode_properties

PACKETS = [vector for vector in VECTORS if vector.packet is not None]


@pytest.mark.parametrize("vector", [v for v in PACKETS if v.canonical], ids=lambda vector: vector.name)
def test_a_packet_is_written_in_the_bytes_of_the_table(vector: Vector) -> None:
    assert vector.packet is not None
    assert encode_packet(vector.packet, vector.version) == vector.data


@pytest.mark.parametrize("vector", PACKETS, ids=lambda vector: vector.name)
def test_what_is_written_is_read_back_as_the_same_packet(vector: Vector) -> None:
    assert vector.packet is not None
    data = encode_packet(vector.packet, vector.version)
    assert decode_frame(data, 0, vector.version, SIZE_MAX) == (vector.packet, len(data))


def test_what_only_mqtt_5_can_carry_is_left_out_before_it() -> None:
    properties = Properties()
    properties.reason_string = b"because"
    assert encode_packet(PubAck(1, 0x87, properties), 4) == b"\x40\x02\x00\x01"
    assert encode_packet(UnsubAck(1, [0x11], properties), 4) == b"\xb0\x02\x00\x01"
    entry = SubscribeEntry(b"a", 1, True, True, 2)
    assert encode_packet(Subscribe(1, [entry]), 4) == b"\x82\x06\x00\x01\x00\x01a\x01"


def test_an_empty_set_of_properties_is_written_like_none() -> None:
    assert encode_properties(Properties()) == encode_properties(None) == b"\x00"


@pytest.mark.parametrize(
    "packet",
    [
        Publish(b"t" * 65536, b""),
        Connect(4, "c" * 65536),
        Connect(4, "c", will=Will(b"t", b"p" * 65536)),
        Will(b"t", b""),
    ],
    ids=["topic", "client id", "will payload", "not a packet"],
)
def test_what_does_not_fit_is_the_callers_error(packet: Packet) -> None:
    with pytest.raises(ValueError):
        encode_packet(packet, 4)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        (2097151, b"\xff\xff\x7f"),
        (2097152, b"\x80\x80\x80\x01"),
        (268435455, b"\xff\xff\xff\x7f"),
    ],
)
def test_lengths_are_written_as_in_the_specifications_table(value: int, data: bytes) -> None:
    assert encode_varint(value) == data


def test_a_length_beyond_four_bytes_cannot_be_written() -> None:
    with pytest.raises(ValueError):
        encode_varint(268435456)


def test_a_password_does_not_show_when_a_connect_is_printed() -> None:
    assert "secret" not in repr(Connect(4, "dev-1", username="anna", password=b"secret"))
