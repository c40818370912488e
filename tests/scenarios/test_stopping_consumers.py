"""A broker that stops hands nothing on between consumers that are to go as well: a message that one of them had open was
delivered once, and its limit of deliveries is not used up by the stop."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from conftest import BrokerProcess, StartBroker
from pika.adapters.blocking_connection import BlockingChannel
from raw_client import TIMEOUT_S, Clients, RawClient

OTHERS = 3
LIMIT = 2  # deliveries; each consumer that got it on the way out would count
COUNTED = {"x-queue-type": "quorum", "x-delivery-limit": LIMIT}


@pytest.fixture
def settings(tmp_path: Path) -> tuple[str, ...]:
    return f"data_dir={tmp_path / 'data'}", "queues.jobs.kind=work", f"queues.jobs.max_deliveries={LIMIT}"


def open_channel(broker: BrokerProcess, stack: ExitStack) -> BlockingChannel:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"]))
    stack.callback(lambda: connection.is_open and connection.close())
    return connection.channel()


def read_to_end(channel: BlockingChannel) -> None:
    """One look may end before the last frame has come."""
    while True:
        channel.connection.process_data_events(TIMEOUT_S)


def test_a_message_open_with_one_of_many_amqp_consumers_at_a_stop_was_delivered_once(
    start_broker: StartBroker, settings: tuple[str, ...]
) -> None:
    broker = start_broker(*settings)
    got: list[bytes] = []
    with ExitStack() as stack:
        holder = open_channel(broker, stack)
        holder.queue_declare("counted", durable=True, arguments=COUNTED)
        holder.basic_publish("", "counted", b"open")
        _, _, body = next(holder.consume("counted", inactivity_timeout=TIMEOUT_S))
        assert body == b"open"
        others = [open_channel(broker, stack) for _ in range(OTHERS)]
        for channel in others:
            channel.basic_consume("counted", lambda _channel, _method, _properties, body: got.append(body))
        assert broker.stop() == 0
        for channel in (holder, *others):
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
                read_to_end(channel)
    assert got == []
    again = start_broker(*settings)
    with ExitStack() as stack:
        method, properties, body = open_channel(again, stack).basic_get("counted")
    assert method is not None
    assert (body, method.redelivered) == (b"open", True)
    assert (properties.headers or {})["x-delivery-count"] == 1


def join(clients: Clients) -> RawClient:
    client = clients.open()
    assert client.subscribe(b"$share/workers/$queue/jobs/#", 1) == 1
    return client


def test_a_message_open_with_one_of_many_mqtt_consumers_at_a_stop_was_delivered_once(
    start_broker: StartBroker, settings: tuple[str, ...]
) -> None:
    broker = start_broker(*settings)
    with Clients(broker.mqtt_port) as clients:
        holder = join(clients)
        assert clients.open().publish(b"$queue/jobs", b"open", 1) == 0
        assert holder.expect_publish().payload == b"open"
        workers = [holder, *[join(clients) for _ in range(OTHERS)]]
        assert broker.stop() == 0
        for worker in workers:
            worker.expect_disconnect(0x8B)  # and no message before it
    again = start_broker(*settings)
    with Clients(again.mqtt_port) as clients:
        found = join(clients).expect_publish()
        assert found.payload == b"open"
        assert found.properties is not None
        marks = dict(found.properties.user_properties)
        assert (marks[b"redelivered"], marks[b"delivery-count"]) == (b"true", b"2")  # with this one
