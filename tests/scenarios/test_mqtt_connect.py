"""CONNECT and CONNACK over real sockets, clause by clause [MQTT-3.1, MQTT-3.2]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, EVERY_VERSION, Clients, frame, props, text, unique, unique_topic

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Will,
)

MQTT = text(b"MQTT")


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


def connect_frame(version: int, flags: int, *payload: bytes, keep_alive_s: int = 0) -> bytes:
    """A CONNECT by hand: header, flags, keep alive, no properties, then `payload`."""
    properties = b"\x00" if version == 5 else b""
    head = MQTT + bytes([version, flags]) + keep_alive_s.to_bytes(2, "big") + properties
    return frame(0x10, head, *payload)


# ------------------------------------------------------------------ first packet


@EVERY_VERSION
def test_a_connect_is_answered_by_a_connack_without_a_session(clients: Clients, version: int) -> None:
    answer = clients.new(version).connect()  # [MQTT-3.2.0-1, MQTT-3.2.2-2]
    assert not answer.session_present
    assert (answer.properties is None) == (version < 5)


@BOTH_VERSIONS
def test_a_second_connect_is_a_protocol_error(clients: Clients, version: int) -> None:
    client = clients.open(version)  # [MQTT-3.1.0-2]
    client.send(Connect(version, unique()))
    client.expect_disconnect(0x82)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x20\x02\x00\x00", id="CONNACK"),
        pytest.param(b"\x30\x07\x00\x05topic", id="PUBLISH"),
        pytest.param(b"\x40\x02\x00\x01", id="PUBACK"),
        pytest.param(b"\x50\x02\x00\x01", id="PUBREC"),
        pytest.param(b"\x62\x02\x00\x01", id="PUBREL"),
        pytest.param(b"\x70\x02\x00\x01", id="PUBCOMP"),
        pytest.param(b"\x82\x06\x00\x01\x00\x01a\x00", id="SUBSCRIBE"),
        pytest.param(b"\x90\x03\x00\x01\x00", id="SUBACK"),
        pytest.param(b"\xa2\x05\x00\x01\x00\x01a", id="UNSUBSCRIBE"),
        pytest.param(b"\xb0\x02\x00\x01", id="UNSUBACK"),
        pytest.param(b"\xc0\x00", id="PINGREQ"),
        pytest.param(b"\xd0\x00", id="PINGRESP"),
        pytest.param(b"\xe0\x00", id="DISCONNECT"),
        pytest.param(b"\xf0\x00", id="AUTH"),
        pytest.param(b"\x00\x00", id="reserved"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(b"\x30\xff\xff\xff\x7f" + b"\x01" * 4096, id="a huge PUBLISH"),
    ],
)
def test_any_other_first_packet_closes_the_connection_without_an_answer(
    clients: Clients, data: bytes
) -> None:
    client = clients.new()  # [MQTT-3.1.0-1]
    client.send_bytes(data)
    client.expect_closed()


# ------------------------------------------------------------ protocol and flags


@pytest.mark.parametrize("level", [0, 1, 2, 3, 6, 7, 127, 131, 132, 255])
def test_an_unknown_protocol_level_is_answered_with_code_1(clients: Clients, level: int) -> None:
    client = clients.new(4)  # [MQTT-3.1.2-2, MQTT3-3.1.2-2]
    client.send_bytes(frame(0x10, MQTT, bytes([level, 2, 0, 0]), text(b"x")))
    assert client.receive_bytes(4)[:3] == b"\x20\x02\x00"
    client.expect_closed()


@pytest.mark.parametrize("name", [b"MQTTX", b"mqtt", b"MQT", b"", b"MQIsdq", b"AMQP"])
def test_another_protocol_name_is_not_served(clients: Clients, name: bytes) -> None:
    client = clients.new(4)  # [MQTT-3.1.2-1]
    client.send_bytes(frame(0x10, text(name), bytes([4, 2, 0, 0]), text(b"x")))
    client.wait_closed()


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(0x03, [text(b"x")], id="MQTT-3.1.2-3 reserved flag"),
        pytest.param(0x0A, [text(b"x")], id="MQTT-3.1.2-11 will QoS without will"),
        pytest.param(0x22, [text(b"x")], id="MQTT-3.1.2-13 will retain without will"),
        pytest.param(0x1E, [text(b"x"), text(b"w"), text(b"m")], id="MQTT-3.1.2-12 will QoS 3"),
        pytest.param(0x82, [text(b"x")], id="MQTT-3.1.2-17 user name flag, no user name"),
        pytest.param(0xC2, [text(b"x"), text(b"u")], id="MQTT-3.1.2-19 password flag, no password"),
        pytest.param(0x02, [text(b"x"), text(b"u")], id="MQTT-3.1.2-16 user name without its flag"),
        pytest.param(0x06, [text(b"x")], id="MQTT-3.1.2-9 will flag, no will"),
        pytest.param(0x02, [], id="MQTT-3.1.3-3 no client id"),
        pytest.param(0x02, [b"\x00\x05abc"], id="client id cut short"),
        pytest.param(0x02, [text(b"a\x00b")], id="MQTT-1.5.4-2 NUL in client id"),
        pytest.param(0x02, [text(b"\xc3\x28")], id="MQTT-1.5.4-1 client id not UTF-8"),
        pytest.param(0x02, [text(b"\xed\xa0\x80")], id="MQTT-1.5.4-1 surrogate in client id"),
        pytest.param(0x82, [text(b"x"), text(b"\xff")], id="MQTT-3.1.3-12 user name not UTF-8"),
    ],
)
def test_a_broken_connect_is_not_accepted(
    clients: Clients, version: int, flags: int, payload: list[bytes]
) -> None:
    client = clients.new(version)  # [MQTT-3.1.4-1]
    if version == 5 and flags & 4:
        payload = [payload[0], *([b"\x00"] if len(payload) > 1 else []), *payload[1:]]
    client.send_bytes(connect_frame(version, flags, *payload))
    client.expect_no_welcome(0x81, 0x82)


def test_a_password_without_a_user_name_is_refused_before_mqtt_5(clients: Clients) -> None:
    client = clients.new(4)  # [MQTT3-3.1.2-22]
    client.send_bytes(connect_frame(4, 0x42, text(b"x"), text(b"secret")))
    client.expect_closed()


def test_a_password_without_a_user_name_is_allowed_in_mqtt_5(clients: Clients) -> None:
    clients.open(5, password=b"secret")


@BOTH_VERSIONS
def test_a_connect_split_at_every_byte_is_understood(clients: Clients, version: int) -> None:
    client = clients.new(version)
    will = Will(unique_topic(), b"gone", 1)
    for byte in encode_packet(Connect(version, unique(), True, 60, "user", b"pass", will), version):
        client.send_bytes(bytes([byte]))
    answer = client.receive()
    assert isinstance(answer, ConnAck)
    assert answer.reason == 0


@BOTH_VERSIONS
def test_packets_sent_behind_connect_are_served_in_order(clients: Clients, version: int) -> None:
    client = clients.new(version)
    topic = unique_topic()
    client.send(
        Connect(version, unique()),
        Subscribe(1, [SubscribeEntry(topic, 0)]),
        Publish(topic, b"early"),
        PingReq(),
    )
    assert isinstance(client.receive(), ConnAck)  # [MQTT-3.2.0-1]: CONNACK is the first
    client.expect(SubAck(1, [0]))
    assert client.expect_publish().payload == b"early"
    client.expect(PingResp())


# --------------------------------------------------------------------- client id


@pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])
def test_an_empty_client_id_with_a_clean_session_gets_one_of_its_own(clients: Clients, version: int) -> None:
    first = clients.new(version)
    second = clients.new(version)
    answers = [client.connect("") for client in (first, second)]  # [MQTT-3.1.3-6]
    if version == 5:
        names = [answer.properties.assigned_client_identifier for answer in answers if answer.properties]
        assert all(names), "[MQTT-3.2.2-16] the client must be told its id"
        assert names[0] != names[1]
    first.expect_nothing()  # the second has not taken the first one's place [MQTT-3.1.3-7]


def test_an_assigned_client_id_can_be_used_to_resume(clients: Clients) -> None:
    client = clients.new(5)
    answer = client.connect("", clean=False, expiry_s=60)
    assert answer.properties is not None
    assert answer.properties.assigned_client_identifier is not None
    name = answer.properties.assigned_client_identifier.decode()
    client.disconnect()
    assert clients.new(5).connect(name, clean=False, expiry_s=60).session_present


def test_an_empty_client_id_without_a_clean_session_is_refused_before_mqtt_5(clients: Clients) -> None:
    client = clients.new(4)  # [MQTT3-3.1.3-8, MQTT3-3.1.3-9]
    client.send_connect("", clean=False)
    client.expect_refused(0x85, 2)


def test_a_chosen_client_id_is_not_told_back(clients: Clients) -> None:
    answer = clients.new(5).connect(unique())
    assert answer.properties is not None
    assert answer.properties.assigned_client_identifier is None


@BOTH_VERSIONS
@pytest.mark.parametrize("length", [1, 22, 23, 24, 255, 1024, 60_000])
def test_client_ids_of_many_lengths_are_accepted(clients: Clients, version: int, length: int) -> None:
    clients.open(version, unique().ljust(length, "x")[-length:])  # [MQTT-3.1.3-5]


@BOTH_VERSIONS
def test_every_printable_character_may_stand_in_a_client_id(clients: Clients, version: int) -> None:
    name = unique("c")
    for code in [*range(0x20, 0x7F), 0xA0, 0x20AC, 0x2A6D4, 0xFEFF]:
        clients.open(version, name + chr(code))


# ------------------------------------------------------------- what CONNACK says


def test_the_connack_names_the_limits_of_the_server(clients: Clients) -> None:
    answer = clients.new(5).connect()
    assert answer.properties is not None
    assert answer.properties.receive_maximum == 1024
    assert answer.properties.topic_alias_maximum == 64
    assert answer.properties.maximum_packet_size is not None
    assert answer.properties.maximum_qos is None  # 2, which must not be said [MQTT-3.2.2.3.4]
    assert answer.properties.retain_available in (None, 1)
    assert answer.properties.wildcard_subscription_available in (None, 1)
    assert answer.properties.shared_subscription_available in (None, 1)
    assert answer.properties.subscription_identifiers_available in (None, 1)
    assert answer.properties.session_expiry_interval is None  # what was asked for holds
    assert answer.properties.server_keep_alive is None
    assert answer.properties.response_information is None  # [MQTT-3.1.2-28]


def test_response_information_is_given_to_those_who_ask(clients: Clients) -> None:
    answer = clients.new(5).connect(properties=props(request_response_information=1))
    assert answer.properties is not None
    assert answer.properties.response_information


def test_a_successful_connect_tells_the_session_expiry_it_does_not_change(clients: Clients) -> None:
    answer = clients.new(5).connect(expiry_s=77)
    assert answer.properties is not None
    assert answer.properties.session_expiry_interval in (None, 77)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x21\x00\x00", id="receive maximum 0"),
        pytest.param(b"\x27\x00\x00\x00\x00", id="maximum packet size 0"),
        pytest.param(b"\x11\x00\x00\x00\x01" * 2, id="session expiry twice"),
        pytest.param(b"\x21\x00\x05" * 2, id="receive maximum twice"),
        pytest.param(b"\x27\x00\x00\x10\x00" * 2, id="maximum packet size twice"),
        pytest.param(b"\x22\x00\x05" * 2, id="topic alias maximum twice"),
        pytest.param(b"\x19\x02", id="request response information 2"),
        pytest.param(b"\x19\x01" * 2, id="request response information twice"),
        pytest.param(b"\x17\x02", id="request problem information 2"),
        pytest.param(b"\x17\x01" * 2, id="request problem information twice"),
        pytest.param(b"\x16\x00\x01a", id="authentication data without method"),
        pytest.param((b"\x15\x00\x01a") * 2, id="authentication method twice"),
        pytest.param(b"\x01\x01", id="payload format belongs to PUBLISH"),
        pytest.param(b"\x23\x00\x01", id="topic alias belongs to PUBLISH"),
        pytest.param(b"\x12\x00\x01a", id="assigned client id belongs to CONNACK"),
        pytest.param(b"\x7f\x00", id="unknown property"),
        pytest.param(b"\x11\x00\x00", id="session expiry cut short"),
        pytest.param(b"\x26\x00\x01a", id="user property without value"),
    ],
)
def test_a_connect_with_a_wrong_property_is_refused(clients: Clients, block: bytes) -> None:
    client = clients.new(5)  # [MQTT-3.1.2.11, MQTT-2.2.2]
    head = MQTT + b"\x05\x02\x00\x00"
    client.send_bytes(frame(0x10, head, bytes([len(block)]), block, text(unique().encode())))
    client.expect_no_welcome(0x81, 0x82)


def test_every_property_of_connect_is_accepted(clients: Clients) -> None:
    answer = clients.new(5).connect(
        properties=props(
            session_expiry_interval=10,
            receive_maximum=5,
            maximum_packet_size=10_000,
            topic_alias_maximum=3,
            request_response_information=0,
            request_problem_information=1,
            user_properties=[(b"a", b"1"), (b"a", b"1"), (b"", b"")],
        )
    )
    assert answer.reason == 0


@pytest.mark.parametrize(
    ("topic", "reason"),
    [(b"a/+/b", 0x90), (b"#", 0x90), (b"", 0x90)],
)
def test_a_will_that_could_never_be_published_is_refused(clients: Clients, topic: bytes, reason: int) -> None:
    client = clients.new(5)
    client.send_connect(will=Will(topic, b"x"))
    answer = client.receive()
    assert isinstance(answer, ConnAck)
    assert answer.reason in (reason, 0x81, 0x82)
    client.expect_closed()


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("topic", [b"a/+/b", b"#", b""])
def test_before_mqtt_5_a_will_that_could_never_be_published_is_not_answered(
    clients: Clients, version: int, topic: bytes
) -> None:
    client = clients.new(version)  # no return code stands for it [MQTT3-3.2.2-6]
    client.send_connect(will=Will(topic, b"x"))
    client.expect_closed()


def test_an_unknown_authentication_method_is_refused(clients: Clients) -> None:
    client = clients.new(5)  # [MQTT-4.12.0-1]
    client.send_connect(properties=props(authentication_method=b"GUESS", authentication_data=b"?"))
    client.expect_refused(0x8C, 0)


# --------------------------------------------------------------------- MQTT 3.1


def test_an_mqtt_3_1_client_publishes_and_subscribes(clients: Clients) -> None:
    topic = unique_topic()
    subscriber = clients.open(3)
    assert subscriber.subscribe(topic, 2) == 2
    publisher = clients.open(3)
    for qos in (0, 1, 2):
        publisher.publish(topic, b"%d" % qos, qos)
        subscriber.take(topic, b"%d" % qos, qos)


def test_an_mqtt_3_1_client_needs_a_client_id(clients: Clients) -> None:
    client = clients.new(3)
    client.send_connect("")
    client.expect_refused(0x85, 2)
