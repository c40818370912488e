"""Quotas of a user and an account in a running broker: over both protocols together, and after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import StartBroker
from raw_amqp import AmqpClients
from raw_amqp_channel import ChannelClosed, wait_until
from raw_client import NEVER, Clients, RawClient, props

from millstream.protocols.mqtt.wire.packets import PubAck, Publish

QUOTAS = (
    "user_quotas.max_queues=2",
    "user_quotas.max_sessions=3",
    "user_quotas.max_bytes=200 KiB",
    "broker.sys_interval=1",
)


def puback(client: RawClient) -> int:
    answer = client.receive()
    assert isinstance(answer, PubAck)
    return answer.reason


def test_queues_and_sessions_of_a_user_are_bounded_over_both_protocols_and_after_a_crash(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = f"data_dir={tmp_path / 'data'}"
    broker = start_broker(folder, *QUOTAS)
    with Clients(broker.mqtt_port) as clients, AmqpClients(broker.ports["amqp"]) as rabbits:
        client = clients.open(5, "stays", clean=False, properties=props(session_expiry_interval=NEVER))
        client.send(Publish(b"$queue/one", b"x", 1, packet_id=1))
        assert puback(client) == 0
        channel = rabbits.channel()
        channel.declare("two", durable=True)
        channel.client.queues.clear()
        with pytest.raises(ChannelClosed) as caught:
            channel.declare("three", durable=True)
        assert caught.value.code == 406
        assert "has 2 queues, as many as user_quotas.max_queues = 2 allows" in caught.value.text
        client.send(Publish(b"$queue/three", b"x", 1, packet_id=2))
        assert puback(client) == 0x97
    broker.kill()
    again = start_broker(folder, *QUOTAS)
    with Clients(again.mqtt_port) as clients:
        for number in range(2):
            clients.open(5, f"new-{number}")
        refused = clients.new(5)
        refused.send_connect("one too many")
        refused.expect_refused(0x97, 3)
        client = clients.open(5, "stays", clean=False, properties=props(session_expiry_interval=NEVER))
        client.send(Publish(b"$queue/three", b"x", 1, packet_id=1))
        assert puback(client) == 0x97
        client.send(Publish(b"$queue/two", b"x", 1, packet_id=2))
        assert puback(client) == 0
    lines = [json.loads(line) for line in again.log_file.read_text().splitlines() if line.startswith("{")]
    began = [line["condition"] for line in lines if line["event"] == "condition_began"]
    assert began == [
        "quota_reached/sessions of default%2Fanonymous",
        "quota_reached/queues of default%2Fanonymous",
    ]


def test_a_user_stores_no_more_than_its_quota(start_broker: StartBroker) -> None:
    broker = start_broker(*QUOTAS)
    with Clients(broker.mqtt_port) as clients:
        client = clients.open(5)
        reasons: list[int] = []

        def is_refused() -> bool:
            client.send(Publish(b"$queue/q", bytes(20_000), 1, packet_id=len(reasons) + 1))
            reasons.append(puback(client))
            return reasons[-1] != 0

        for _ in range(10):  # who has less than its quota may store a message that exceeds it
            assert not is_refused()
        wait_until(is_refused, "a user with more than user_quotas.max_bytes stored publishes still")
        assert reasons[-1] == 0x97
