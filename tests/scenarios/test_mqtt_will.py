"""Wills: when they are sent, when not, and with what [MQTT-3.1.2-7 to 15, 3.1.3.2, 3.14.4]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, EVERY_VERSION, Clients, props, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import Connect, Will


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


@EVERY_VERSION
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lost_connection_sends_the_will_at_its_qos(clients: Clients, version: int, qos: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-8]
    watcher = clients.open(version)
    watcher.subscribe(topic, 2)
    clients.open(version, will=Will(topic, b"gone", qos)).close()
    watcher.take(topic, b"gone", qos)


@BOTH_VERSIONS
def test_an_empty_will_payload_is_a_message(clients: Clients, version: int) -> None:
    topic = unique_topic()
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    clients.open(version, will=Will(topic, b"", 1)).close()
    watcher.take(topic, b"", 1)


@EVERY_VERSION
def test_a_disconnect_takes_the_will_back(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-10, MQTT-3.14.4-3]
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    clients.open(version, will=Will(topic, b"gone", 1)).disconnect()
    watcher.expect_nothing()


@pytest.mark.parametrize(
    "reason", [0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99]
)
def test_a_disconnect_with_another_reason_sends_the_will(clients: Clients, reason: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-10]: only 0x00 takes it back
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    clients.open(5, will=Will(topic, b"gone", 1)).disconnect(reason)
    watcher.take(topic, b"gone", 1)


@BOTH_VERSIONS
def test_a_protocol_error_sends_the_will(clients: Clients, version: int) -> None:
    topic = unique_topic()
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    client = clients.open(version, will=Will(topic, b"gone", 1))
    client.send(Connect(version, unique()))
    client.wait_closed()
    watcher.take(topic, b"gone", 1)


@BOTH_VERSIONS
def test_a_missed_keep_alive_sends_the_will(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-8, 3.1.2-22]
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    client = clients.open(version, will=Will(topic, b"gone", 1), keep_alive_s=1)
    client.expect_disconnect(0x8D)
    watcher.take(topic, b"gone", 1)


@BOTH_VERSIONS
def test_a_takeover_sends_the_will_of_the_older_connection(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.4-3]
    name = unique()
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    clients.open(version, name, will=Will(topic, b"older", 1))
    clients.open(version, name, will=Will(topic, b"newer", 1))
    watcher.take(topic, b"older", 1)
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_a_will_is_sent_once(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    clients.open(version, name, clean=False, expiry_s=60, will=Will(topic, b"gone", 1)).close()
    watcher.take(topic, b"gone", 1)
    clients.open(version, name, clean=False, expiry_s=60).close()  # this one has no will
    clients.open(version, name).disconnect()
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_every_connect_brings_its_own_will(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    watcher = clients.open(version)
    watcher.subscribe(topic, 1)
    clients.open(version, name, clean=False, expiry_s=60, will=Will(topic, b"1", 1)).disconnect()
    clients.open(version, name, clean=False, expiry_s=60, will=Will(topic, b"2", 1)).close()
    watcher.take(topic, b"2", 1)
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_a_will_reaches_other_sessions_that_are_away(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    watcher = clients.resume(version, name)
    watcher.subscribe(topic, 1)
    watcher.disconnect()
    present = clients.open(version)
    present.subscribe(topic, 1)
    clients.open(version, will=Will(topic, b"gone", 1)).close()
    present.take(topic, b"gone", 1)
    clients.resume(version, name).take(topic, b"gone", 1)


def test_a_will_carries_all_its_properties(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.1.3.2]
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    properties = props(
        payload_format_indicator=1,
        message_expiry_interval=100,
        content_type=b"text/plain",
        response_topic=b"answers",
        correlation_data=b"\x01\x02",
        user_properties=[(b"b", b"2"), (b"a", b"1"), (b"b", b"2")],
    )
    clients.open(5, will=Will(topic, b"gone", 1, properties=properties)).close()
    found = watcher.take(topic, b"gone", 1)
    assert found.properties is not None
    assert found.properties.message_expiry_interval in (99, 100)
    found.properties.message_expiry_interval = 100
    assert found.properties == properties
    assert found.properties.will_delay_interval is None


def test_a_delayed_will_waits(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.1.3-9]
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    will = Will(topic, b"late", 1, properties=props(will_delay_interval=1))
    clients.open(5, expiry_s=60, will=will).close()
    clients.open(5, will=Will(topic, b"at once", 1)).close()
    watcher.take(topic, b"at once", 1)
    watcher.take(topic, b"late", 1)


def test_a_delayed_will_is_dropped_when_the_client_comes_back(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.1.3-9]
    name = unique()
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    will = Will(topic, b"too soon", 1, properties=props(will_delay_interval=1))
    clients.open(5, name, clean=False, expiry_s=60, will=will).close()
    clients.resume(5, name)
    other = Will(topic, b"barrier", 1, properties=props(will_delay_interval=2))
    clients.open(5, expiry_s=60, will=other).close()
    watcher.take(topic, b"barrier", 1)


def test_a_delayed_will_is_sent_when_a_clean_start_ends_the_session(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-3.1.2-8]: the session ends
    name = unique()
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    will = Will(topic, b"ended", 1, properties=props(will_delay_interval=600))
    clients.open(5, name, clean=False, expiry_s=600, will=will).close()
    clients.open(5, name, clean=True)
    watcher.take(topic, b"ended", 1)


def test_a_delay_longer_than_the_session_ends_with_it(clients: Clients) -> None:
    topic = unique_topic()
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    will = Will(topic, b"ended", 1, properties=props(will_delay_interval=600))
    clients.open(5, will=will).close()  # expiry 0: the session ends with the connection
    watcher.take(topic, b"ended", 1)


def test_a_disconnect_with_will_keeps_to_the_delay(clients: Clients) -> None:
    topic = unique_topic()
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    will = Will(topic, b"late", 1, properties=props(will_delay_interval=1))
    clients.open(5, expiry_s=60, will=will).disconnect(0x04)
    watcher.expect_nothing()
    watcher.take(topic, b"late", 1)


def test_a_takeover_drops_a_delayed_will(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    will = Will(topic, b"too soon", 1, properties=props(will_delay_interval=1))
    clients.open(5, name, clean=False, expiry_s=60, will=will)
    clients.resume(5, name)
    other = Will(topic, b"barrier", 1, properties=props(will_delay_interval=2))
    clients.open(5, expiry_s=60, will=other).close()
    watcher.take(topic, b"barrier", 1)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_may_watch_its_own_will_topic(clients: Clients, version: int) -> None:
    topic = unique_topic()
    name = unique()
    client = clients.open(version, name, clean=False, expiry_s=60, will=Will(topic, b"mine", 1))
    client.subscribe(topic, 1)
    client.close()
    clients.resume(version, name).take(topic, b"mine", 1)


def test_a_no_local_subscriber_does_not_get_its_own_will(clients: Clients) -> None:
    topic = unique_topic()
    name = unique()
    watcher = clients.open(5)
    watcher.subscribe(topic, 1)
    client = clients.open(5, name, clean=False, expiry_s=60, will=Will(topic, b"mine", 1))
    client.subscribe(topic, 1, no_local=True)
    client.close()
    watcher.take(topic, b"mine", 1)
    clients.resume(5, name).expect_nothing()


@BOTH_VERSIONS
def test_a_will_to_the_brokers_own_topics_is_refused(clients: Clients, version: int) -> None:
    client = clients.new(version)
    client.send_connect(will=Will(b"$SYS/broker/version", b"fake"))
    client.expect_refused(0x87, 5)
