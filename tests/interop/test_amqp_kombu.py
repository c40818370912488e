"""kombu: connections with pools, queues and exchanges as objects, SimpleQueue, mixins, and retries of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from amqp.exceptions import NotFound, PreconditionFailed
from amqp_names import unique
from kombu.mixins import ConsumerMixin

pytest_plugins = ["amqp_broker"]

TIMEOUT_S = 20.0


@pytest.fixture
def connection(amqp_url: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(amqp_url) as connection:
        yield connection


def drain(connection: kombu.Connection, found: list[Any], count: int) -> None:
    while len(found) < count:
        connection.drain_events(timeout=TIMEOUT_S)


def test_a_simple_queue_puts_and_gets(connection: kombu.Connection) -> None:
    queue = connection.SimpleQueue(unique())
    for number in range(5):
        queue.put({"number": number})
    for number in range(5):
        message = queue.get(timeout=TIMEOUT_S)
        assert message.payload == {"number": number}
        message.ack()
    with pytest.raises(queue.Empty):
        queue.get_nowait()
    queue.close()
    queue.queue.delete()


@pytest.mark.parametrize("serializer", ["json", "pickle", "raw"])
def test_serializers_and_compression_arrive(connection: kombu.Connection, serializer: str) -> None:
    exchange = kombu.Exchange(unique("x"), "direct", auto_delete=True)
    queue = kombu.Queue(unique(), exchange, routing_key="k", auto_delete=True)
    body: Any = b"bytes" if serializer == "raw" else {"list": [1, 2.5, None], "text": "ü"}
    found: list[Any] = []
    with connection.Consumer(
        queue,
        callbacks=[lambda got, message: found.append((got, message))],
        accept=["json", "pickle", "application/data"],
    ) as consumer:
        consumer.channel.basic_qos(0, 10, False)
        connection.Producer().publish(
            body,
            exchange=exchange,
            routing_key="k",
            serializer=serializer,
            compression=None if serializer == "raw" else "zlib",
            headers={"h": "v"},
            delivery_mode="persistent",
        )
        drain(connection, found, 1)
        got, message = found[0]
        assert (bytes(got) if serializer == "raw" else got) == body
        assert message.headers["h"] == "v"
        message.ack()


def test_a_topic_exchange_with_two_queues(connection: kombu.Connection) -> None:
    exchange = kombu.Exchange(unique("x"), "topic", auto_delete=True)
    found: list[tuple[str, str]] = []
    queues = [
        kombu.Queue(unique(), exchange, routing_key=key, exclusive=True) for key in ("stock.#", "*.eu.*")
    ]
    with connection.Consumer(
        queues, callbacks=[lambda body, message: found.append((body, message.delivery_info["routing_key"]))]
    ):
        producer = connection.Producer()
        for key in ("stock.us.x", "stock.eu.y", "news.eu.z", "news.us.z"):
            producer.publish(key, exchange=exchange, routing_key=key)
        drain(connection, found, 4)
    assert sorted(found) == sorted(
        [(key, key) for key in ("stock.us.x", "stock.eu.y", "stock.eu.y", "news.eu.z")]
    )


def test_confirms_and_returns(amqp_url: str) -> None:
    with kombu.Connection(amqp_url, transport_options={"confirm_publish": True}) as connection:
        queue = kombu.Queue(unique(), durable=True)(connection.default_channel)
        queue.declare()
        producer = connection.Producer()
        for number in range(20):
            producer.publish(number, routing_key=queue.name, retry=True)
        assert queue.queue_declare(passive=True).message_count == 20
        returned: list[Any] = []
        lonely = connection.Producer(on_return=lambda *arguments: returned.append(arguments))
        lonely.publish("x", exchange="amq.direct", routing_key=unique("nobody"), mandatory=True)
        drain(connection, returned, 1)
        assert returned[0][0].reply_code == 312
        assert queue.purge() == 20
        queue.delete()


def test_reject_requeue_and_redelivery(connection: kombu.Connection) -> None:
    queue = connection.SimpleQueue(unique())
    queue.put("again")
    message = queue.get(timeout=TIMEOUT_S)
    assert message.delivery_info["redelivered"] is False
    message.requeue()
    message = queue.get(timeout=TIMEOUT_S)
    assert message.delivery_info["redelivered"] is True
    message.reject()
    with pytest.raises(queue.Empty):
        queue.get_nowait()
    queue.close()
    queue.queue.delete()


def test_priorities_and_times_of_queues(connection: kombu.Connection) -> None:
    queue = kombu.Queue(unique(), max_priority=9, message_ttl=60.0, expires=600.0, max_length=100)
    bound = queue(connection.default_channel)
    bound.declare()
    producer = connection.Producer()
    for priority in (1, 9, 5):
        producer.publish(priority, routing_key=queue.name, priority=priority)
    found: list[int] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: found.append(body)], no_ack=True):
        drain(connection, found, 3)
    assert found == [9, 5, 1]
    bound.delete()


def test_errors_have_their_own_classes(connection: kombu.Connection) -> None:
    name = unique()
    with pytest.raises(NotFound):
        connection.channel().queue_declare(name, passive=True)
    channel = connection.channel()
    channel.queue_declare(name, durable=True, auto_delete=False)
    with pytest.raises(PreconditionFailed):
        connection.channel().queue_declare(name, durable=False, auto_delete=False)
    connection.channel().queue_delete(name)


def test_a_lost_connection_is_mended_by_ensure(amqp_url: str) -> None:
    with kombu.Connection(amqp_url) as connection:
        name = unique()
        connection.SimpleQueue(name).put("before")
        connection.connection.sock.shutdown(socket.SHUT_RDWR)

        def publish() -> None:
            connection.Producer().publish("after", routing_key=name)

        connection.ensure(connection, publish, max_retries=3, interval_start=0)()
        queue = connection.SimpleQueue(name)
        assert [queue.get(timeout=TIMEOUT_S).payload for _ in range(2)] == ["before", "after"]
        queue.queue.delete()


class Worker(ConsumerMixin):
    def __init__(self, connection: kombu.Connection, queue: kombu.Queue, count: int) -> None:
        self.connection = connection
        self._queue = queue
        self._count = count
        self.done: list[int] = []

    def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:
        return [Consumer([self._queue], callbacks=[self.on_task], prefetch_count=1)]

    def on_task(self, body: int, message: Any) -> None:
        self.done.append(body)
        message.ack()
        self.should_stop = len(self.done) == self._count


def test_a_consumer_mixin_works_through_a_queue(connection: kombu.Connection) -> None:
    queue = kombu.Queue(unique(), durable=True)
    queue(connection.default_channel).declare()
    producer = connection.Producer()
    for number in range(10):
        producer.publish(number, routing_key=queue.name)
    worker = Worker(connection, queue, 10)
    worker.run()
    assert worker.done == list(range(10))
    queue(connection.channel()).delete()


def test_heartbeats_are_spoken(amqp_url: str) -> None:
    with kombu.Connection(amqp_url, heartbeat=2) as connection:
        connection.ensure_connection(max_retries=1)
        assert connection.get_heartbeat_interval() == 2
        connection.heartbeat_check()
        assert connection.connected
