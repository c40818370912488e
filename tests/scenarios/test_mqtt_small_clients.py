"""Clients at the edge: a packet size that leaves no room for answers, refusals out of the blue, MQTT 3.1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BrokerProcess
from raw_client import Clients, frame, props, text, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import PubRec, Subscribe, SubscribeEntry, Unsubscribe


@pytest.fixture
def clients(shared_broker: BrokerProcess) -> Iterator[Clients]:
    with Clients(shared_broker.mqtt_port) as clients:
        yield clients


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_client_that_takes_no_connack_gets_nothing_and_is_closed(clients: Clients, size: int) -> None:
    client = clients.new(5)  # [MQTT-3.1.2-24]
    client.send_connect(properties=props(maximum_packet_size=size))
    client.expect_closed()


def test_a_client_that_takes_a_bare_connack_is_welcome(clients: Clients) -> None:
    client = clients.open(5, properties=props(maximum_packet_size=5))
    client.send_bytes(frame(0xC0, b""))
    assert client.receive_bytes(2) == b"\xd0\x00"


@pytest.mark.parametrize("is_subscribe", [True, False])
def test_a_request_whose_answer_the_client_could_not_take_ends_the_connection(
    clients: Clients, is_subscribe: bool
) -> None:
    client = clients.open(5, properties=props(maximum_packet_size=20))  # [MQTT-3.8.4-1, MQTT-3.10.4-4]
    topics = [unique_topic() for _ in range(40)]
    if is_subscribe:
        client.send(Subscribe(1, [SubscribeEntry(topic, 1) for topic in topics]))
    else:
        client.send(Unsubscribe(1, topics))
    client.expect_disconnect(0x95)


def test_a_refusal_of_an_unknown_delivery_is_not_answered(clients: Clients) -> None:
    client = clients.open(5)  # [MQTT-4.3.3-4]
    client.send(PubRec(9, 0x80))
    client.expect_nothing()


def connect_3_1(clients: Clients, client_id: str, flags: int) -> bytes:
    client = clients.new(3)
    body = text(b"MQIsdp") + bytes([3, flags]) + (60).to_bytes(2, "big") + text(client_id.encode())
    client.send_bytes(frame(0x10, body))
    answer = client.receive_bytes(4)
    client.send_bytes(frame(0xE0, b""))
    client.wait_closed()
    return answer


def test_a_session_that_is_present_is_not_told_to_mqtt_3_1(clients: Clients) -> None:
    client_id = unique()[:20]
    assert connect_3_1(clients, client_id, 0) == bytes([0x20, 2, 0, 0])
    assert connect_3_1(clients, client_id, 0) == bytes([0x20, 2, 0, 0])  # the byte is reserved there


def test_the_lowest_connect_flag_means_nothing_in_mqtt_3_1(clients: Clients) -> None:
    assert connect_3_1(clients, unique()[:20], 0x03) == bytes([0x20, 2, 0, 0])
