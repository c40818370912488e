"""Every property in every packet: who may carry it, how often, and how it compares."""

from __future__ import annotations

import pytest
from vectors.mqtt_vector import USER, block, text

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.properties import (
    ALLOWED_IN,
    PROPERTY_NAMES,
    Properties,
    decode_properties,
    encode_properties,
)
from millstream.protocols.mqtt.wire.violation import Violation

ANY = " ".join(name for name in kinds.KIND_NAMES if not name.startswith("PING"))

# property: a legal value on the wire, and the packets of table 2-4 of the specification
TABLE: dict[int, tuple[bytes, str]] = {
    0x01: (b"\x01", "PUBLISH will"),
    0x02: (b"\x00\x00\x00\x01", "PUBLISH will"),
    0x03: (text(b"t"), "PUBLISH will"),
    0x08: (text(b"t"), "PUBLISH will"),
    0x09: (text(b"t"), "PUBLISH will"),
    0x0B: (b"\x01", "PUBLISH SUBSCRIBE"),
    0x11: (b"\x00\x00\x00\x01", "CONNECT CONNACK DISCONNECT"),
    0x12: (text(b"t"), "CONNACK"),
    0x13: (b"\x00\x01", "CONNACK"),
    0x15: (text(b"t"), "CONNECT CONNACK AUTH"),
    0x16: (text(b"t") + b"\x15" + text(b"t"), "CONNECT CONNACK AUTH"),
    0x17: (b"\x01", "CONNECT"),
    0x18: (b"\x00\x00\x00\x01", "will"),
    0x19: (b"\x01", "CONNECT"),
    0x1A: (text(b"t"), "CONNACK"),
    0x1C: (text(b"t"), "CONNACK DISCONNECT"),
    0x1F: (text(b"t"), "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"),
    0x21: (b"\x00\x01", "CONNECT CONNACK"),
    0x22: (b"\x00\x01", "CONNECT CONNACK"),
    0x23: (b"\x00\x01", "PUBLISH"),
    0x24: (b"\x01", "CONNACK"),
    0x25: (b"\x01", "CONNACK"),
    0x26: (
        text(b"k") + text(b"v"),
        ANY,
    ),
    0x27: (b"\x00\x00\x00\x01", "CONNECT CONNACK"),
    0x28: (b"\x01", "CONNACK"),
    0x29: (b"\x01", "CONNACK"),
    0x2A: (b"\x01", "CONNACK"),
}


@pytest.mark.parametrize("identifier", range(0x30))
@pytest.mark.parametrize("kind", range(16), ids=list(kinds.KIND_NAMES))
def test_a_property_comes_only_in_its_packets(kind: int, identifier: int) -> None:
    value, packets = TABLE.get(identifier, (b"\x01", ""))
    data = block(bytes([identifier]) + value)
    if kinds.KIND_NAMES[kind] in packets.split():
        properties, position = decode_properties(data, 0, len(data), kind)
        assert properties is not None
        assert PROPERTY_NAMES[identifier] in dict(properties.present())
        assert position == len(data)
        decoded_again, _ = decode_properties(encode_properties(properties), 0, len(data), kind)
        assert decoded_again == properties
    else:
        with pytest.raises(Violation) as caught:
            decode_properties(data, 0, len(data), kind)
        assert caught.value.reason == 0x81


@pytest.mark.parametrize("identifier", sorted(set(TABLE) - {0x26}))
def test_a_property_comes_once(identifier: int) -> None:
    value, packets = TABLE[identifier]
    kind = kinds.KIND_NAMES.index(packets.split()[-1])
    one = bytes([identifier]) + value
    with pytest.raises(Violation) as caught:
        decode_properties(block(one + one), 0, 2 * len(one) + 1, kind)
    assert caught.value.reason == 0x82


@pytest.mark.parametrize("identifier", sorted(TABLE))
def test_a_property_cut_anywhere_is_malformed(identifier: int) -> None:
    value, packets = TABLE[identifier]
    kind = kinds.KIND_NAMES.index(packets.split()[0])
    whole = bytes([identifier]) + value
    if identifier == 0x16:
        whole = whole[:4]
    for length in range(1, len(whole)):
        data = block(whole[:length])
        with pytest.raises(Violation) as caught:
            decode_properties(data + b"\x01" * 8, 0, len(data), kind)
        assert caught.value.reason == 0x81


def test_the_table_of_the_code_names_every_property() -> None:
    assert set(ALLOWED_IN) == set(PROPERTY_NAMES) == set(TABLE)


def test_user_properties_keep_order_and_repetition() -> None:
    pairs = [(b"b", b"1"), (b"a", b"2"), (b"b", b"1"), (b"", b"")]
    data = block(*[b"\x26" + text(name) + text(value) for name, value in pairs])
    properties, _ = decode_properties(data, 0, len(data), kinds.PUBLISH)
    assert properties is not None
    assert properties.user_properties == pairs


def test_the_callers_bound_on_user_properties_holds() -> None:
    data = block(USER * 3)
    decode_properties(data, 0, len(data), kinds.PUBLISH, 3)
    with pytest.raises(Violation) as caught:
        decode_properties(data, 0, len(data), kinds.PUBLISH, 2)
    assert caught.value.reason == 0x82


def test_an_empty_block_is_no_properties() -> None:
    assert decode_properties(b"xx\x00yy", 2, 3, kinds.PUBLISH) == (None, 3)


def test_properties_are_equal_by_content() -> None:
    one, other = Properties(), Properties()
    assert one == other
    one.message_expiry_interval = 0
    assert one != other
    other.message_expiry_interval = 0
    assert one == other
    other.user_properties = [(b"a", b"b")]
    assert one != other
    assert repr(one) == "Properties(message_expiry_interval=0)"
