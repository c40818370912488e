"""PUBLISH and its answers at every QoS, both ways [MQTT-3.3 to 3.7, 4.3, 4.4, 4.6]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, EVERY_VERSION, Clients, frame, props, text, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import (
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeEntry,
)

NO_MATCHING_SUBSCRIBERS = 0x10
NOT_FOUND = 0x92


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


# ------------------------------------------------------------- QoS from and to


@EVERY_VERSION
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_a_message_arrives_at_the_lower_of_both_qos(
    clients: Clients, version: int, published: int, subscribed: int
) -> None:
    topic = unique_topic()  # [MQTT-3.8.4-8]
    subscriber = clients.open(version)
    assert subscriber.subscribe(topic, subscribed) == subscribed
    publisher = clients.open(version)
    assert publisher.publish(topic, b"hello", published) == 0
    subscriber.take(topic, b"hello", min(published, subscribed))
    subscriber.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("sender", [3, 4, 5])
@pytest.mark.parametrize("receiver", [3, 4, 5])
def test_versions_exchange_messages(clients: Clients, sender: int, receiver: int, qos: int) -> None:
    topic = unique_topic()
    subscriber = clients.open(receiver)
    subscriber.subscribe(topic, qos)
    publisher = clients.open(sender)
    for payload in (b"", b"x", b"\x00\xff" * 50, b"y" * 5000):
        publisher.publish(topic, payload, qos)
        subscriber.take(topic, payload, qos)


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("others", [0, 1, 2])
def test_payloads_around_every_length_boundary_arrive_whole(
    clients: Clients, version: int, qos: int, others: int
) -> None:
    """Two subscribers of different QoS share one encoded form; where its length changes by a byte, it shows."""
    topic = b"len/" + unique_topic()
    one = clients.open(version)
    one.subscribe(topic, others)
    two = clients.open(version)
    two.subscribe(topic, qos)
    three = clients.open(9 - version)
    three.subscribe(topic, qos)
    publisher = clients.open(version)
    base = len(topic) + 4
    sizes = [*range(120 - base, 133 - base), 4094, 4095, 4096, 4097, *range(16_375 - base, 16_390 - base)]
    for size in sizes:
        payload = bytes([size % 251]) * size
        publisher.publish(topic, payload, qos)
        one.take(topic, payload, min(qos, others))
        two.take(topic, payload, qos)
        three.take(topic, payload, qos)


@BOTH_VERSIONS
def test_a_publisher_gets_its_own_message(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    client.subscribe(topic, 1)
    client.send(Publish(topic, b"mine"))
    client.take(topic, b"mine")


@BOTH_VERSIONS
def test_messages_of_one_publisher_keep_their_order(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.6.0-5, MQTT-4.6.0-6]
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    publisher = clients.open(version)
    for qos in (0, 1, 2):
        many = [Publish(topic, b"%d" % n, qos, packet_id=n + 1 if qos else 0) for n in range(200)]
        publisher.send(*many)
        if qos == 1:
            for n in range(200):
                publisher.expect(PubAck(n + 1))  # [MQTT-4.6.0-2]: in the order received
        if qos == 2:
            for n in range(200):
                publisher.expect(PubRec(n + 1))  # [MQTT-4.6.0-3]
            publisher.send(*[PubRel(n + 1) for n in range(200)])
            for n in range(200):
                publisher.expect(PubComp(n + 1))  # [MQTT-4.6.0-4]
        for n in range(200):
            subscriber.take(topic, b"%d" % n, qos)


# ---------------------------------------------------------- server as receiver


@BOTH_VERSIONS
def test_the_broker_answers_qos_1_even_when_it_is_marked_as_a_repeat(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.3.2-4]
    client = clients.open(version)
    nobody = NO_MATCHING_SUBSCRIBERS if version == 5 else 0
    client.send(Publish(topic, b"x", 1, dup=True, packet_id=7))
    client.expect(PubAck(7, nobody))
    client.send(Publish(topic, b"x", 1, packet_id=7))  # [MQTT-4.3.2-5]: an acknowledged id is free again
    client.expect(PubAck(7, nobody))


@BOTH_VERSIONS
def test_a_qos_2_message_sent_twice_is_delivered_once(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.3.3-10]
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    client = clients.open(version)
    client.send(Publish(topic, b"once", 2, packet_id=9))
    client.expect(PubRec(9))
    client.send(Publish(topic, b"once", 2, dup=True, packet_id=9))
    client.expect(PubRec(9))
    client.send(PubRel(9))
    client.expect(PubComp(9))
    subscriber.take(topic, b"once", 2)
    subscriber.expect_nothing()
    client.send(Publish(topic, b"again", 2, packet_id=9))  # [MQTT-4.3.3-12]: a new message after PUBCOMP
    client.expect(PubRec(9))
    subscriber.take(topic, b"again", 2)


@BOTH_VERSIONS
def test_a_qos_2_message_is_delivered_once_across_a_reconnect_of_its_sender(
    clients: Clients, version: int
) -> None:
    topic = unique_topic()
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    name = unique()
    client = clients.resume(version, name)
    client.send(Publish(topic, b"once", 2, packet_id=9))
    client.expect(PubRec(9))
    client.close()
    client = clients.resume(version, name)
    client.send(Publish(topic, b"once", 2, dup=True, packet_id=9))
    client.expect(PubRec(9))
    client.send(PubRel(9))
    client.expect(PubComp(9))
    subscriber.take(topic, b"once", 2)
    subscriber.expect_nothing()


@BOTH_VERSIONS
def test_a_clean_session_forgets_the_ids_of_an_older_one(clients: Clients, version: int) -> None:
    topic = unique_topic()
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    name = unique()
    client = clients.resume(version, name)
    client.send(Publish(topic, b"old", 2, packet_id=9))
    client.expect(PubRec(9))
    client.close()
    client = clients.open(version, name)
    client.send(Publish(topic, b"new", 2, packet_id=9))
    client.expect(PubRec(9))
    subscriber.take(topic, b"old", 2)
    subscriber.take(topic, b"new", 2)


@BOTH_VERSIONS
def test_a_release_of_an_unknown_id_is_answered(clients: Clients, version: int) -> None:
    client = clients.open(version)  # [MQTT-4.3.3-11]
    client.send(PubRel(321))
    client.expect(PubComp(321, NOT_FOUND if version == 5 else 0))


@BOTH_VERSIONS
def test_a_release_sent_twice_is_answered_twice(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    client.publish(topic, b"x", 2)
    client.send(PubRel(1))
    client.expect(PubComp(1, NOT_FOUND if version == 5 else 0))


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_nobody_receives_says_so_in_mqtt_5(clients: Clients, qos: int) -> None:
    assert clients.open(5).publish(unique_topic(), b"x", qos) == NO_MATCHING_SUBSCRIBERS


@pytest.mark.parametrize(
    "release",
    [
        b"\x62\x02\x00\x01",
        b"\x62\x03\x00\x01\x00",
        b"\x62\x04\x00\x01\x00\x00",
        frame(0x62, b"\x00\x01\x00", b"\x0d", b"\x26", text(b"key"), text(b"value")),
        frame(0x62, b"\x00\x01\x00", b"\x06", b"\x1f", text(b"why")),
    ],
    ids=["short", "with reason", "with empty properties", "with user property", "with reason string"],
)
def test_every_form_of_release_is_understood(clients: Clients, release: bytes) -> None:
    client = clients.open(5)  # [MQTT-3.6.2.1]
    client.send(Publish(unique_topic(), b"x", 2, packet_id=1))
    client.expect(PubRec(1, NO_MATCHING_SUBSCRIBERS))
    client.send_bytes(release)
    client.expect(PubComp(1))


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
def test_a_publish_in_one_write_with_disconnect_is_delivered(
    clients: Clients, version: int, qos: int, retain: bool
) -> None:
    topic = unique_topic()  # [MQTT-3.14.4-1] ends the connection, not what came before it
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    client = clients.open(version)
    client.send(Publish(topic, b"last words", qos, retain, packet_id=3 if qos else 0), Disconnect())
    client.wait_closed()
    subscriber.take(topic, b"last words", qos)
    if retain:
        late = clients.open(version)
        late.subscribe(topic, 2)
        late.take(topic, b"last words", qos, retain=True)


@BOTH_VERSIONS
def test_many_messages_in_one_write_with_subscribe_arrive(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    many = [Publish(topic, b"%d" % n) for n in range(500)]
    client.send(Subscribe(1, [SubscribeEntry(topic, 0)]), *many)
    client.receive()
    for n in range(500):
        client.take(topic, b"%d" % n)


# ------------------------------------------------------------ server as sender


@BOTH_VERSIONS
def test_the_broker_numbers_its_deliveries(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-2.2.1-4, MQTT-4.3.2-1]
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    publisher = clients.open(version)
    seen = set()
    for number in range(20):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)
        found = subscriber.expect_publish()
        assert found.packet_id not in seen  # [MQTT-2.2.1-4]: nothing is answered yet
        seen.add(found.packet_id)
    assert 0 not in seen


@BOTH_VERSIONS
def test_an_answered_id_is_not_used_again_at_once(clients: Clients, version: int) -> None:
    topic = unique_topic()
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 1)
    publisher = clients.open(version)
    seen = []
    for number in range(5):
        publisher.publish(topic, b"%d" % number, 1)
        seen.append(subscriber.take(topic, b"%d" % number, 1).packet_id)
    assert len(set(seen)) == 5


@BOTH_VERSIONS
def test_packet_ids_of_both_directions_do_not_meet(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-2.2.1, non normative: each side numbers its own]
    client = clients.open(version)
    client.subscribe(topic, 2)
    client.send(Publish(topic, b"x", 2, packet_id=1))
    client.expect_all(PubRec(1), Publish(topic, b"x", 2, packet_id=1))
    client.send(PubRel(1), PubRec(1))
    client.expect_all(PubComp(1), PubRel(1))
    client.send(PubComp(1))
    client.expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_sent_again_while_the_connection_lasts(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()  # [MQTT-4.4.0-1]
    subscriber = clients.open(version)
    subscriber.subscribe(topic, qos)
    publisher = clients.open(version)
    publisher.publish(topic, b"x", qos)
    found = subscriber.expect_publish()
    assert not found.dup  # [MQTT-4.3.2-2]
    for number in range(3):
        publisher.publish(topic, b"%d" % number, qos)
        assert not subscriber.expect_publish().dup
    subscriber.expect_nothing()


@BOTH_VERSIONS
def test_a_received_answer_repeated_is_released_again(clients: Clients, version: int) -> None:
    topic = unique_topic()
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    clients.open(version).publish(topic, b"x", 2)
    found = subscriber.expect_publish()
    for _ in range(2):
        subscriber.send(PubRec(found.packet_id))
        subscriber.expect(PubRel(found.packet_id))  # [MQTT-4.3.3-4]
    subscriber.send(PubComp(found.packet_id))
    subscriber.expect_nothing()


@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
def test_a_refused_delivery_is_over(clients: Clients, reason: int) -> None:
    topic = unique_topic()  # [MQTT-4.3.3-4]: no PUBREL after a PUBREC that refuses
    name = unique()
    subscriber = clients.resume(5, name)
    subscriber.subscribe(topic, 2)
    publisher = clients.open(5)
    for qos in (1, 2):
        publisher.publish(topic, b"%d" % qos, qos)
        found = subscriber.expect_publish()
        refusal = PubAck if qos == 1 else PubRec
        subscriber.send(
            refusal(found.packet_id, reason, props(reason_string=b"no", user_properties=[(b"a", b"b")]))
        )
        subscriber.expect_nothing()
    subscriber.close()
    clients.resume(5, name).expect_nothing()  # and it does not come back


@BOTH_VERSIONS
@pytest.mark.parametrize("answer", [PubAck, PubComp])
def test_an_answer_to_nothing_is_ignored(
    clients: Clients, version: int, answer: type[PubAck] | type[PubComp]
) -> None:
    client = clients.open(version)
    client.send(answer(1234))
    client.expect_nothing()


def test_a_received_answer_to_nothing_is_released_with_a_reason(clients: Clients) -> None:
    client = clients.open(5)
    client.send(PubRec(1234))
    client.expect(PubRel(1234, NOT_FOUND))


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("qos", "wrong"),
    [(1, PubRec), (1, PubComp), (2, PubAck), (2, PubComp)],
    ids=["PUBREC for QoS 1", "PUBCOMP for QoS 1", "PUBACK for QoS 2", "PUBCOMP before PUBREC"],
)
def test_a_wrong_answer_is_a_protocol_error(
    clients: Clients, version: int, qos: int, wrong: type[PubAck] | type[PubRec] | type[PubComp]
) -> None:
    topic = unique_topic()  # [MQTT-4.3.2, MQTT-4.3.3]; 4.13.1
    subscriber = clients.open(version)
    subscriber.subscribe(topic, qos)
    clients.open(version).publish(topic, b"x", qos)
    found = subscriber.expect_publish()
    subscriber.send(wrong(found.packet_id))
    subscriber.expect_disconnect(0x82)


@BOTH_VERSIONS
def test_an_acknowledgement_of_a_released_message_is_a_protocol_error(clients: Clients, version: int) -> None:
    topic = unique_topic()
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    clients.open(version).publish(topic, b"x", 2)
    found = subscriber.expect_publish()
    subscriber.send(PubRec(found.packet_id))
    subscriber.expect(PubRel(found.packet_id))
    subscriber.send(PubAck(found.packet_id))
    subscriber.expect_disconnect(0x82)


@BOTH_VERSIONS
@pytest.mark.parametrize("topic", [b"$SYS/broker/uptime", b"$SYS/anything"])
def test_nobody_publishes_as_the_broker_itself(clients: Clients, version: int, topic: bytes) -> None:
    watcher = clients.open(version)
    watcher.subscribe(b"$SYS/anything", 2)
    client = clients.open(version)
    for qos in (1, 2):
        assert client.publish(topic, b"fake", qos) == (0x87 if version == 5 else 0)
    client.publish(topic, b"fake")
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_a_topic_may_be_long_and_deep(clients: Clients, version: int) -> None:
    client = clients.open(version)
    long = unique_topic() + b"x" * 4000
    deep = unique_topic() + b"/x" * 127
    for topic in (long, deep):
        assert client.subscribe(topic, 1) == 1
        client.send(Publish(topic, b"x"))
        client.take(topic, b"x")


# ------------------------------------------------------------ many in one write


@BOTH_VERSIONS
def test_different_topics_in_one_write_arrive_in_order(clients: Clients, version: int) -> None:
    base = unique_topic()
    everything = clients.open(version)
    everything.subscribe(base + b"/#", 2)
    one = clients.open(9 - version)
    one.subscribe(base + b"/1", 2)
    publisher = clients.open(version)
    many = [Publish(base + b"/%d" % (n % 3), b"%d" % n) for n in range(300)]
    publisher.send(*many)
    for packet in many:
        everything.take(packet.topic, packet.payload)
    for packet in many:
        if packet.topic.endswith(b"/1"):
            one.take(packet.topic, packet.payload)
    one.expect_nothing()


@BOTH_VERSIONS
def test_every_qos_mixed_in_one_write_arrives(clients: Clients, version: int) -> None:
    topic = unique_topic()
    subscriber = clients.open(version)
    subscriber.subscribe(topic, 2)
    publisher = clients.open(version)
    publisher.send(*[Publish(topic, b"%d" % n, n % 3, packet_id=n + 1 if n % 3 else 0) for n in range(150)])
    for n in range(150):
        subscriber.take(topic, b"%d" % n, n % 3)


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_run_of_messages_meets_every_kind_of_subscriber(clients: Clients, size: int) -> None:
    topic = unique_topic()
    receivers = {version: clients.open(version) for version in (3, 4, 5)}
    for client in receivers.values():
        client.subscribe(topic, 1)
    numbered = clients.open(5)
    numbered.subscribe(topic, 1, identifier=6)
    aliased = clients.open(5, properties=props(topic_alias_maximum=3))
    aliased.subscribe(topic, 1)
    limited = clients.open(5, properties=props(maximum_packet_size=200))
    limited.subscribe(topic, 1)
    shared = clients.open(5)
    shared.subscribe(b"$share/g/" + topic, 1)
    publisher = clients.open(5)
    publisher.subscribe(topic, 1, no_local=True)
    properties = props(content_type=b"text/plain", user_properties=[(b"a", b"1"), (b"a", b"1")])
    payloads = [b"%d" % n + b"x" * size for n in range(20)]
    publisher.send(*[Publish(topic, payload, properties=properties) for payload in payloads])
    publisher.expect_nothing()
    for payload in payloads:
        for client in receivers.values():
            client.take(topic, payload)
        shared.take(topic, payload)
        found = numbered.take(topic, payload)
        assert found.properties is not None
        assert found.properties.subscription_identifiers == [6]
        assert found.properties.content_type == b"text/plain"
        assert aliased.expect_publish().payload == payload
        if size < 100:
            limited.take(topic, payload)
    for client in (*receivers.values(), numbered, aliased, limited, shared):
        client.expect_nothing()
