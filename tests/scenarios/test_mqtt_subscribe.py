"""SUBSCRIBE, UNSUBSCRIBE, matching of filters, overlapping subscriptions and their options [MQTT-3.8 to 3.11, 4.7]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, EVERY_VERSION, Clients, props, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import (
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)

FILTER_INVALID = 0x8F


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


# ------------------------------------------------------------------- SUBSCRIBE


@EVERY_VERSION
def test_every_filter_gets_its_own_reason_in_order(clients: Clients, version: int) -> None:
    client = clients.open(version)  # [MQTT-3.8.4-1, 3.8.4-5, 3.8.4-6, 3.9.3-1]
    base = unique_topic()
    entries = [SubscribeEntry(base + b"/%d" % n, n % 3) for n in range(9)]
    assert client.subscribe_all(entries) == [0, 1, 2] * 3


@BOTH_VERSIONS
@pytest.mark.parametrize("packet_id", [1, 255, 256, 65_535])
def test_the_suback_carries_the_id_of_its_subscribe(clients: Clients, version: int, packet_id: int) -> None:
    client = clients.open(version)  # [MQTT-3.8.4-2]
    client.send(Subscribe(packet_id, [SubscribeEntry(unique_topic(), 1)]))
    client.expect(SubAck(packet_id, [1]))


@BOTH_VERSIONS
@pytest.mark.parametrize(
    "filter",
    [b"a#", b"#/a", b"a/#/b", b"a+", b"+a", b"a/+b/c", b"a/b+", b"##", b"++", b"a/##"],
)
def test_an_invalid_filter_is_refused_alone(clients: Clients, version: int, filter: bytes) -> None:
    client = clients.open(version)  # [MQTT-4.7.1-1, 4.7.1-2, 4.7.3-1]
    good = unique_topic()
    reasons = client.subscribe_all([SubscribeEntry(filter, 0), SubscribeEntry(good, 1)])
    assert reasons == [FILTER_INVALID if version == 5 else 0x80, 1]
    client.send(Publish(good, b"x"))
    client.take(good, b"x")


@BOTH_VERSIONS
def test_an_empty_filter_beside_valid_ones_ends_the_connection(clients: Clients, version: int) -> None:
    good = unique_topic()  # [MQTT-4.7.3-1]
    subscriber = clients.open(version)
    subscriber.send(Subscribe(1, [SubscribeEntry(good), SubscribeEntry(b"")]))
    subscriber.expect_disconnect(0x81)
    unsubscriber = clients.open(version)
    unsubscriber.send(Unsubscribe(1, [b"", good]))
    unsubscriber.expect_disconnect(0x81)


@BOTH_VERSIONS
def test_a_second_subscribe_replaces_the_first(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.8.4-3]
    client = clients.open(version)
    client.subscribe(topic, 2)
    client.subscribe(topic, 0)
    publisher = clients.open(version)
    publisher.publish(topic, b"x", 2)
    client.take(topic, b"x", 0)
    client.subscribe(topic, 1)
    publisher.publish(topic, b"y", 2)
    client.take(topic, b"y", 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_the_same_filter_twice_in_one_packet_counts_once(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    assert client.subscribe_all([SubscribeEntry(topic, 0), SubscribeEntry(topic, 2)]) == [0, 2]
    clients.open(version).publish(topic, b"x", 2)
    client.take(topic, b"x", 2)
    client.expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_overlapping_subscriptions_deliver_once_at_the_highest_qos(
    clients: Clients, version: int, qos: int
) -> None:
    base = unique_topic()  # [MQTT-3.3.4-2]
    client = clients.open(version)
    client.subscribe(base + b"/#", 2)
    client.subscribe(base + b"/+", 1)
    client.subscribe(base + b"/a", 0)
    clients.open(version).publish(base + b"/a", b"x", qos)
    client.take(base + b"/a", b"x", qos)
    client.expect_nothing()


# -------------------------------------------------------------------- matching

MATCHES = [
    # filter, topics that match, topics that do not
    (b"#", [b"x", b"x/y", b"/x", b"x/"], []),
    (b"+", [b"x"], [b"x/y", b"/x"]),
    (b"+/+", [b"x/y", b"/x", b"x/"], [b"x", b"x/y/z"]),
    (b"/+", [b"/x", b"/"], [b"x", b"/x/y"]),
    (b"x/#", [b"x", b"x/y", b"x/y/z", b"x/"], [b"xy", b"y/x", b"/x"]),
    (b"x/+", [b"x/y", b"x/"], [b"x", b"x/y/z"]),
    (b"x/+/z", [b"x/y/z", b"x//z"], [b"x/z", b"x/y/y/z", b"x/y/z/"]),
    (b"+/y/#", [b"x/y", b"x/y/z", b"/y"], [b"y", b"x/z/y"]),
    (b"x//y", [b"x//y"], [b"x/y", b"x/z/y"]),
    (b"x/+/+/#", [b"x/a/b", b"x/a/b/c/d", b"x//"], [b"x/a", b"x"]),
    (b"X", [b"X"], [b"x"]),
    (b"x y", [b"x y"], [b"xy"]),
    (b"x.y", [b"x.y"], [b"x/y"]),
    (b"*", [b"*"], [b"x"]),
    (b">", [b">"], [b"x"]),
]


@BOTH_VERSIONS
@pytest.mark.parametrize(("filter", "hits", "misses"), MATCHES, ids=[row[0].decode() for row in MATCHES])
def test_filters_match_as_the_specification_says(
    clients: Clients, version: int, filter: bytes, hits: list[bytes], misses: list[bytes]
) -> None:
    base = unique_topic() + b"/"  # [MQTT-4.7.1-1 to 3, 4.7.3-4]
    client = clients.open(version)
    client.subscribe(base + filter, 0)
    for topic in misses:
        client.send(Publish(base + topic, b"miss"))
    for topic in hits:
        client.send(Publish(base + topic, b"hit"))
        client.take(base + topic, b"hit")
    client.expect_nothing()


@BOTH_VERSIONS
def test_wildcards_at_the_root_match_everything_but_dollar_topics(clients: Clients, version: int) -> None:
    name = unique_topic()  # [MQTT-4.7.2-1]
    client = clients.open(version)
    filters = (b"#", b"+/#", b"+/+", b"+/" + name, b"+/" + name + b"/#")
    client.subscribe_all([SubscribeEntry(filter) for filter in filters])
    publisher = clients.open(version)
    publisher.publish(b"$dollar/" + name, b"hidden", 1)
    publisher.publish(b"plain/" + name, b"seen", 1)
    while True:  # other tests keep retained messages too, which come first
        found = client.expect_publish()
        assert not found.topic.startswith(b"$")
        if found.topic == b"plain/" + name:
            break


@BOTH_VERSIONS
def test_a_dollar_topic_reaches_those_who_name_it(clients: Clients, version: int) -> None:
    name = unique_topic()
    client = clients.open(version)
    client.subscribe(b"$dollar/" + name + b"/#", 1)
    client.subscribe(b"$dollar/+/x", 1)
    clients.open(version).publish(b"$dollar/" + name + b"/x", b"seen", 1)
    client.take(b"$dollar/" + name + b"/x", b"seen", 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_topics_are_compared_byte_by_byte(clients: Clients, version: int) -> None:
    name = unique()  # [MQTT-4.7.3-4]: no normalisation
    composed = (name + "\u00e9").encode()
    decomposed = (name + "e\u0301").encode()
    client = clients.open(version)
    client.subscribe(composed, 0)
    client.send(Publish(decomposed, b"other"))
    client.send(Publish(composed, b"same"))
    client.take(composed, b"same")
    client.expect_nothing()


# ------------------------------------------------------------------ UNSUBSCRIBE


@BOTH_VERSIONS
def test_after_unsubscribe_nothing_more_is_added(clients: Clients, version: int) -> None:
    base = unique_topic()  # [MQTT-3.10.4-1, 3.10.4-2, 3.10.4-4, 3.10.4-6]
    client = clients.open(version)
    topics = [base + b"/%d" % n for n in range(3)]
    for topic in topics:
        client.subscribe(topic, 2)
    reasons = client.unsubscribe(topics[0], base + b"/none", topics[2])
    assert reasons == ([0, 0x11, 0] if version == 5 else [])  # [MQTT-3.11.3-1, 3.11.3-2]
    publisher = clients.open(version)
    for topic in topics:
        publisher.publish(topic, b"x", 1)
    client.take(topics[1], b"x", 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_unsubscribe_compares_filters_literally(clients: Clients, version: int) -> None:
    base = unique_topic()  # [MQTT-3.10.4-1]
    client = clients.open(version)
    client.subscribe(base + b"/a", 1)
    client.subscribe(base + b"/#", 1)
    client.unsubscribe(base + b"/+")
    client.unsubscribe(base + b"/#")
    clients.open(version).publish(base + b"/b", b"x", 1)
    client.expect_nothing()
    clients.open(version).publish(base + b"/a", b"x", 1)
    client.take(base + b"/a", b"x", 1)


@BOTH_VERSIONS
def test_unsubscribe_of_nothing_is_still_answered(clients: Clients, version: int) -> None:
    client = clients.open(version)  # [MQTT-3.10.4-5]
    assert client.unsubscribe(unique_topic()) == ([0x11] if version == 5 else [])


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_delivery_that_has_begun_is_finished_after_unsubscribe(
    clients: Clients, version: int, qos: int
) -> None:
    topic = unique_topic()  # [MQTT-3.10.4-3]
    client = clients.open(version)
    client.subscribe(topic, qos)
    clients.open(version).publish(topic, b"x", qos)
    found = client.expect_publish()
    client.unsubscribe(topic)
    client.answer(found)
    client.expect_nothing()


@BOTH_VERSIONS
def test_subscribe_and_unsubscribe_in_turn(clients: Clients, version: int) -> None:
    topic = unique_topic()
    client = clients.open(version)
    publisher = clients.open(version)
    for turn in range(10):
        client.subscribe(topic, 1)
        publisher.publish(topic, b"%d" % turn, 1)
        client.take(topic, b"%d" % turn, 1)
        client.unsubscribe(topic)
        publisher.publish(topic, b"lost", 1)
    client.expect_nothing()


def test_an_invalid_filter_cannot_be_unsubscribed(clients: Clients) -> None:
    assert clients.open(5).unsubscribe(b"a/#/b") in ([FILTER_INVALID], [0x11])


def test_user_properties_are_accepted_in_subscribe_and_unsubscribe(clients: Clients) -> None:
    client = clients.open(5)
    topic = unique_topic()
    pairs = [(b"a", b"1"), (b"a", b"2")]
    assert client.subscribe_all([SubscribeEntry(topic, 0)], props(user_properties=pairs)) == [0]
    client.send(Unsubscribe(50, [topic], props(user_properties=pairs)))
    client.receive()
    client.expect_nothing()


# ----------------------------------------------------------- options of MQTT 5


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_keeps_a_clients_own_messages_away(clients: Clients, qos: int) -> None:
    topic = unique_topic()  # [MQTT-3.8.3-3]
    client = clients.open(5)
    client.subscribe(topic, 2, no_local=True)
    client.publish(topic, b"mine", qos)
    client.expect_nothing()
    clients.open(5).publish(topic, b"yours", qos)
    client.take(topic, b"yours", qos)


def test_no_local_holds_for_its_subscription_only(clients: Clients) -> None:
    base = unique_topic()
    client = clients.open(5)
    client.subscribe(base + b"/#", 1, no_local=True, identifier=1)
    client.subscribe(base + b"/a", 0, identifier=2)
    client.send(Publish(base + b"/a", b"mine"))
    found = client.take(base + b"/a", b"mine")
    assert found.properties is not None
    assert found.properties.subscription_identifiers == [2]
    client.send(Publish(base + b"/b", b"mine"))
    client.expect_nothing()


def test_no_local_is_about_the_client_not_the_connection(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(5, name)
    client.subscribe(topic, 1, no_local=True)
    client.close()
    client = clients.resume(5, name)
    client.publish(topic, b"mine", 1)
    client.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("as_published", [False, True])
def test_retain_as_published_decides_on_the_flag(clients: Clients, qos: int, as_published: bool) -> None:
    topic = unique_topic()  # [MQTT-3.3.1-12, 3.3.1-13]
    client = clients.open(5)
    client.subscribe(topic, 2, retain_as_published=as_published)
    publisher = clients.open(5)
    publisher.publish(topic, b"kept", qos, retain=True)
    client.take(topic, b"kept", qos, retain=as_published)
    publisher.publish(topic, b"live", qos)
    client.take(topic, b"live", qos)
    publisher.publish(topic, b"", qos, retain=True)
    client.take(topic, b"", qos, retain=as_published)


# ----------------------------------------------------- subscription identifiers


@pytest.mark.parametrize("identifier", [1, 127, 128, 16_383, 16_384, 268_435_455])
def test_a_delivery_carries_the_identifier_of_its_subscription(clients: Clients, identifier: int) -> None:
    topic = unique_topic()  # [MQTT-3.3.4-3]
    client = clients.open(5)
    client.subscribe(topic, 2, identifier=identifier)
    publisher = clients.open(5)
    for qos in (0, 1, 2):
        publisher.publish(topic, b"x", qos)
        found = client.take(topic, b"x", qos)
        assert found.properties is not None
        assert found.properties.subscription_identifiers == [identifier]


def test_overlapping_subscriptions_give_all_identifiers(clients: Clients) -> None:
    base = unique_topic()  # [MQTT-3.3.4-4]
    client = clients.open(5)
    client.subscribe(base + b"/#", 1, identifier=11)
    client.subscribe(base + b"/+", 2, identifier=12)
    client.subscribe(base + b"/a", 0, identifier=13)
    client.subscribe(base + b"/a/#", 0)
    clients.open(5).publish(base + b"/a", b"x", 2)
    found = client.take(base + b"/a", b"x", 2)
    assert found.properties is not None
    assert sorted(found.properties.subscription_identifiers) == [11, 12, 13]
    client.expect_nothing()


def test_a_new_subscribe_replaces_the_identifier(clients: Clients) -> None:
    topic = unique_topic()
    client = clients.open(5)
    client.subscribe(topic, 0, identifier=1)
    client.subscribe(topic, 0, identifier=2)
    client.send(Publish(topic, b"x"))
    found = client.take(topic, b"x")
    assert found.properties is not None
    assert found.properties.subscription_identifiers == [2]
    client.subscribe(topic, 0)
    client.send(Publish(topic, b"y"))
    assert client.take(topic, b"y").properties is None


def test_identifiers_survive_a_reconnect(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(5, name)
    client.subscribe(topic, 1, identifier=77)
    client.disconnect()
    clients.open(5).publish(topic, b"waited", 1)
    client = clients.resume(5, name)
    clients.open(5).publish(topic, b"live", 1)
    for payload in (b"waited", b"live"):
        found = client.take(topic, payload, 1)
        assert found.properties is not None
        assert found.properties.subscription_identifiers == [77]


def test_a_retained_message_carries_the_identifier(clients: Clients) -> None:
    topic = unique_topic()
    clients.open(5).publish(topic, b"kept", 1, retain=True)
    client = clients.open(5)
    client.subscribe(topic, 1, identifier=5)
    found = client.take(topic, b"kept", 1, retain=True)
    assert found.properties is not None
    assert found.properties.subscription_identifiers == [5]


def test_a_subscriber_of_both_kinds_is_answered_by_its_own_terms(clients: Clients) -> None:
    topic = unique_topic()
    old = clients.open(4)
    old.subscribe(topic, 1)
    new = clients.open(5)
    new.subscribe(topic, 1, identifier=9)
    publisher = clients.open(5)
    publisher.publish(topic, b"x", 1, properties=props(user_properties=[(b"k", b"v")]))
    old.take(topic, b"x", 1)
    found = new.take(topic, b"x", 1)
    assert found.properties == props(subscription_identifiers=[9], user_properties=[(b"k", b"v")])


@BOTH_VERSIONS
def test_a_large_subscribe_is_taken(clients: Clients, version: int) -> None:
    client = clients.open(version)
    base = unique_topic()
    entries = [SubscribeEntry(base + b"/%d" % n, n % 3) for n in range(1000)]
    assert client.subscribe_all(entries) == [n % 3 for n in range(1000)]
    client.send(Publish(base + b"/999", b"x", 1, packet_id=9000))
    client.expect_all(PubAck(9000), Publish(base + b"/999", b"x"))
