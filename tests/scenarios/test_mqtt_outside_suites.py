"""What conformance suites of others look for beyond the clauses: forms of refusal, padded lengths, generous defaults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, NEVER, Clients, RawClient, frame, props, text, unique, unique_topic

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, PingResp, PubAck, Publish, Will

MQTT = text(b"MQTT")


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


def pad(packet: bytes) -> bytes:
    """The same packet with a byte too many in its remaining length, which must be below 128."""
    assert packet[1] < 0x80
    return packet[:1] + bytes([packet[1] | 0x80, 0]) + packet[2:]


# ------------------------------------------------------------------ padded lengths


def test_before_mqtt_5_a_length_may_be_padded(clients: Clients) -> None:
    topic = unique_topic()
    readers = [clients.open(version) for version in (4, 5)]
    for reader in readers:
        reader.subscribe(topic, 1)
    sender = clients.new(4)
    sender.send_bytes(pad(encode_packet(Connect(4, unique("c")), 4)) + pad(b"\xc0\x00"))
    sender.expect(ConnAck(False, 0))
    sender.expect(PingResp())
    for qos in (0, 1):
        plain = encode_packet(Publish(topic, b"%d" % qos, qos, packet_id=qos), 4)
        sender.send_bytes(plain + pad(plain) + plain)
        for _ in range(3 * qos):
            sender.expect(PubAck(1))
    for reader in readers:
        for payload, qos in [(b"0", 0)] * 3 + [(b"1", 1)] * 3:
            reader.take(topic, payload, qos)
        reader.expect_nothing()


def test_nobody_else_sees_the_padding(clients: Clients) -> None:
    topic = unique_topic()
    reader = clients.open(4)
    reader.subscribe(topic, 0)
    sender = clients.open(4)
    plain = encode_packet(Publish(topic, b"x"), 4)
    sender.send_bytes(plain + pad(plain) + plain)
    assert reader.receive_bytes(3 * len(plain)) == 3 * plain


@pytest.mark.parametrize("is_first", [True, False], ids=["CONNECT", "later"])
def test_in_mqtt_5_a_padded_length_is_malformed(clients: Clients, is_first: bool) -> None:
    client = clients.new(5)  # [MQTT-1.5.5-1]
    if is_first:
        client.send_bytes(pad(encode_packet(Connect(5, unique("c")), 5)))
        client.expect_no_welcome(0x81)
    else:
        client.connect()
        client.send_bytes(pad(b"\xc0\x00"))
        client.expect_disconnect(0x81)


# -------------------------------------------------------------- refusals of CONNECT


@pytest.mark.parametrize("name", [b"XQTT", b"hj", b"mqtt", b""])
@BOTH_VERSIONS
def test_another_protocol_is_told_nothing(clients: Clients, version: int, name: bytes) -> None:
    client = clients.new(version)  # [MQTT-3.1.2-1]
    properties = b"\x00" if version == 5 else b""
    client.send_bytes(frame(0x10, text(name), bytes([version, 2, 0, 60]), properties, text(b"x")))
    client.expect_closed()


@pytest.mark.parametrize("level", [6, 7, 99, 255])
def test_an_unknown_level_is_refused_in_the_form_of_its_connect(clients: Clients, level: int) -> None:
    newer = clients.new(5)  # [MQTT-3.1.2-2]
    newer.send_bytes(frame(0x10, MQTT, bytes([level, 2, 0, 60, 0]), text(b"some-client")))
    assert newer.receive_bytes(5) == b"\x20\x03\x00\x84\x00"
    newer.expect_closed()
    older = clients.new(4)  # [MQTT3-3.1.2-2]
    older.send_bytes(frame(0x10, MQTT, bytes([level, 2, 0, 60]), text(b"some-client")))
    older.expect_refused(0x84, 1)


# -------------------------------------------------------------------------- CONNACK


def test_the_connack_says_what_can_be_had(clients: Clients) -> None:
    told = clients.new(5).connect().properties
    assert told is not None
    assert told.retain_available == told.wildcard_subscription_available == 1
    assert told.subscription_identifiers_available == told.shared_subscription_available == 1


def test_a_client_of_small_packets_is_told_what_it_must_know(clients: Clients) -> None:
    told = clients.new(5).connect("", properties=props(maximum_packet_size=60)).properties
    assert told is not None
    assert told.assigned_client_identifier
    assert told.retain_available is None


# ---------------------------------------------------------- too large for the client


@pytest.fixture
def small(clients: Clients) -> RawClient:
    """Takes one delivery at a time and no large ones, and its session outlives it."""
    client = clients.new(5)
    properties = props(maximum_packet_size=100, receive_maximum=1)
    client.connect(unique("c"), properties=properties, expiry_s=NEVER)
    return client


def test_one_message_too_large_holds_up_none_behind_it(clients: Clients, small: RawClient) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-25]
    small.subscribe(topic, 1)
    sender = clients.open(5)
    payloads = [b"x" * 200, b"first", b"x" * 200, b"second"]
    sender.send(*[Publish(topic, each, 1, packet_id=number) for number, each in enumerate(payloads, 1)])
    small.take(topic, b"first", 1)
    small.take(topic, b"second", 1)
    small.expect_nothing()


def test_one_retained_message_too_large_holds_up_none_behind_it(clients: Clients, small: RawClient) -> None:
    topic = unique_topic()
    sender = clients.open(5)
    for number, payload in enumerate([b"x" * 200, b"s", b"x" * 200, b"s", b"x" * 200]):
        sender.publish(topic + b"/%d" % number, payload, 1, retain=True)
    small.subscribe(topic + b"/#", 1)
    for _ in range(2):
        small.answer(small.expect_publish())
    small.expect_nothing()


# ------------------------------------------------------------------------- defaults


@BOTH_VERSIONS
def test_a_topic_may_be_as_long_as_mqtt_can_carry(clients: Clients, version: int) -> None:
    topic = unique_topic() + b"/"  # [MQTT-4.7.3-3]
    topic += b"x" * (65_535 - len(topic))
    sender, reader = clients.open(version), clients.open(version)
    sender.publish(topic, b"nobody")
    for round in (b"1", b"2"):  # its route is not remembered: both changes must be seen
        assert reader.subscribe(topic, 1) == 1
        sender.publish(topic, round, 1)
        reader.take(topic, round, 1)
        reader.unsubscribe(topic)
        sender.publish(topic, b"nobody", 1)
        reader.expect_nothing()


@BOTH_VERSIONS
def test_a_topic_may_be_as_deep_as_others_allow(clients: Clients, version: int) -> None:
    topic = unique_topic() + b"/x" * 255
    client = clients.open(version)
    assert client.subscribe(topic[:-1] + b"+", 1) == 1
    client.send(Publish(topic, b"x"))
    client.take(topic, b"x")


def test_a_message_may_have_256_user_properties(clients: Clients) -> None:
    topic = unique_topic()
    pairs = [(b"%d" % number, b"v") for number in range(256)]
    client = clients.open(5)
    client.subscribe(topic, 0)
    client.send(Publish(topic, b"x", properties=props(user_properties=pairs)))
    found = client.expect_publish().properties
    assert found is not None
    assert found.user_properties == pairs


@BOTH_VERSIONS
def test_one_field_of_connect_may_be_as_long_as_mqtt_can_carry(clients: Clients, version: int) -> None:
    topic = unique_topic()
    observer = clients.open(version)
    observer.subscribe(topic, 1)
    name = unique("c")
    clients.new(version).connect(name + "x" * (65_535 - len(name)))
    leaving = clients.new(version)
    leaving.connect(will=Will(topic, b"w" * 65_535, 1))
    leaving.close()
    observer.take(topic, b"w" * 65_535, 1)
