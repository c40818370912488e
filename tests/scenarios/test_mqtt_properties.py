"""MQTT 5: what travels with a message, topic aliases, packet sizes, flow control, problem information."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import Clients, frame, props, text, unique, unique_topic, varint

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.properties import Properties


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


# ------------------------------------------------------------ carried unchanged

CARRIED = {
    "payload format 0": props(payload_format_indicator=0),
    "MQTT-3.3.2-4 payload format 1": props(payload_format_indicator=1),
    "MQTT-3.3.2-20 content type": props(content_type=b"application/json"),
    "empty content type": props(content_type=b""),
    "MQTT-3.3.2-15 response topic": props(response_topic=b"a/b/c"),
    "MQTT-3.3.2-16 correlation data": props(correlation_data=bytes(range(256))),
    "empty correlation data": props(correlation_data=b""),
    "MQTT-3.3.2-17 user properties": props(user_properties=[(b"k", b"v")]),
    "MQTT-3.3.2-18 order and repeats": props(
        user_properties=[(b"z", b"1"), (b"a", b"2"), (b"z", b"1"), (b"", b""), (b"a", "é".encode())]
    ),
    "64 user properties": props(user_properties=[(b"key%d" % n, b"value%d" % n) for n in range(64)]),
    "all of them": props(
        payload_format_indicator=1,
        content_type=b"text/plain",
        response_topic=b"answer/here",
        correlation_data=b"\x00",
        user_properties=[(b"a", b"1"), (b"a", b"2")],
    ),
    "none": None,
}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("properties", CARRIED.values(), ids=CARRIED.keys())
def test_the_properties_of_a_message_arrive_as_they_were_sent(
    clients: Clients, properties: Properties | None, qos: int
) -> None:
    topic = unique_topic()
    one = clients.open(5)
    one.subscribe(topic, 2)
    two = clients.open(5)
    two.subscribe(topic, 2, identifier=3)
    old = clients.open(4)
    old.subscribe(topic, 2)
    clients.open(5).publish(topic, b"text", qos, properties=properties)
    assert one.take(topic, b"text", qos).properties == properties
    found = two.take(topic, b"text", qos).properties
    assert found is not None
    assert found.subscription_identifiers == [3]
    found.subscription_identifiers = []
    assert found == (properties or Properties())
    old.take(topic, b"text", qos)


def test_a_request_is_answered_over_its_response_topic(clients: Clients) -> None:
    service_topic = unique_topic("service")  # [MQTT-4.10]
    service = clients.open(5)
    service.subscribe(service_topic, 1)
    requester = clients.new(5)
    answer = requester.connect(properties=props(request_response_information=1))
    assert answer.properties is not None
    assert answer.properties.response_information is not None
    answer_topic = answer.properties.response_information + b"answers"
    requester.subscribe(answer_topic, 1)
    asked = props(response_topic=answer_topic, correlation_data=b"42")
    requester.publish(service_topic, b"question", 1, properties=asked)
    request = service.take(service_topic, b"question", 1)
    assert request.properties == asked
    service.publish(answer_topic, b"answer", 1, properties=props(correlation_data=b"42"))
    assert requester.take(answer_topic, b"answer", 1).properties == props(correlation_data=b"42")


# ---------------------------------------------------------------- topic aliases


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_may_use_an_alias_for_a_topic(clients: Clients, qos: int) -> None:
    topic = unique_topic()  # [MQTT-3.3.2-7, 3.3.2-12]
    subscriber = clients.open(5)
    subscriber.subscribe(topic, 2)
    client = clients.open(5)
    for number, name in enumerate((topic, b"", b"", topic)):
        client.publish(name, b"%d" % number, qos, properties=props(topic_alias=64))
        found = subscriber.take(topic, b"%d" % number, qos)
        assert found.properties is None  # the alias is the sender's own affair


def test_an_alias_may_be_given_to_another_topic(clients: Clients) -> None:
    one, two = unique_topic(), unique_topic()
    subscriber = clients.open(5)
    subscriber.subscribe(one)
    subscriber.subscribe(two)
    client = clients.open(5)
    for name, topic in ((one, one), (b"", one), (two, two), (b"", two)):
        client.publish(name, b"x", properties=props(topic_alias=1))
        subscriber.take(topic, b"x")


def test_aliases_go_with_the_other_properties(clients: Clients) -> None:
    topic = unique_topic()
    subscriber = clients.open(5)
    subscriber.subscribe(topic, 1)
    client = clients.open(5)
    for name in (topic, b""):
        sent = props(
            topic_alias=2, content_type=b"x", user_properties=[(b"a", b"b")], message_expiry_interval=60
        )
        client.publish(name, b"x", 1, properties=sent)
        found = subscriber.take(topic, b"x", 1)
        assert found.properties is not None
        assert found.properties.topic_alias is None
        assert found.properties.content_type == b"x"
        assert found.properties.user_properties == [(b"a", b"b")]
        assert found.properties.message_expiry_interval in (59, 60)


def test_an_alias_does_not_outlive_its_connection(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.3.2-7]
    name = unique()
    client = clients.resume(5, name)
    client.publish(topic, b"x", 1, properties=props(topic_alias=1))
    client.disconnect()
    client = clients.resume(5, name)
    client.send(Publish(b"", b"y", properties=props(topic_alias=1)))
    client.expect_disconnect(0x82)


def test_aliases_of_two_clients_do_not_meet(clients: Clients) -> None:
    one, two = unique_topic(), unique_topic()
    subscriber = clients.open(5)
    subscriber.subscribe(one)
    subscriber.subscribe(two)
    first, second = clients.open(5), clients.open(5)
    first.publish(one, b"1", properties=props(topic_alias=1))
    second.publish(two, b"2", properties=props(topic_alias=1))
    first.publish(b"", b"3", properties=props(topic_alias=1))
    subscriber.take(one, b"1")
    subscriber.take(two, b"2")
    subscriber.take(one, b"3")


def test_the_broker_uses_no_alias_unless_it_may(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-26, 3.1.2-27]
    for properties in (None, props(topic_alias_maximum=0)):
        client = clients.open(5, properties=properties)
        client.subscribe(topic, 1)
        for _ in range(3):
            clients.open(5).publish(topic, b"x", 1)
            assert client.take(topic, b"x", 1).properties is None


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_broker_keeps_to_the_clients_alias_maximum(clients: Clients, qos: int) -> None:
    base = unique_topic()  # [MQTT-3.1.2-26]
    client = clients.open(5, properties=props(topic_alias_maximum=2))
    client.subscribe(base + b"/#", 2)
    publisher = clients.open(5)
    known: dict[int, bytes] = {}
    for turn in range(3):
        for number in range(4):
            topic = base + b"/%d" % number
            publisher.publish(topic, b"%d" % turn, qos)
            found = client.expect_publish()
            client.answer(found)
            alias = None if found.properties is None else found.properties.topic_alias
            if alias is not None:
                assert 1 <= alias <= 2
                if found.topic:
                    known[alias] = found.topic
            assert (found.topic or known[alias or 0]) == topic
            assert found.payload == b"%d" % turn


def test_a_resent_message_names_its_topic_in_full_on_the_new_connection(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    aliases = props(topic_alias_maximum=5, session_expiry_interval=60)
    client = clients.open(5, name, clean=False, properties=aliases)
    client.subscribe(topic, 1)
    publisher = clients.open(5)
    for _ in range(2):
        publisher.publish(topic, b"x", 1)
        client.expect_publish()
    client.close()
    client = clients.open(5, name, clean=False, expiry_s=60)
    for _ in range(2):
        again = client.expect_publish()
        assert (again.topic, again.dup, again.properties) == (topic, True, None)


# ----------------------------------------------------------------- packet sizes


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_a_client_is_not_sent_to_it(clients: Clients, qos: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-24, 3.1.2-25]
    name = unique()
    limited = props(maximum_packet_size=100, session_expiry_interval=60)
    small = clients.open(5, name, clean=False, properties=limited)
    small.subscribe(topic, 2)
    large = clients.open(5)
    large.subscribe(topic, 2)
    publisher = clients.open(5)
    publisher.publish(topic, b"x" * 100, qos)
    large.take(topic, b"x" * 100, qos)
    small.expect_nothing()
    publisher.publish(topic, b"fits", qos)  # and the window is not blocked by what was left out
    small.take(topic, b"fits", qos)
    small.disconnect()
    publisher.publish(topic, b"y" * 100, qos)
    publisher.publish(topic, b"fits too", qos)
    again = props(maximum_packet_size=100, session_expiry_interval=60)
    small = clients.open(5, name, clean=False, properties=again)
    if qos:
        small.take(topic, b"fits too", qos)
    small.expect_nothing()


def test_the_limit_of_a_client_holds_to_the_byte(clients: Clients) -> None:
    topic = unique_topic()
    exact = encode_packet(Publish(topic, b"z" * 30), 5)
    client = clients.open(5, properties=props(maximum_packet_size=len(exact)))
    client.subscribe(topic)
    publisher = clients.open(5)
    publisher.publish(topic, b"z" * 31)
    publisher.publish(topic, b"z" * 30)
    client.take(topic, b"z" * 30)
    client.expect_nothing()


def test_a_packet_over_the_servers_maximum_is_refused(clients: Clients) -> None:
    client = clients.new(5)  # [MQTT-3.2.2-15]
    answer = client.connect()
    assert answer.properties is not None
    assert answer.properties.maximum_packet_size is not None
    size = answer.properties.maximum_packet_size
    client.send_bytes(b"\x30" + varint(size - 4 + 1))  # one byte over, header included
    client.expect_disconnect(0x95)


@pytest.mark.parametrize("version", [4, 5])
def test_a_packet_over_the_limit_closes_the_connection_before_it_is_read(
    clients: Clients, version: int
) -> None:
    client = clients.open(version)
    client.send_bytes(b"\x30\xff\xff\xff\x7f\x00\x01a")
    client.expect_disconnect(0x95)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_large_message_within_the_limit_arrives(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()
    payload = bytes(range(256)) * 4096  # 1 MiB
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 1)
    clients.open(version).publish(topic, payload, qos)
    subscriber.take(topic, payload, qos)


@pytest.mark.parametrize("version", [4, 5])
def test_a_payload_over_the_limit_is_refused(clients: Clients, version: int) -> None:
    client = clients.open(version)
    client.send(Publish(unique_topic(), bytes(1024 * 1024 + 1)))
    client.expect_disconnect(0x95)


@pytest.mark.parametrize("size", [20, 25, 40])
def test_a_disconnect_leaves_its_text_out_where_it_would_be_too_large(clients: Clients, size: int) -> None:
    client = clients.open(5, properties=props(maximum_packet_size=size))  # [MQTT-3.14.2-3]
    client.send(Connect(5, unique()))
    found = client.expect_disconnect(0x82)
    assert found is not None
    assert len(encode_packet(found, 5)) <= size


def test_a_refusal_leaves_its_text_out_where_it_would_be_too_large(clients: Clients) -> None:
    client = clients.new(5)  # [MQTT-3.2.2-19]
    client.send_connect(properties=props(maximum_packet_size=12, authentication_method=b"GUESS"))
    answer = client.expect_refused(0x8C, 0)
    assert len(encode_packet(answer, 5)) <= 12


# ----------------------------------------------------------- problem information


def test_without_problem_information_only_connack_and_disconnect_explain(clients: Clients) -> None:
    client = clients.open(5, properties=props(request_problem_information=0))  # [MQTT-3.1.2-29]
    topic = unique_topic()
    assert client.subscribe(b"a/#/b", 1) == 0x8F
    client.send(Publish(topic, b"x", 1, packet_id=9))
    answer = client.receive()
    assert isinstance(answer, PubAck)
    assert answer.properties is None
    client.send(PubRel(77))
    found = client.receive()
    assert isinstance(found, PubComp)
    assert found.properties is None


def test_a_disconnect_explains_itself(clients: Clients) -> None:
    client = clients.open(5)
    client.send(Connect(5, unique()))
    found = client.expect_disconnect(0x82)
    assert found is not None
    assert found.properties is not None
    assert found.properties.reason_string
    assert found.properties.session_expiry_interval is None  # [MQTT-3.14.2-2]


# ----------------------------------------------------------------- flow control


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("maximum", [1, 2, 20])
def test_the_broker_keeps_to_the_clients_receive_maximum(clients: Clients, qos: int, maximum: int) -> None:
    topic = unique_topic()  # [MQTT-3.3.4-9, MQTT-4.9.0-1, 4.9.0-2]
    client = clients.open(5, properties=props(receive_maximum=maximum))
    client.subscribe(topic, 2)
    publisher = clients.open(5)
    for number in range(maximum + 3):
        publisher.publish(topic, b"%d" % number, qos)
    waiting = [client.expect_publish() for _ in range(maximum)]
    client.expect_nothing()
    assert [publish.payload for publish in waiting] == [b"%d" % number for number in range(maximum)]
    for number in range(3):
        first = waiting.pop(0)
        if qos == 2:
            client.send(PubRec(first.packet_id))
            client.expect(PubRel(first.packet_id))
            client.expect_nothing()  # the window opens at PUBCOMP, not before
            client.send(PubComp(first.packet_id))
        else:
            client.send(PubAck(first.packet_id))
        following = client.expect_publish()
        assert following.payload == b"%d" % (maximum + number)
        waiting.append(following)
        client.expect_nothing()


def test_a_refused_delivery_opens_the_window(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-4.9.0-2]
    client = clients.open(5, properties=props(receive_maximum=1))
    client.subscribe(topic, 2)
    publisher = clients.open(5)
    publisher.publish(topic, b"1", 2)
    publisher.publish(topic, b"2", 2)
    first = client.expect_publish()
    client.send(PubRec(first.packet_id, 0x97))
    client.take(topic, b"2", 2)


def test_qos_0_passes_a_full_window(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-4.9.0-3]
    client = clients.open(5, properties=props(receive_maximum=1))
    client.subscribe(topic, 1)
    publisher = clients.open(5)
    publisher.publish(topic, b"1", 1)
    publisher.publish(topic, b"2", 1)
    publisher.publish(topic, b"free", 0)
    assert client.expect_publish().payload == b"1"
    client.take(topic, b"free")
    assert client.subscribe(unique_topic(), 1) == 1  # and other packets too


def test_a_resumed_session_keeps_to_the_new_receive_maximum(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(5, name)
    client.subscribe(topic, 1)
    publisher = clients.open(5)
    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)
    for _ in range(6):
        client.expect_publish()
    client.close()
    small = props(receive_maximum=2, session_expiry_interval=60)
    client = clients.open(5, name, clean=False, properties=small)
    found = [client.expect_publish() for _ in range(2)]
    client.expect_nothing()
    for number in range(2, 6):
        client.send(PubAck(found.pop(0).packet_id))
        found.append(client.expect_publish())
        assert found[-1].payload == b"%d" % number


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_that_stays_within_the_receive_maximum_is_served(clients: Clients, qos: int) -> None:
    topic = unique_topic()
    client = clients.open(5)
    for _ in range(3):
        client.send(*[Publish(topic, b"x", qos, packet_id=n) for n in range(1, 1025)])
        for n in range(1, 1025):
            client.expect(PubAck(n, 0x10) if qos == 1 else PubRec(n, 0x10))
        if qos == 2:
            client.send(*[PubRel(n) for n in range(1, 1025)])
            for n in range(1, 1025):
                client.expect(PubComp(n))


def test_a_client_beyond_the_receive_maximum_is_disconnected(clients: Clients) -> None:
    client = clients.open(5)  # [MQTT-3.3.4-8 is the server's own duty; 3.3.4-7]
    client.send(*[Publish(unique_topic(), b"x", 2, packet_id=n) for n in range(1, 1026)])
    for n in range(1, 1025):
        client.expect(PubRec(n, 0x10))
    client.expect_disconnect(0x93)


def test_a_repeated_id_does_not_count_twice(clients: Clients) -> None:
    client = clients.open(5)
    topic = unique_topic()
    client.send(*[Publish(topic, b"x", 2, packet_id=n) for n in range(1, 1025)])
    for n in range(1, 1025):
        client.expect(PubRec(n, 0x10))
    client.send(Publish(topic, b"x", 2, dup=True, packet_id=5))
    client.expect(PubRec(5))


# ------------------------------------------------------------ other MQTT 5 rules


def test_a_malformed_reason_string_is_refused(clients: Clients) -> None:
    client = clients.open(5)
    client.send_bytes(frame(0xE0, b"\x00", b"\x04", b"\x1f", text(b"\xff")))
    client.expect_disconnect(0x81)


@pytest.mark.parametrize(
    "packet",
    [
        Disconnect(0, props(reason_string=b"done", user_properties=[(b"a", b"b")])),
        Disconnect(0x04, props(session_expiry_interval=0)),
        Disconnect(0, None),
    ],
    ids=["with text", "with expiry", "plain"],
)
def test_every_form_of_disconnect_is_understood(clients: Clients, packet: Disconnect) -> None:
    client = clients.open(5)  # [MQTT-3.14.4-1, 3.14.4-2]
    client.send(packet)
    client.expect_closed()


def test_a_client_must_not_name_a_server(clients: Clients) -> None:
    client = clients.open(5)
    client.send(Disconnect(0, props(server_reference=b"elsewhere")))
    client.wait_closed()


def test_too_many_user_properties_are_refused(clients: Clients) -> None:
    client = clients.open(5)
    many = props(user_properties=[(b"k", b"v")] * 257)
    client.send(Publish(unique_topic(), b"x", properties=many))
    client.expect_disconnect(0x82, 0x97, 0x83)


def test_a_subscriber_with_a_small_limit_still_gets_its_suback(clients: Clients) -> None:
    client = clients.open(5, properties=props(maximum_packet_size=30))
    assert client.subscribe_all([SubscribeEntry(unique_topic(), 0)] * 5) == [0] * 5
