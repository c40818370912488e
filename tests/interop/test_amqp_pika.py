"""pika, the blocking connection and the asynchronous one, as services use them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pika.exceptions
import pytest
from amqp_names import unique
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.select_connection import SelectConnection
from pika.exchange_type import ExchangeType

pytest_plugins = ["amqp_broker"]

TIMEOUT_S = 20.0


@pytest.fixture
def connection(amqp_url: str) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


def exclusive_queue(channel: BlockingChannel) -> str:
    return str(channel.queue_declare("", exclusive=True).method.queue)


def take(channel: BlockingChannel, queue: str, count: int, **options: Any) -> list[tuple[Any, Any, bytes]]:
    """Consume so many messages through pika's generator."""
    found = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=TIMEOUT_S, **options):
        assert method is not None, f"only {len(found)} of {count} came"
        found.append((method, properties, body))
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_hello_world(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    channel.basic_publish("", queue, b"Hello World!")
    (found,) = take(channel, queue, 1, auto_ack=True)
    assert found[2] == b"Hello World!"


def test_work_queues(channel: BlockingChannel) -> None:
    queue = unique()
    channel.queue_declare(queue, durable=True)
    for number in range(10):
        channel.basic_publish(
            "", queue, b"%d" % number, pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        )
    channel.basic_qos(prefetch_count=1)
    done: list[bytes] = []

    def on_message(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        done.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(done) == 10:
            channel.stop_consuming()

    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    assert done == [b"%d" % number for number in range(10)]
    channel.queue_delete(queue)


def test_publish_and_subscribe(channel: BlockingChannel) -> None:
    exchange = unique("logs")
    channel.exchange_declare(exchange, ExchangeType.fanout)
    queues = [exclusive_queue(channel) for _ in range(3)]
    for queue in queues:
        channel.queue_bind(queue, exchange)
    channel.basic_publish(exchange, "", b"to all")
    for queue in queues:
        assert take(channel, queue, 1, auto_ack=True)[0][2] == b"to all"
    channel.exchange_delete(exchange)


def test_routing_and_topics(channel: BlockingChannel) -> None:
    direct, topic = unique("direct"), unique("topic")
    channel.exchange_declare(direct, "direct")
    channel.exchange_declare(topic, "topic")
    errors, kernel = exclusive_queue(channel), exclusive_queue(channel)
    channel.queue_bind(errors, direct, "error")
    channel.queue_bind(kernel, topic, "kern.*")
    for key in ("info", "error"):
        channel.basic_publish(direct, key, key.encode())
    for key in ("kern.critical", "cron.critical", "kern.a.b"):
        channel.basic_publish(topic, key, key.encode())
    channel.basic_publish(topic, "kern.last", b"last")
    channel.basic_publish(direct, "error", b"last")
    assert [body for _, _, body in take(channel, errors, 2, auto_ack=True)] == [b"error", b"last"]
    assert [body for _, _, body in take(channel, kernel, 2, auto_ack=True)] == [b"kern.critical", b"last"]
    channel.exchange_delete(direct)
    channel.exchange_delete(topic)


def test_remote_procedure_calls(amqp_url: str, channel: BlockingChannel) -> None:
    requests = exclusive_queue(channel)

    def on_request(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish(
            "",
            properties.reply_to,
            str(int(body) ** 2).encode(),
            pika.BasicProperties(correlation_id=properties.correlation_id),
        )
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(requests, on_request)
    asker = channel.connection.channel()
    answers = exclusive_queue(asker)
    got: dict[str, bytes] = {}
    asker.basic_consume(
        answers,
        lambda _channel, _method, properties, body: got.update({properties.correlation_id: body}),
        auto_ack=True,
    )
    for number in range(5):
        asker.basic_publish(
            "",
            requests,
            str(number).encode(),
            pika.BasicProperties(reply_to=answers, correlation_id=f"c{number}"),
        )
    while len(got) < 5:
        channel.connection.process_data_events(TIMEOUT_S)
    assert got == {f"c{number}": str(number**2).encode() for number in range(5)}


def test_direct_reply_to(channel: BlockingChannel) -> None:
    requests = exclusive_queue(channel)
    got: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *arguments: got.append(arguments[3]), auto_ack=True)
    channel.basic_publish("", requests, b"ask", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    server = channel.connection.channel()
    (request,) = take(server, requests, 1, auto_ack=True)
    server.basic_publish("", request[1].reply_to, b"answer")
    while not got:
        channel.connection.process_data_events(TIMEOUT_S)
    assert got == [b"answer"]


def test_publisher_confirms(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", queue, b"%d" % number, mandatory=True)
    assert channel.queue_declare(queue, passive=True).method.message_count == 20
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("amq.direct", unique("nobody"), b"lost", mandatory=True)
    assert caught.value.messages[0].body == b"lost"


def test_a_refused_publish_is_an_error(channel: BlockingChannel) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", queue, b"too much")


def test_transactions(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    channel.tx_select()
    channel.basic_publish("", queue, b"gone")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"there")
    channel.tx_commit()
    assert channel.basic_get(queue, auto_ack=True)[2] == b"there"
    assert channel.basic_get(queue) == (None, None, None)


HEADERS: dict[str, Any] = {
    "text": "grüße",
    "int": -5,
    "big": 1 << 40,
    "flag": True,
    "none": None,
    "decimal": Decimal("3.14"),
    "time": datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
    "list": [1, "two", None, [3]],
    "table": {"inner": {"x": False}},
    "bytes": b"\x00\xff",
}


def test_headers_and_properties(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers=HEADERS,
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="100000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    channel.basic_publish("", queue, b"x", sent)
    _, found, _ = channel.basic_get(queue)
    assert found == sent


def test_errors_close_the_channel_and_not_the_connection(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(unique("missing"), passive=True)
    assert caught.value.reply_code == 404
    channel = connection.channel()
    queue = unique()
    channel.queue_declare(queue, durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(queue, durable=False)
    assert caught.value.reply_code == 406
    connection.channel().queue_delete(queue)


def test_a_wrong_virtual_host_is_refused(amqp_url: str) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(pika.URLParameters(amqp_url + "nowhere"))


def test_a_consumer_is_told_when_its_queue_goes(connection: pika.BlockingConnection) -> None:
    channel, other = connection.channel(), connection.channel()
    queue = unique()
    channel.queue_declare(queue)
    told: list[str] = []
    channel.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    other.queue_delete(queue)
    while not told:
        connection.process_data_events(TIMEOUT_S)
    assert told == [tag]


def test_nack_reject_and_recover(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    first = channel.basic_get(queue)[0]
    channel.basic_nack(first.delivery_tag)
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered) == (b"0", True)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get(queue)[2] == b"1"
    channel.basic_recover(requeue=True)
    assert channel.basic_get(queue)[2] == b"1"


def test_a_large_message(channel: BlockingChannel) -> None:
    queue = exclusive_queue(channel)
    body = bytes(range(256)) * 16_384
    channel.basic_publish("", queue, body)
    assert take(channel, queue, 1, auto_ack=True)[0][2] == body


def test_many_channels_on_one_connection(connection: pika.BlockingConnection) -> None:
    channels = [connection.channel() for _ in range(30)]
    for channel in channels:
        queue = exclusive_queue(channel)
        channel.basic_publish("", queue, queue.encode())
        assert channel.basic_get(queue, auto_ack=True)[2] == queue.encode()


def test_callbacks_from_another_thread(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    queue = exclusive_queue(channel)

    def publish_and_stop() -> None:
        channel.basic_publish("", queue, b"from the loop")

    threading.Thread(target=lambda: connection.add_callback_threadsafe(publish_and_stop)).start()
    assert take(channel, queue, 1, auto_ack=True)[0][2] == b"from the loop"


def test_heartbeats_keep_a_quiet_connection(amqp_url: str) -> None:
    parameters = pika.URLParameters(amqp_url)
    parameters.heartbeat = 1
    connection = pika.BlockingConnection(parameters)
    checker = connection._impl._heartbeat_checker
    while checker._heartbeat_frames_received < 4:  # longer than a silent connection lives
        connection.process_data_events(0.1)
    connection.channel().close()
    connection.close()


class Conversation:
    """The asynchronous connection: declares, publishes with confirms, consumes, and closes."""

    def __init__(self, url: str) -> None:
        self.got: list[bytes] = []
        self.confirmed = 0
        self._queue = ""
        self.connection = SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._on_channel),
            on_close_callback=lambda connection, _reason: connection.ioloop.stop(),
        )

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_confirm, callback=self._on_confirm_mode)

    def _on_confirm_mode(self, _frame: Any) -> None:
        self._channel.queue_declare("", exclusive=True, callback=self._on_queue)

    def _on_queue(self, frame: Any) -> None:
        self._queue = frame.method.queue
        self._channel.basic_qos(prefetch_count=5, callback=self._on_qos)

    def _on_qos(self, _frame: Any) -> None:
        self._channel.basic_consume(self._queue, self._on_message)
        for number in range(50):
            self._channel.basic_publish("", self._queue, b"%d" % number)

    def _on_confirm(self, frame: Any) -> None:
        self.confirmed = max(self.confirmed, frame.method.delivery_tag)
        self._end_when_done()

    def _on_message(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.got.append(body)
        channel.basic_ack(method.delivery_tag)
        self._end_when_done()

    def _end_when_done(self) -> None:
        if len(self.got) == 50 and self.confirmed == 50 and self.connection.is_open:
            self.connection.close()


def test_the_asynchronous_connection(amqp_url: str) -> None:
    conversation = Conversation(amqp_url)
    conversation.connection.ioloop.call_later(TIMEOUT_S, conversation.connection.ioloop.stop)
    conversation.connection.ioloop.start()
    assert conversation.got == [b"%d" % number for number in range(50)]
    assert conversation.confirmed == 50
