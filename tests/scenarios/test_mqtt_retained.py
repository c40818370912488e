"""Retained messages: kept, replaced, removed, replayed [MQTT-3.3.1-5 to 3.3.1-13]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, EVERY_VERSION, Clients, RawClient, props, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import (
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Will,
)


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


def replayed(client: RawClient) -> list[tuple[bytes, bytes]]:
    client.send(PingReq())
    found = []
    while not isinstance(packet := client.receive(), PingResp):
        assert isinstance(packet, Publish)
        assert packet.retain  # [MQTT-3.3.1-8]
        client.answer(packet)
        found.append((packet.topic, packet.payload))
    return sorted(found)


@EVERY_VERSION
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_a_new_subscriber_gets_the_retained_message_at_the_lower_qos(
    clients: Clients, version: int, published: int, subscribed: int
) -> None:
    topic = unique_topic()  # [MQTT-3.3.1-5, 3.3.1-9]
    clients.open(version).publish(topic, b"kept", published, retain=True)
    client = clients.open(version)
    client.subscribe(topic, subscribed)
    client.take(topic, b"kept", min(published, subscribed), retain=True)
    client.expect_nothing()


@BOTH_VERSIONS
def test_the_last_retained_message_replaces_the_one_before(clients: Clients, version: int) -> None:
    topic = unique_topic()
    publisher = clients.open(version)
    for number in range(5):
        publisher.publish(topic, b"%d" % number, number % 3, retain=True)
    client = clients.open(version)
    client.subscribe(topic, 2)
    client.take(topic, b"4", 1, retain=True)
    client.expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_payload_removes_it(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()  # [MQTT-3.3.1-6, 3.3.1-7]
    publisher = clients.open(version)
    publisher.publish(topic, b"kept", qos, retain=True)
    live = clients.open(version)
    live.subscribe(topic, 2)
    live.take(topic, b"kept", qos, retain=True)
    publisher.publish(topic, b"", qos, retain=True)
    live.take(topic, b"", qos)  # who is subscribed sees the empty message, not as a retained one
    client = clients.open(version)
    client.subscribe(topic, 2)
    client.expect_nothing()


@BOTH_VERSIONS
def test_a_message_without_the_flag_changes_nothing_retained(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.3.1-8]
    publisher = clients.open(version)
    publisher.publish(topic, b"kept", 1, retain=True)
    publisher.publish(topic, b"live", 1)
    publisher.publish(topic, b"", 1)
    client = clients.open(version)
    client.subscribe(topic, 1)
    client.take(topic, b"kept", 1, retain=True)
    client.expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_present_subscriber_sees_no_retain_flag(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()  # [MQTT-3.3.1-12]
    client = clients.open(version)
    client.subscribe(topic, 2)
    clients.open(version).publish(topic, b"x", qos, retain=True)
    client.take(topic, b"x", qos)


@BOTH_VERSIONS
def test_retained_messages_come_after_the_suback(clients: Clients, version: int) -> None:
    topic = unique_topic()
    clients.open(version).publish(topic, b"kept", 1, retain=True)
    client = clients.open(version)
    client.send(Subscribe(1, [SubscribeEntry(topic, 1)]))
    client.expect(SubAck(1, [1]))
    client.take(topic, b"kept", 1, retain=True)


@BOTH_VERSIONS
def test_a_filter_that_stands_in_one_packet_again_and_again_is_replayed_once(
    clients: Clients, version: int
) -> None:
    topic = unique_topic()
    publisher = clients.open(version)
    for name in (b"/a", b"/b"):
        publisher.publish(topic + name, b"kept", 1, retain=True)
    client = clients.open(version)
    assert client.subscribe_all([SubscribeEntry(topic + b"/#", 0)] * 200) == [0] * 200
    assert replayed(client) == [(topic + b"/a", b"kept"), (topic + b"/b", b"kept")]


@BOTH_VERSIONS
def test_a_wildcard_subscriber_gets_all_that_match(clients: Clients, version: int) -> None:
    base = unique_topic()
    publisher = clients.open(version)
    names = [b"", b"/a", b"/a/b", b"/a/b/c", b"/d", b"//x", b"/"]
    for name in names:
        publisher.publish(base + name, b"kept" + name, 1, retain=True)
    for filter, wanted in (
        (b"/#", names),
        (b"/+", [b"/a", b"/d", b"/"]),
        (b"/a/#", [b"/a", b"/a/b", b"/a/b/c"]),
        (b"/+/b", [b"/a/b"]),
        (b"/+/+", [b"/a/b", b"//x"]),
        (b"//#", [b"/", b"//x"]),
    ):
        client = clients.open(version)
        client.subscribe(base + filter, 1)
        assert replayed(client) == sorted((base + name, b"kept" + name) for name in wanted), filter


@BOTH_VERSIONS
def test_many_retained_messages_are_all_replayed(clients: Clients, version: int) -> None:
    base = unique_topic()
    publisher = clients.open(version)
    publisher.send(*[Publish(base + b"/%d" % n, b"x" * 1000, 0, True) for n in range(1500)])
    publisher.expect_nothing()
    client = clients.open(version)
    client.subscribe(base + b"/#", 1)
    assert len({client.expect_publish().topic for _ in range(1500)}) == 1500


@BOTH_VERSIONS
def test_a_leading_wildcard_does_not_replay_dollar_topics(clients: Clients, version: int) -> None:
    name = unique_topic()  # [MQTT-4.7.2-1]
    clients.open(version).publish(b"$kept/" + name, b"hidden", 1, retain=True)
    client = clients.open(version)
    client.subscribe(b"+/" + name, 1)
    client.expect_nothing()
    client.subscribe(b"$kept/" + name, 1)
    client.take(b"$kept/" + name, b"hidden", 1, retain=True)


@BOTH_VERSIONS
def test_a_repeated_subscribe_replays_again(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.8.4-3, 3.3.1-9]
    clients.open(version).publish(topic, b"kept", 1, retain=True)
    client = clients.open(version)
    for _ in range(3):
        client.subscribe(topic, 1)
        client.take(topic, b"kept", 1, retain=True)


@BOTH_VERSIONS
def test_overlapping_filters_in_one_subscribe_replay_for_each(clients: Clients, version: int) -> None:
    base = unique_topic()
    clients.open(version).publish(base + b"/a", b"kept", 1, retain=True)
    client = clients.open(version)
    client.subscribe_all([SubscribeEntry(base + b"/#", 1), SubscribeEntry(base + b"/+", 0)])
    assert 1 <= len(replayed(client)) <= 2


@BOTH_VERSIONS
def test_a_resumed_session_is_not_sent_retained_messages_again(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    clients.open(version).publish(topic, b"kept", 1, retain=True)
    client.take(topic, b"kept", 1)
    client.disconnect()
    clients.resume(version, name).expect_nothing()


@BOTH_VERSIONS
def test_a_retained_message_outlives_the_session_of_its_publisher(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.1.0: retained messages are no part of the session]
    publisher = clients.open(version)
    publisher.publish(topic, b"kept", 1, retain=True)
    publisher.disconnect()
    client = clients.open(version)
    client.subscribe(topic, 1)
    client.take(topic, b"kept", 1, retain=True)


@BOTH_VERSIONS
def test_a_retained_delivery_that_was_not_answered_comes_again(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    clients.open(version).publish(topic, b"kept", 1, retain=True)
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    first = client.expect_publish()
    client.close()
    client = clients.resume(version, name)
    again = client.expect_publish()
    assert (again.packet_id, again.payload, again.retain, again.dup) == (first.packet_id, b"kept", True, True)


@BOTH_VERSIONS
def test_a_retained_will_is_kept(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-15]
    live = clients.open(version)
    live.subscribe(topic, 1)
    clients.open(version, will=Will(topic, b"gone", 1, True)).close()
    live.take(topic, b"gone", 1)
    client = clients.open(version)
    client.subscribe(topic, 1)
    client.take(topic, b"gone", 1, retain=True)


@BOTH_VERSIONS
def test_a_will_without_retain_is_not_kept(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-14]
    live = clients.open(version)
    live.subscribe(topic, 1)
    clients.open(version, will=Will(topic, b"gone", 1)).close()
    live.take(topic, b"gone", 1)
    client = clients.open(version)
    client.subscribe(topic, 1)
    client.expect_nothing()


# ----------------------------------------------------------------------- MQTT 5


def test_retain_handling_decides_on_the_replay(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.3.1-9, 3.3.1-10, 3.3.1-11]
    clients.open(5).publish(topic, b"kept", 1, retain=True)
    always, once, never = (clients.open(5) for _ in range(3))
    for turn in range(2):
        always.subscribe(topic, 1, retain_handling=0)
        always.take(topic, b"kept", 1, retain=True)
        once.subscribe(topic, 1, retain_handling=1)
        if turn == 0:
            once.take(topic, b"kept", 1, retain=True)
        never.subscribe(topic, 1, retain_handling=2)
    once.expect_nothing()
    never.expect_nothing()
    once.unsubscribe(topic)
    once.subscribe(topic, 1, retain_handling=1)
    once.take(topic, b"kept", 1, retain=True)


def test_a_retained_message_keeps_its_properties(clients: Clients) -> None:
    topic = unique_topic()
    properties = props(
        payload_format_indicator=1,
        content_type=b"text/plain",
        response_topic=b"answers",
        correlation_data=b"\x00\xff",
        user_properties=[(b"b", b"2"), (b"a", b"1"), (b"b", b"2")],
    )
    clients.open(5).publish(topic, b"kept", 1, retain=True, properties=properties)
    client = clients.open(5)
    client.subscribe(topic, 1)
    assert client.take(topic, b"kept", 1, retain=True).properties == properties
    old = clients.open(4)
    old.subscribe(topic, 1)
    old.take(topic, b"kept", 1, retain=True)


def test_a_retained_message_expires(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.3.2-5, 3.3.2-6]
    publisher = clients.open(5)
    publisher.publish(topic + b"/1", b"short", 1, retain=True, properties=props(message_expiry_interval=1))
    publisher.publish(topic + b"/2", b"long", 1, retain=True, properties=props(message_expiry_interval=500))
    watcher = clients.open(5)
    watcher.subscribe(topic + b"/will")
    will = Will(topic + b"/will", b"2 s", properties=props(will_delay_interval=2))
    clients.open(5, expiry_s=60, will=will).close()
    watcher.take(topic + b"/will", b"2 s")
    client = clients.open(5)
    client.subscribe(topic + b"/+", 1)
    found = client.take(topic + b"/2", b"long", 1, retain=True)
    assert found.properties is not None
    assert found.properties.message_expiry_interval is not None
    assert 490 < found.properties.message_expiry_interval <= 498
    client.expect_nothing()
