"""Shared subscriptions: one message, one member of the group [MQTT-4.8.2]. For 3.1.1 clients too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, Clients, RawClient, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import PingReq, PingResp, PubComp, Publish, PubRec, PubRel


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


def take_all(client: RawClient) -> list[Publish]:
    """Everything the broker has for this client now, answered."""
    client.send(PingReq())
    found: list[Publish] = []
    while True:
        packet = client.receive()
        if isinstance(packet, PingResp):
            break
        assert isinstance(packet, Publish)
        found.append(packet)
    for publish in found:
        client.answer(publish)
    return found


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_exactly_one_member(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()
    members = [clients.open(version) for _ in range(3)]
    for member in members:
        assert member.subscribe(b"$share/g/" + topic, qos) == qos
    publisher = clients.open(version)
    for number in range(30):
        publisher.publish(topic, b"%d" % number, qos)
    shares = [[publish.payload for publish in take_all(member)] for member in members]
    assert sorted(itertools.chain(*shares), key=int) == [b"%d" % number for number in range(30)]
    assert all(shares), "every member takes part"


@BOTH_VERSIONS
def test_groups_and_ordinary_subscribers_get_a_copy_each(clients: Clients, version: int) -> None:
    topic = unique_topic()
    first, second, plain = (clients.open(version) for _ in range(3))
    first.subscribe(b"$share/one/" + topic, 1)
    second.subscribe(b"$share/two/" + topic, 1)
    plain.subscribe(topic, 1)
    clients.open(version).publish(topic, b"x", 1)
    for client in (first, second, plain):
        client.take(topic, b"x", 1)
        client.expect_nothing()


@BOTH_VERSIONS
def test_a_client_with_a_shared_and_an_ordinary_subscription_gets_both(
    clients: Clients, version: int
) -> None:
    topic = unique_topic()
    client = clients.open(version)
    client.subscribe(topic, 0)
    client.subscribe(b"$share/g/" + topic, 0)
    clients.open(version).publish(topic, b"x")
    assert [publish.payload for publish in take_all(client)] == [b"x", b"x"]


@BOTH_VERSIONS
def test_shared_subscriptions_may_have_wildcards(clients: Clients, version: int) -> None:
    base = unique_topic()
    client = clients.open(version)
    client.subscribe(b"$share/g/" + base + b"/+/#", 1)
    clients.open(version).publish(base + b"/a/b", b"x", 1)
    client.take(base + b"/a/b", b"x", 1)


@BOTH_VERSIONS
def test_every_member_has_its_own_qos(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.8.2-3]
    low = clients.open(version)
    low.subscribe(b"$share/g/" + topic, 0)
    high = clients.open(version)
    high.subscribe(b"$share/g/" + topic, 2)
    publisher = clients.open(version)
    for _ in range(10):
        publisher.publish(topic, b"x", 2)
    assert {publish.qos for publish in take_all(low)} == {0}
    assert {publish.qos for publish in take_all(high)} == {2}


@BOTH_VERSIONS
@pytest.mark.parametrize(
    "filter",
    [b"$share/", b"$share/g", b"$share//t", b"$share/g/", b"$share/a+/t", b"$share/#/t", b"$share/+/t"],
)
def test_an_ill_formed_share_is_refused(clients: Clients, version: int, filter: bytes) -> None:
    client = clients.open(version)  # [MQTT-4.8.2-1, 4.8.2-2]
    assert client.subscribe(filter, 1) == (0x8F if version == 5 else 0x80)


@BOTH_VERSIONS
def test_a_retained_message_is_not_sent_to_a_share(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.8.4: no retained messages for a shared subscription]
    clients.open(version).publish(topic, b"kept", 1, retain=True)
    client = clients.open(version)
    client.subscribe(b"$share/g/" + topic, 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_a_member_that_unsubscribes_leaves_the_rest_to_others(clients: Clients, version: int) -> None:
    topic = unique_topic()
    first = clients.open(version)
    second = clients.open(version)
    for client in (first, second):
        client.subscribe(b"$share/g/" + topic, 1)
    reasons = first.unsubscribe(b"$share/g/" + topic)
    assert reasons == ([0] if version == 5 else [])
    publisher = clients.open(version)
    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)
    assert len(take_all(second)) == 6
    first.expect_nothing()


@BOTH_VERSIONS
def test_an_ordinary_unsubscribe_does_not_end_a_share(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    client.subscribe(b"$share/g/" + topic, 1)
    assert client.unsubscribe(topic) == ([0x11] if version == 5 else [])
    clients.open(version).publish(topic, b"x", 1)
    client.take(topic, b"x", 1)


@BOTH_VERSIONS
def test_what_a_lost_member_did_not_answer_goes_to_another(clients: Clients, version: int) -> None:
    topic = unique_topic()
    first = clients.open(version)
    first.subscribe(b"$share/g/" + topic, 1)
    publisher = clients.open(version)
    for number in range(4):
        publisher.publish(topic, b"%d" % number, 1)
    for _ in range(4):
        first.expect_publish()
    second = clients.open(version)
    second.subscribe(b"$share/g/" + topic, 1)
    first.close()
    assert [second.expect_publish().payload for _ in range(4)] == [b"0", b"1", b"2", b"3"]


@BOTH_VERSIONS
def test_an_absent_member_gets_nothing_while_another_is_there(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    first = clients.resume(version, name)
    first.subscribe(b"$share/g/" + topic, 1)
    second = clients.open(version)
    second.subscribe(b"$share/g/" + topic, 1)
    first.disconnect()
    publisher = clients.open(version)
    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)
    assert len(take_all(second)) == 6
    clients.resume(version, name).expect_nothing()


@BOTH_VERSIONS
def test_messages_wait_when_the_whole_group_is_away(clients: Clients, version: int) -> None:
    topic = unique_topic()
    names = [unique(), unique()]
    for name in names:
        client = clients.resume(version, name)
        client.subscribe(b"$share/g/" + topic, 1)
        client.disconnect()
    publisher = clients.open(version)
    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)
    found: list[bytes] = []
    for name in names:
        found += [publish.payload for publish in take_all(clients.resume(version, name))]
    assert sorted(found) == [b"%d" % number for number in range(6)]


def test_a_half_finished_qos_2_delivery_is_not_given_to_another(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-4.8.2-5]
    name = unique()
    first = clients.resume(5, name)
    first.subscribe(b"$share/g/" + topic, 2)
    clients.open(5).publish(topic, b"x", 2)
    found = first.expect_publish()
    first.send(PubRec(found.packet_id))
    first.expect(PubRel(found.packet_id))
    second = clients.open(5)
    second.subscribe(b"$share/g/" + topic, 2)
    first.close()
    first = clients.resume(5, name)
    first.expect(PubRel(found.packet_id))  # [MQTT-4.8.2-4]
    first.send(PubComp(found.packet_id))
    first.expect_nothing()
    second.expect_nothing()


def test_a_refused_delivery_is_not_given_to_another(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-4.8.2-6]
    first = clients.open(5)
    first.subscribe(b"$share/g/" + topic, 2)
    clients.open(5).publish(topic, b"x", 2)
    found = first.expect_publish()
    second = clients.open(5)
    second.subscribe(b"$share/g/" + topic, 2)
    first.send(PubRec(found.packet_id, 0x80))
    first.expect_nothing()
    second.expect_nothing()


def test_a_share_carries_the_identifier_of_the_chosen_member(clients: Clients) -> None:
    topic = unique_topic()
    one = clients.open(5)
    one.subscribe(b"$share/g/" + topic, 1, identifier=1)
    two = clients.open(5)
    two.subscribe(b"$share/g/" + topic, 1, identifier=2)
    publisher = clients.open(5)
    for _ in range(6):
        publisher.publish(topic, b"x", 1)
    for client, identifier in ((one, 1), (two, 2)):
        found = take_all(client)
        assert found
        for publish in found:
            assert publish.properties is not None
            assert publish.properties.subscription_identifiers == [identifier]


@BOTH_VERSIONS
def test_a_share_survives_a_reconnect(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(b"$share/g/" + topic, 1)
    client.close()
    client = clients.resume(version, name)
    clients.open(version).publish(topic, b"x", 1)
    client.take(topic, b"x", 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_a_publish_to_a_share_name_reaches_no_group(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    client.subscribe(b"$share/g/" + topic, 1)
    clients.open(version).publish(b"$share/g/" + topic, b"x", 1)
    client.expect_nothing()
