"""Malformed packets on an open connection: every one closes it with the right reason, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, Clients, frame, text, unique_topic, varint

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)

MALFORMED = 0x81
PROTOCOL = 0x82
INVALID_TOPIC = 0x90
ALIAS = 0x94


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


# (clause and case, bytes for 3.1.1, bytes for 5.0, reasons that fit)
EVERYWHERE = [
    ("MQTT-2.1.3-1 CONNACK flags", b"\x21\x02\x00\x00", b"\x21\x03\x00\x00\x00", (MALFORMED, PROTOCOL)),
    ("MQTT-2.1.3-1 PUBACK flags", b"\x41\x02\x00\x01", b"\x41\x02\x00\x01", (MALFORMED,)),
    ("MQTT-2.1.3-1 PUBREC flags", b"\x51\x02\x00\x01", b"\x51\x02\x00\x01", (MALFORMED,)),
    ("MQTT-3.6.1-1 PUBREL flags", b"\x60\x02\x00\x01", b"\x60\x02\x00\x01", (MALFORMED,)),
    ("MQTT-3.6.1-1 PUBREL flags 6", b"\x66\x02\x00\x01", b"\x66\x02\x00\x01", (MALFORMED,)),
    ("MQTT-2.1.3-1 PUBCOMP flags", b"\x72\x02\x00\x01", b"\x72\x02\x00\x01", (MALFORMED,)),
    (
        "MQTT-3.8.1-1 SUBSCRIBE flags",
        b"\x80\x06\x00\x01\x00\x01a\x00",
        b"\x80\x07\x00\x01\x00\x00\x01a\x00",
        (MALFORMED,),
    ),
    (
        "MQTT-3.10.1-1 UNSUBSCRIBE flags",
        b"\xa0\x05\x00\x01\x00\x01a",
        b"\xa0\x06\x00\x01\x00\x00\x01a",
        (MALFORMED,),
    ),
    ("MQTT-2.1.3-1 PINGREQ flags", b"\xc1\x00", b"\xc1\x00", (MALFORMED,)),
    ("MQTT-3.14.1-1 DISCONNECT flags", b"\xe2\x00", b"\xe2\x00", (MALFORMED,)),
    ("PINGREQ with a body", b"\xc0\x01\x00", b"\xc0\x01\x00", (MALFORMED,)),
    ("packet type 0", b"\x00\x00", b"\x00\x00", (MALFORMED, PROTOCOL)),
    ("a server's CONNACK", b"\x20\x02\x00\x00", b"\x20\x03\x00\x00\x00", (PROTOCOL,)),
    ("a server's SUBACK", b"\x90\x03\x00\x01\x00", b"\x90\x04\x00\x01\x00\x00", (PROTOCOL,)),
    ("a server's UNSUBACK", b"\xb0\x02\x00\x01", b"\xb0\x04\x00\x01\x00\x00", (PROTOCOL,)),
    ("a server's PINGRESP", b"\xd0\x00", b"\xd0\x00", (PROTOCOL,)),
    (
        "remaining length of five bytes",
        b"\x30\x80\x80\x80\x80\x01",
        b"\x30\x80\x80\x80\x80\x01",
        (MALFORMED,),
    ),
    ("PUBACK cut short", b"\x40\x01\x00", b"\x40\x01\x00", (MALFORMED,)),
    ("PUBACK empty", b"\x40\x00", b"\x40\x00", (MALFORMED,)),
    ("MQTT-2.2.1-3 PUBACK id 0", b"\x40\x02\x00\x00", b"\x40\x02\x00\x00", (PROTOCOL, MALFORMED)),
    ("MQTT-2.2.1-3 PUBREC id 0", b"\x50\x02\x00\x00", b"\x50\x02\x00\x00", (PROTOCOL, MALFORMED)),
    ("MQTT-2.2.1-3 PUBREL id 0", b"\x62\x02\x00\x00", b"\x62\x02\x00\x00", (PROTOCOL, MALFORMED)),
    ("MQTT-2.2.1-3 PUBCOMP id 0", b"\x70\x02\x00\x00", b"\x70\x02\x00\x00", (PROTOCOL, MALFORMED)),
    # --- PUBLISH
    ("MQTT-3.3.1-4 QoS 3", b"\x36\x05\x00\x01a\x00\x01", b"\x36\x06\x00\x01a\x00\x01\x00", (MALFORMED,)),
    ("MQTT-3.3.1-2 DUP at QoS 0", b"\x38\x03\x00\x01a", b"\x38\x04\x00\x01a\x00", (MALFORMED, PROTOCOL)),
    (
        "MQTT-2.2.1-3 PUBLISH id 0",
        b"\x32\x05\x00\x01a\x00\x00",
        b"\x32\x06\x00\x01a\x00\x00\x00",
        (PROTOCOL,),
    ),
    ("PUBLISH without a topic field", b"\x30\x01\x00", b"\x30\x01\x00", (MALFORMED,)),
    ("PUBLISH with an empty body", b"\x30\x00", b"\x30\x00", (MALFORMED,)),
    ("PUBLISH topic cut short", b"\x30\x04\x00\x09ab", b"\x30\x04\x00\x09ab", (MALFORMED,)),
    ("PUBLISH QoS 1 without id", b"\x32\x03\x00\x01a", b"\x32\x03\x00\x01a", (MALFORMED,)),
    ("PUBLISH QoS 2 with half an id", b"\x34\x04\x00\x01a\x00", b"\x34\x04\x00\x01a\x00", (MALFORMED,)),
    ("MQTT-4.7.3-1 empty topic", b"\x30\x03\x00\x00x", b"\x30\x04\x00\x00\x00x", (PROTOCOL,)),
    (
        "MQTT-1.5.4-2 NUL in topic",
        b"\x30\x06\x00\x03a\x00bx",
        b"\x30\x07\x00\x03a\x00b\x00x",
        (MALFORMED,),
    ),
    (
        "MQTT-1.5.4-1 surrogate in topic",
        b"\x30\x06\x00\x03\xed\xa0\x80x",
        b"\x30\x07\x00\x03\xed\xa0\x80\x00x",
        (MALFORMED,),
    ),
    (
        "MQTT-1.5.4-1 overlong form in topic",
        b"\x30\x05\x00\x02\xc0\xafx",
        b"\x30\x06\x00\x02\xc0\xaf\x00x",
        (MALFORMED,),
    ),
    (
        "MQTT-1.5.4-1 stray byte in topic, QoS 1",
        b"\x32\x07\x00\x02a\xff\x00\x01x",
        b"\x32\x08\x00\x02a\xff\x00\x01\x00x",
        (MALFORMED,),
    ),
    (
        "MQTT-3.3.2-2 + in topic",
        b"\x30\x06\x00\x03a/+x",
        b"\x30\x07\x00\x03a/+\x00x",
        (INVALID_TOPIC, MALFORMED, PROTOCOL),
    ),
    (
        "MQTT-3.3.2-2 # in topic",
        b"\x30\x04\x00\x01#x",
        b"\x30\x05\x00\x01#\x00x",
        (INVALID_TOPIC, MALFORMED, PROTOCOL),
    ),
    (
        "MQTT-3.3.2-2 wildcard in topic, QoS 1",
        b"\x32\x06\x00\x01#\x00\x01x",
        b"\x32\x07\x00\x01#\x00\x01\x00x",
        (INVALID_TOPIC, MALFORMED, PROTOCOL),
    ),
    # --- SUBSCRIBE
    ("MQTT-3.8.3-2 no filter", b"\x82\x02\x00\x01", b"\x82\x03\x00\x01\x00", (PROTOCOL,)),
    (
        "MQTT-2.2.1-3 SUBSCRIBE id 0",
        b"\x82\x06\x00\x00\x00\x01a\x00",
        b"\x82\x07\x00\x00\x00\x00\x01a\x00",
        (PROTOCOL, MALFORMED),
    ),
    (
        "MQTT-3.8.3-4 QoS 3",
        b"\x82\x06\x00\x01\x00\x01a\x03",
        b"\x82\x07\x00\x01\x00\x00\x01a\x03",
        (PROTOCOL, MALFORMED),
    ),
    (
        "MQTT-3.8.3-5 reserved bits",
        b"\x82\x06\x00\x01\x00\x01a\x80",
        b"\x82\x07\x00\x01\x00\x00\x01a\x80",
        (MALFORMED,),
    ),
    ("filter without options", b"\x82\x05\x00\x01\x00\x01a", b"\x82\x06\x00\x01\x00\x00\x01a", (MALFORMED,)),
    (
        "MQTT-3.8.3-1 filter not UTF-8",
        b"\x82\x06\x00\x01\x00\x01\xff\x00",
        b"\x82\x07\x00\x01\x00\x00\x01\xff\x00",
        (MALFORMED,),
    ),
    (
        "MQTT-1.5.4-2 NUL in filter",
        b"\x82\x06\x00\x01\x00\x01\x00\x00",
        b"\x82\x07\x00\x01\x00\x00\x01\x00\x00",
        (MALFORMED,),
    ),
    ("SUBSCRIBE cut short", b"\x82\x01\x00", b"\x82\x01\x00", (MALFORMED,)),
    # --- UNSUBSCRIBE
    ("MQTT-3.10.3-2 no filter", b"\xa2\x02\x00\x01", b"\xa2\x03\x00\x01\x00", (PROTOCOL,)),
    (
        "MQTT-2.2.1-3 UNSUBSCRIBE id 0",
        b"\xa2\x05\x00\x00\x00\x01a",
        b"\xa2\x06\x00\x00\x00\x00\x01a",
        (PROTOCOL, MALFORMED),
    ),
    (
        "MQTT-3.10.3-1 filter not UTF-8",
        b"\xa2\x05\x00\x01\x00\x01\xff",
        b"\xa2\x06\x00\x01\x00\x00\x01\xff",
        (MALFORMED,),
    ),
    (
        "UNSUBSCRIBE filter cut short",
        b"\xa2\x04\x00\x01\x00\x05",
        b"\xa2\x05\x00\x01\x00\x00\x05",
        (MALFORMED,),
    ),
]


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("old", "new", "reasons"), [row[1:] for row in EVERYWHERE], ids=[row[0] for row in EVERYWHERE]
)
def test_a_malformed_packet_closes_the_connection(
    clients: Clients, version: int, old: bytes, new: bytes, reasons: tuple[int, ...]
) -> None:
    client = clients.open(version)  # [MQTT-4.13.1-1]
    client.send_bytes(new if version == 5 else old)
    client.expect_disconnect(*reasons)


def publish_with(block: bytes, topic: bytes = b"t", first: int = 0x32) -> bytes:
    packet_id = b"\x00\x01" if first & 6 else b""
    return frame(first, text(topic), packet_id, varint(len(block)), block, b"payload")


def packet_with(first: int, block: bytes, *rest: bytes) -> bytes:
    return frame(first, b"\x00\x01", varint(len(block)), block, *rest)


ONLY_FIVE = [
    ("MQTT-3.3.4-6 subscription id from a client", publish_with(b"\x0b\x01"), (PROTOCOL, MALFORMED)),
    ("payload format 2", publish_with(b"\x01\x02"), (PROTOCOL,)),
    ("payload format twice", publish_with(b"\x01\x01" * 2), (PROTOCOL,)),
    ("payload format cut short", publish_with(b"\x01"), (MALFORMED,)),
    ("expiry twice", publish_with(b"\x02\x00\x00\x00\x01" * 2), (PROTOCOL,)),
    ("expiry cut short", publish_with(b"\x02\x00"), (MALFORMED,)),
    ("content type twice", publish_with(b"\x03\x00\x01a" * 2), (PROTOCOL,)),
    ("MQTT-3.3.2-19 content type not UTF-8", publish_with(b"\x03\x00\x01\xff"), (MALFORMED,)),
    ("response topic twice", publish_with(b"\x08\x00\x01a" * 2), (PROTOCOL,)),
    (
        "MQTT-3.3.2-14 response topic with wildcard",
        publish_with(b"\x08\x00\x01#"),
        (PROTOCOL, MALFORMED, INVALID_TOPIC),
    ),
    ("MQTT-3.3.2-13 response topic not UTF-8", publish_with(b"\x08\x00\x01\xff"), (MALFORMED,)),
    ("correlation data twice", publish_with(b"\x09\x00\x01a" * 2), (PROTOCOL,)),
    ("topic alias twice", publish_with(b"\x23\x00\x01" * 2), (PROTOCOL,)),
    ("MQTT-3.3.2-8 topic alias 0", publish_with(b"\x23\x00\x00"), (ALIAS,)),
    ("MQTT-3.3.2-9 topic alias above the maximum", publish_with(b"\x23\x00\x41"), (ALIAS,)),
    ("MQTT-3.3.2-9 the same at QoS 0", publish_with(b"\x23\xff\xff", first=0x30), (ALIAS,)),
    ("topic alias never set", publish_with(b"\x23\x00\x05", topic=b""), (PROTOCOL,)),
    ("user property value missing", publish_with(b"\x26\x00\x01a"), (MALFORMED,)),
    ("MQTT-1.5.7-1 user property not UTF-8", publish_with(b"\x26\x00\x01a\x00\x01\xff"), (MALFORMED,)),
    ("unknown property", publish_with(b"\x7e\x00"), (MALFORMED, PROTOCOL)),
    ("session expiry in PUBLISH", publish_with(b"\x11\x00\x00\x00\x01"), (MALFORMED, PROTOCOL)),
    ("property block longer than the packet", frame(0x30, text(b"t"), b"\x20", b"x"), (MALFORMED,)),
    ("MQTT-1.5.5-1 property length not minimal", frame(0x30, text(b"t"), b"\x80\x00", b"x"), (MALFORMED,)),
    ("property length of five bytes", frame(0x30, text(b"t"), b"\x80\x80\x80\x80\x01", b"x"), (MALFORMED,)),
    ("MQTT-1.5.5-1 remaining length not minimal", b"\xc0\x80\x00", (MALFORMED,)),
    ("subscription identifier 0", packet_with(0x82, b"\x0b\x00", text(b"t"), b"\x00"), (PROTOCOL,)),
    (
        "subscription identifier twice",
        packet_with(0x82, b"\x0b\x01\x0b\x02", text(b"t"), b"\x00"),
        (PROTOCOL,),
    ),
    ("subscription identifier cut short", packet_with(0x82, b"\x0b", text(b"t"), b"\x00"), (MALFORMED,)),
    ("retain handling 3", packet_with(0x82, b"", text(b"t"), b"\x30"), (PROTOCOL, MALFORMED)),
    ("MQTT-3.8.3-4 no local on a share", packet_with(0x82, b"", text(b"$share/g/t"), b"\x04"), (PROTOCOL,)),
    (
        "topic alias in SUBSCRIBE",
        packet_with(0x82, b"\x23\x00\x01", text(b"t"), b"\x00"),
        (MALFORMED, PROTOCOL),
    ),
    ("subscription id in UNSUBSCRIBE", packet_with(0xA2, b"\x0b\x01", text(b"t")), (MALFORMED, PROTOCOL)),
    ("MQTT-3.4.2-1 PUBACK reason unknown", b"\x40\x03\x00\x01\x01", (PROTOCOL, MALFORMED)),
    ("MQTT-3.5.2-1 PUBREC reason unknown", b"\x50\x03\x00\x01\x92", (PROTOCOL, MALFORMED)),
    ("MQTT-3.6.2-1 PUBREL reason unknown", b"\x62\x03\x00\x01\x10", (PROTOCOL, MALFORMED)),
    ("MQTT-3.7.2-1 PUBCOMP reason unknown", b"\x70\x03\x00\x01\x80", (PROTOCOL, MALFORMED)),
    ("reason string twice", b"\x40\x0c\x00\x01\x00\x08\x1f\x00\x01a\x1f\x00\x01a", (PROTOCOL,)),
    ("PUBACK with session expiry", b"\x40\x09\x00\x01\x00\x05\x11\x00\x00\x00\x01", (MALFORMED, PROTOCOL)),
    ("MQTT-3.14.2-1 DISCONNECT reason unknown", b"\xe0\x01\x01", (PROTOCOL, MALFORMED)),
    ("DISCONNECT with receive maximum", b"\xe0\x05\x00\x03\x21\x00\x01", (MALFORMED, PROTOCOL)),
    ("session expiry twice in DISCONNECT", b"\xe0\x0c\x00\x0a" + b"\x11\x00\x00\x00\x00" * 2, (PROTOCOL,)),
    ("MQTT-3.15.1-1 AUTH flags", b"\xf1\x00", (MALFORMED,)),
    ("MQTT-3.15.2-1 AUTH reason unknown", b"\xf0\x02\x17\x00", (PROTOCOL, MALFORMED)),
    ("MQTT-4.12.0-6 AUTH without a method in CONNECT", b"\xf0\x02\x19\x00", (PROTOCOL,)),
    ("MQTT-4.12.0-6 empty AUTH", b"\xf0\x00", (PROTOCOL,)),
]


@pytest.mark.parametrize(
    ("data", "reasons"), [row[1:] for row in ONLY_FIVE], ids=[row[0] for row in ONLY_FIVE]
)
def test_a_malformed_mqtt_5_packet_closes_the_connection(
    clients: Clients, data: bytes, reasons: tuple[int, ...]
) -> None:
    client = clients.open(5)
    client.send_bytes(data)
    client.expect_disconnect(*reasons)


ONLY_FOUR = [
    ("MQTT3-3.14.1-1 DISCONNECT with a body", b"\xe0\x01\x00"),
    ("MQTT3-2.2.2-2 AUTH does not exist", b"\xf0\x00"),
    ("MQTT3-3.8.3-4 options of MQTT 5", b"\x82\x06\x00\x01\x00\x01a\x04"),
    ("PUBACK with a reason", b"\x40\x03\x00\x01\x00"),
    ("PUBREL with a reason", b"\x62\x03\x00\x01\x00"),
]


@pytest.mark.parametrize("data", [row[1] for row in ONLY_FOUR], ids=[row[0] for row in ONLY_FOUR])
def test_what_mqtt_3_1_1_does_not_know_closes_the_connection(clients: Clients, data: bytes) -> None:
    client = clients.open(4)
    client.send_bytes(data)
    client.expect_closed()


@BOTH_VERSIONS
def test_after_a_malformed_packet_nothing_behind_it_is_done(clients: Clients, version: int) -> None:
    topic = unique_topic()
    watcher = clients.open(version)
    watcher.subscribe(topic)
    client = clients.open(version)
    client.send_bytes(b"\xc1\x00" + encode_packet(Publish(topic, b"late"), version))
    client.expect_disconnect(MALFORMED)
    watcher.expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_came_before_a_malformed_packet_is_done(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()
    watcher = clients.open(version)
    watcher.subscribe(topic, 2)
    client = clients.open(version)
    packet_id = 5 if qos else 0
    client.send_bytes(
        encode_packet(Publish(topic, b"first", qos, packet_id=packet_id), version) + b"\xc1\x00"
    )
    client.wait_closed()
    watcher.take(topic, b"first", qos)


@BOTH_VERSIONS
def test_packets_may_be_split_at_any_byte(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    packets = [
        Subscribe(1, [SubscribeEntry(topic, 2)]),
        Publish(topic, b"zero"),
        Publish(topic, b"one", 1, packet_id=2),
        PingReq(),
        Unsubscribe(3, [topic]),
        Publish(topic, b"two", 2, packet_id=4),
        PubRel(4),
    ]
    for packet in packets:
        for byte in encode_packet(packet, version):
            client.send_bytes(bytes([byte]))
    nobody = 0x10 if version == 5 else 0
    client.expect(SubAck(1, [2]))
    client.take(topic, b"zero")
    client.expect_all(Publish(topic, b"one", 1, packet_id=1), PubAck(2))
    client.expect(PingResp())
    client.expect(UnsubAck(3, [0] if version == 5 else []))
    client.expect(PubRec(4, nobody))
    client.expect(PubComp(4))


@BOTH_VERSIONS
def test_a_broken_connection_does_not_disturb_others(clients: Clients, version: int) -> None:
    steady = clients.open(version)
    topic = unique_topic()
    steady.subscribe(topic)
    for row in EVERYWHERE[:10]:
        client = clients.open(version)
        client.send_bytes(row[2] if version == 5 else row[1])
    steady.send(Publish(topic, b"still here"))
    steady.take(topic, b"still here")


@BOTH_VERSIONS
@pytest.mark.parametrize(
    "topic",
    [b"\xef\xbb\xbfbom", b"\xf0\xaa\x9b\x94", b"a b\tc", b"//", b"/", b"a//b/", b"a.b*c>d", b"\x7f\xc2\x9f"],
    ids=["MQTT-1.5.4-3 U+FEFF", "U+2A6D4", "blanks", "//", "/", "empty levels", "NATS signs", "controls"],
)
def test_unusual_but_legal_topics_travel_unchanged(clients: Clients, version: int, topic: bytes) -> None:
    name = unique_topic() + topic
    client = clients.open(version)
    assert client.subscribe(name, 1) == 1
    client.send(Publish(name, b"x"))
    client.take(name, b"x")
