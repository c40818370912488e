"""Sessions: begun, resumed, taken over, expired, and what waits in them [MQTT-3.1.2-4 to 6, 3.1.4, 4.1, 4.4]."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import BOTH_VERSIONS, NEVER, Clients, props, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import (
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubscribeEntry,
    Will,
)


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


# ------------------------------------------------------------------- resuming


@BOTH_VERSIONS
def test_a_session_is_present_only_where_one_was_kept(clients: Clients, version: int) -> None:
    name = unique()
    first = clients.new(version)
    assert not first.connect(name, clean=False, expiry_s=NEVER).session_present  # [MQTT-3.1.2-6]
    first.disconnect()
    second = clients.new(version)
    assert second.connect(name, clean=False, expiry_s=NEVER).session_present  # [MQTT-3.2.2-3]
    second.disconnect()
    third = clients.new(version)
    assert not third.connect(name, clean=True).session_present  # [MQTT-3.1.2-4, MQTT-3.2.2-2]
    third.disconnect()
    fourth = clients.new(version)
    assert not fourth.connect(name, clean=False, expiry_s=NEVER).session_present


@BOTH_VERSIONS
def test_subscriptions_survive_a_reconnect(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    client.close()
    client = clients.resume(version, name)
    clients.open(version).publish(topic, b"x", 1)
    client.take(topic, b"x", 1)


@BOTH_VERSIONS
def test_a_clean_session_ends_with_its_connection(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.open(version, name)
    client.subscribe(topic, 1)
    client.disconnect()
    clients.open(version).publish(topic, b"x", 1)
    client = clients.new(version)
    assert not client.connect(name, clean=False, expiry_s=0).session_present
    client.expect_nothing()


@BOTH_VERSIONS
def test_a_clean_start_forgets_what_waited(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    client.disconnect()
    clients.open(version).publish(topic, b"x", 1)
    client = clients.open(version, name)
    client.expect_nothing()
    clients.open(version).publish(topic, b"y", 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_messages_wait_for_an_absent_client_in_order(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.5.0-1]
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 2)
    client.disconnect()
    publisher = clients.open(version)
    for number in range(30):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)
    publisher.publish(topic, b"at most once", 0)
    client = clients.resume(version, name)
    for number in range(30):
        client.take(topic, b"%d" % number, 1 + number % 2)
    client.expect_nothing()


@BOTH_VERSIONS
def test_connack_comes_before_what_waited(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    client.disconnect()
    clients.open(version).publish(topic, b"x", 1)
    client = clients.new(version)
    assert client.connect(name, clean=False, expiry_s=NEVER).session_present  # [MQTT-3.2.0-1]
    client.take(topic, b"x", 1)


@BOTH_VERSIONS
def test_unanswered_deliveries_come_again_with_their_ids_and_dup(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.4.0-1, MQTT-3.3.1-1]
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 2)
    publisher = clients.open(version)
    for qos in (1, 2, 1, 2):
        publisher.publish(topic, b"%d" % qos, qos)
    sent = [client.expect_publish() for _ in range(4)]
    client.close()
    client = clients.resume(version, name)
    for old in sent:  # [MQTT-4.6.0-1]: in their order
        new = client.expect_publish()
        assert (new.packet_id, new.payload, new.qos, new.dup) == (old.packet_id, old.payload, old.qos, True)
        client.answer(new)
    client.expect_nothing()
    client.close()
    clients.resume(version, name).expect_nothing()


@BOTH_VERSIONS
def test_a_half_finished_qos_2_delivery_goes_on_with_its_release(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-4.4.0-1, MQTT-4.3.3-6]
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 2)
    clients.open(version).publish(topic, b"x", 2)
    found = client.expect_publish()
    client.send(PubRec(found.packet_id))
    client.expect(PubRel(found.packet_id))
    client.close()
    client = clients.resume(version, name)
    client.expect(PubRel(found.packet_id))
    client.send(PubComp(found.packet_id))
    client.expect_nothing()
    client.close()
    clients.resume(version, name).expect_nothing()


@BOTH_VERSIONS
def test_live_messages_come_behind_what_is_sent_again(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    publisher = clients.open(version)
    publisher.publish(topic, b"1", 1)
    client.expect_publish()
    client.close()
    publisher.publish(topic, b"2", 1)
    client = clients.resume(version, name)
    publisher.publish(topic, b"3", 1)
    assert [client.expect_publish().payload for _ in range(3)] == [b"1", b"2", b"3"]


@BOTH_VERSIONS
def test_a_resubscription_after_a_reconnect_does_not_double_messages(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    client.close()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    clients.open(version).publish(topic, b"x", 1)
    client.take(topic, b"x", 1)
    client.expect_nothing()


@BOTH_VERSIONS
def test_an_unsubscribe_is_remembered_too(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(version, name)
    client.subscribe(topic, 1)
    client.unsubscribe(topic)
    client.close()
    clients.open(version).publish(topic, b"x", 1)
    clients.resume(version, name).expect_nothing()


def test_a_session_is_kept_over_a_change_of_version(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.resume(5, name)
    client.subscribe(topic, 2)
    client.disconnect()
    clients.open(5).publish(topic, b"x", 2, properties=props(content_type=b"text/plain"))
    client = clients.new(4)
    assert client.connect(name, clean=False).session_present
    client.take(topic, b"x", 2)


# ------------------------------------------------------------------- takeover


@pytest.mark.parametrize("new", [3, 4, 5])
@pytest.mark.parametrize("old", [3, 4, 5])
def test_a_second_connection_takes_over_the_first(clients: Clients, old: int, new: int) -> None:
    name = unique()  # [MQTT-3.1.4-3]
    first = clients.open(old, name)
    second = clients.open(new, name)
    first.expect_disconnect(0x8E)
    second.expect_nothing()


@BOTH_VERSIONS
def test_a_takeover_keeps_the_session(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    first = clients.resume(version, name)
    first.subscribe(topic, 1)
    publisher = clients.open(version)
    publisher.publish(topic, b"1", 1)
    first.expect_publish()
    second = clients.new(version)
    assert second.connect(name, clean=False, expiry_s=NEVER).session_present
    again = second.expect_publish()
    assert again.dup
    publisher.publish(topic, b"2", 1)
    assert second.expect_publish().payload == b"2"


@BOTH_VERSIONS
def test_what_the_older_connection_still_says_is_not_heard(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    watcher = clients.open(version)
    watcher.subscribe(topic)
    first = clients.open(version, name)
    second = clients.open(version, name)
    try:
        first.send(Publish(topic, b"ghost"))
    except OSError:
        pass
    second.expect_nothing()
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_a_flapping_client_ends_with_one_connection(clients: Clients, version: int) -> None:
    name = unique()
    many = [clients.resume(version, name) for _ in range(20)]
    for client in many[:-1]:
        client.wait_closed()
    many[-1].expect_nothing()


# --------------------------------------------------------------------- expiry


def test_a_session_ends_at_once_when_its_expiry_is_zero(clients: Clients) -> None:
    name = unique()  # [MQTT-3.1.2.11.2]
    for interval in (0, None):
        clients.open(5, name, clean=False, expiry_s=interval).disconnect()
        client = clients.new(5)
        assert not client.connect(name, clean=False, expiry_s=interval).session_present
        client.disconnect()


def test_a_session_ends_when_its_interval_has_passed(clients: Clients) -> None:
    will_topic = unique_topic()
    name = unique()
    watcher = clients.open(5)
    watcher.subscribe(will_topic)
    will = Will(will_topic, b"session over", properties=props(will_delay_interval=600))
    client = clients.open(5, name, clean=False, expiry_s=1, will=will)
    client.subscribe(unique_topic(), 1)
    client.close()
    watcher.take(will_topic, b"session over")  # the end of the session sends the will [MQTT-3.1.3-9]
    assert not clients.new(5).connect(name, clean=False, expiry_s=1).session_present  # [MQTT-4.1.0-2]


def test_a_session_that_ended_while_the_broker_was_away_is_gone_when_it_is_ready(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = f"data_dir={tmp_path / 'data'}"
    broker = start_broker(folder)
    with Clients(broker.mqtt_port) as clients:
        watcher = clients.open(5, "watcher", clean=False, expiry_s=600)
        watcher.subscribe(b"will", 1)
        watcher.disconnect()
        will = Will(b"will", b"session over", 1, properties=props(will_delay_interval=600))
        clients.open(5, "ended", clean=False, expiry_s=1, will=will).close()
    broker.stop()
    time.sleep(1.1)  # the clock that counts is the one of the machine
    again = start_broker(folder)
    with Clients(again.mqtt_port) as clients:
        assert not clients.new(5).connect("ended", clean=False, expiry_s=1).session_present
        clients.open(5, "watcher", clean=False, expiry_s=600).take(b"will", b"session over", 1)


def test_a_session_within_its_interval_is_kept(clients: Clients) -> None:
    name = unique()  # [MQTT-4.1.0-1]
    clients.open(5, name, clean=False, expiry_s=60).close()
    assert clients.new(5).connect(name, clean=False, expiry_s=60).session_present


def test_disconnect_may_shorten_the_expiry(clients: Clients) -> None:
    name = unique()
    client = clients.resume(5, name)
    client.disconnect(properties=props(session_expiry_interval=0))
    assert not clients.new(5).connect(name, clean=False, expiry_s=NEVER).session_present


def test_disconnect_may_lengthen_the_expiry(clients: Clients) -> None:
    name = unique()
    topic = unique_topic()
    client = clients.open(5, name, clean=False, expiry_s=1)
    client.subscribe(topic, 1)
    client.disconnect(properties=props(session_expiry_interval=NEVER))
    other = clients.open(5, unique(), clean=False, expiry_s=1)  # something that ends after one second
    other_topic = unique_topic()
    watcher = clients.open(5)
    watcher.subscribe(other_topic)
    clients.open(
        5, expiry_s=1, will=Will(other_topic, b"1 s", properties=props(will_delay_interval=9))
    ).close()
    other.close()
    watcher.take(other_topic, b"1 s")
    assert clients.new(5).connect(name, clean=False, expiry_s=1).session_present


def test_an_expiry_of_zero_cannot_be_lengthened_by_disconnect(clients: Clients) -> None:
    name = unique()  # [MQTT-3.14.2-2]
    client = clients.open(5, name)
    client.send(Disconnect(0, props(session_expiry_interval=60)))
    client.expect_disconnect(0x82)
    assert not clients.new(5).connect(name, clean=False, expiry_s=60).session_present


def test_a_new_connect_sets_a_new_expiry(clients: Clients) -> None:
    name = unique()
    clients.resume(5, name).disconnect()
    client = clients.new(5)
    assert client.connect(name, clean=False, expiry_s=0).session_present
    client.disconnect()
    assert not clients.new(5).connect(name, clean=False, expiry_s=0).session_present


# -------------------------------------------------------------- message expiry


def test_a_waiting_message_counts_its_expiry_down(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.3.2-5, MQTT-3.3.2-6]
    name = unique()
    client = clients.resume(5, name)
    client.subscribe(topic, 2)
    client.disconnect()
    publisher = clients.open(5)
    publisher.publish(topic, b"short", 1, properties=props(message_expiry_interval=1))
    publisher.publish(topic, b"short", 2, properties=props(message_expiry_interval=1))
    publisher.publish(topic, b"long", 1, properties=props(message_expiry_interval=600))
    publisher.publish(topic, b"ever", 2)
    wait_two_seconds(clients)
    client = clients.resume(5, name)
    found = client.take(topic, b"long", 1)
    assert found.properties is not None
    assert found.properties.message_expiry_interval is not None
    assert 590 < found.properties.message_expiry_interval < 600
    found = client.take(topic, b"ever", 2)
    assert found.properties is None
    client.expect_nothing()


def wait_two_seconds(clients: Clients) -> None:
    """Let the broker's own clock pass two seconds: a will with that delay tells."""
    topic = unique_topic()
    watcher = clients.open(5)
    watcher.subscribe(topic)
    will = Will(topic, b"two seconds", properties=props(will_delay_interval=2))
    clients.open(5, expiry_s=60, will=will).close()
    watcher.take(topic, b"two seconds")


def test_a_live_message_keeps_its_expiry(clients: Clients) -> None:
    topic = unique_topic()
    client = clients.open(5)
    client.subscribe(topic, 1)
    for qos in (0, 1):
        properties = props(message_expiry_interval=50)
        client.send(Publish(topic, b"x", qos, packet_id=5 if qos else 0, properties=properties))
        found = client.receive()
        if isinstance(found, PubAck):
            found = client.receive()
        assert isinstance(found, Publish)
        assert found.properties is not None
        assert found.properties.message_expiry_interval in (49, 50)


# ------------------------------------------------------------------- counters


@BOTH_VERSIONS
def test_many_subscriptions_of_a_session_come_back(clients: Clients, version: int) -> None:
    name = unique()
    base = unique_topic()
    client = clients.resume(version, name)
    entries = [SubscribeEntry(base + b"/%d" % n, 1) for n in range(200)]
    assert client.subscribe_all(entries) == [1] * 200
    client.close()
    client = clients.resume(version, name)
    publisher = clients.open(version)
    for n in (0, 99, 199):
        publisher.publish(base + b"/%d" % n, b"x", 1)
        client.take(base + b"/%d" % n, b"x", 1)
