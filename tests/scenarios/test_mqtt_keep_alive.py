"""PINGREQ, keep alive and DISCONNECT [MQTT-3.1.2-22, 3.12, 3.13, 3.14]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import BOTH_VERSIONS, EVERY_VERSION, Clients, unique_topic

from millstream.protocols.mqtt.wire.packets import Disconnect, PingReq, PingResp, Publish


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


@EVERY_VERSION
def test_a_ping_is_answered(clients: Clients, version: int) -> None:
    client = clients.open(version, keep_alive_s=60)  # [MQTT-3.12.4-1]
    for _ in range(3):
        client.send(PingReq())
        client.expect(PingResp())


@BOTH_VERSIONS
def test_pings_in_one_write_are_all_answered(clients: Clients, version: int) -> None:
    client = clients.open(version)
    client.send(*[PingReq()] * 50)
    for _ in range(50):
        client.expect(PingResp())


# What lasts as long as a silent client lives, one and a half seconds, is shown for both versions in the same seconds.
VERSIONS = (4, 5)


def test_a_silent_client_is_disconnected_after_one_and_a_half_keep_alives(clients: Clients) -> None:
    for client in [clients.open(version, keep_alive_s=1) for version in VERSIONS]:
        client.expect_disconnect(0x8D)  # [MQTT-3.1.2-22]


def test_any_packet_keeps_a_client_alive(clients: Clients) -> None:
    publish = Publish(b"keep/alive", b"x")
    pinging = [clients.open(version, keep_alive_s=2) for version in VERSIONS]
    publishing = [clients.open(version, keep_alive_s=2) for version in VERSIONS]
    for _ in range(2):
        clients.open(5, keep_alive_s=1).expect_disconnect(0x8D)
        for client in pinging:
            client.send(PingReq())
            client.expect(PingResp())
        for client in publishing:
            client.send(publish)
    # Three seconds have passed: without those packets they would be gone.
    for client in (*pinging, *publishing):
        client.send(PingReq())
        client.expect(PingResp())


def test_keep_alive_zero_means_never(clients: Clients) -> None:
    quiet = [clients.open(version, keep_alive_s=0) for version in VERSIONS]
    clients.open(5, keep_alive_s=1).expect_disconnect(0x8D)
    for client in quiet:
        client.expect_nothing()


def test_what_the_broker_sends_does_not_count(clients: Clients) -> None:
    topic = unique_topic()
    publisher = clients.open(5)
    silent = [clients.open(version, keep_alive_s=1) for version in VERSIONS]
    for client in silent:
        client.subscribe(topic)
    publisher.publish(topic, b"x")
    for client in silent:
        client.take(topic, b"x")
    for client in silent:
        client.expect_disconnect(0x8D)


@EVERY_VERSION
def test_a_disconnect_closes_the_connection_without_an_answer(clients: Clients, version: int) -> None:
    client = clients.open(version)  # [MQTT-3.14.4-1, 3.14.0-1]
    client.send(Disconnect())
    client.expect_closed()


@BOTH_VERSIONS
def test_nothing_behind_a_disconnect_is_done(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.14.4-1]
    watcher = clients.open(version)
    watcher.subscribe(topic)
    client = clients.open(version)
    client.send(Disconnect(), Publish(topic, b"late"), PingReq())
    client.expect_closed()
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_a_half_closed_connection_is_closed(clients: Clients, version: int) -> None:
    client = clients.open(version)
    client.finish_writing()
    client.wait_closed()


def test_the_broker_tells_a_shorter_keep_alive_and_keeps_to_it(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.max_keep_alive=1")
    with Clients(broker.mqtt_port) as clients:
        for asked in (0, 2, 60_000):
            answer = (client := clients.new(5)).connect(keep_alive_s=asked)
            assert answer.properties is not None
            assert answer.properties.server_keep_alive == 1  # [MQTT-3.1.2-21, 3.2.2-21]
        client.expect_disconnect(0x8D)
        answer = clients.new(5).connect(keep_alive_s=1)
        assert answer.properties is not None
        assert answer.properties.server_keep_alive is None


@BOTH_VERSIONS
def test_a_broker_that_stops_says_so(start_broker: StartBroker, version: int) -> None:
    broker = start_broker()
    with Clients(broker.mqtt_port) as clients:
        client = clients.open(version)
        assert broker.stop() == 0
        client.expect_disconnect(0x8B)


def test_a_broker_that_stops_names_another_server(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.server_reference=other.example:1883")
    with Clients(broker.mqtt_port) as clients:
        client = clients.open(5)
        broker.process.terminate()
        found = client.expect_disconnect(0x8B, 0x9C, 0x9D)
        assert found is not None
        assert found.properties is not None
        assert found.properties.server_reference == b"other.example:1883"
