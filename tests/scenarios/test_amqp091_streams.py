"""AMQP 0.9.1: a queue of type stream keeps what was read, and a consumer says from where it reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from amqp_names import unique
from pika.spec import Basic
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel

pytest_plugins = ["amqp_broker"]

STREAM = {"x-queue-type": "stream"}


def filled(channel: AmqpChannel, count: int = 10, **arguments: Any) -> str:
    queue = str(channel.declare(unique("stream"), durable=True, arguments={**STREAM, **arguments}).queue)
    for number in range(count):
        channel.publish_confirmed("", queue, b"%d" % number, delivery_mode=2)
    return queue


def reader(clients: AmqpClients, queue: str, offset: object = None) -> AmqpChannel:
    channel = clients.channel()
    channel.qos(100)
    channel.consume(queue, arguments={} if offset is None else {"x-stream-offset": offset})
    return channel


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]


def test_every_reader_gets_everything_with_its_offset(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel)
    for _ in range(2):
        one = reader(clients, queue, "first")
        deliveries = one.deliveries(10)
        assert [delivery.body for delivery in deliveries] == numbers(*range(10))
        assert [delivery.headers["x-stream-offset"] for delivery in deliveries] == list(range(10))
        one.ack(deliveries[-1].tag, multiple=True)
        one.sync()


def test_a_reader_may_begin_at_an_offset(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel)
    assert reader(clients, queue, 7).bodies(3) == numbers(7, 8, 9)


@pytest.mark.parametrize("offset", [None, "next"], ids=str)
def test_a_reader_begins_with_what_comes_when_it_says_nothing(
    clients: AmqpClients, channel: AmqpChannel, offset: object
) -> None:
    queue = filled(channel)
    late = reader(clients, queue, offset)
    channel.publish_confirmed("", queue, b"new")
    assert late.delivery().body == b"new"


def test_a_reader_may_begin_at_a_time(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel)
    early = datetime(2001, 1, 1, tzinfo=UTC)
    assert reader(clients, queue, early).bodies(10) == numbers(*range(10))


def test_credit_is_given_back_by_acknowledgements(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel)
    slow = clients.channel()
    slow.qos(2)
    slow.consume(queue, arguments={"x-stream-offset": "first"})
    first = slow.deliveries(2)
    slow.expect_nothing()
    slow.ack(first[1].tag, multiple=True)
    assert slow.bodies(2) == numbers(2, 3)


def test_messages_that_were_read_stay(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel, 3)
    one = reader(clients, queue, "first")
    for delivery in one.deliveries(3):
        one.ack(delivery.tag)
    one.client.close()
    assert reader(clients, queue, "first").bodies(3) == numbers(0, 1, 2)


def test_a_stream_wants_a_prefetch_and_acknowledgements(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel, 1)
    client = clients.open()
    without_prefetch = client.channel()
    without_prefetch.send(Basic.Consume(queue=queue))
    without_prefetch.expect_closed(406, "prefetch count")
    without_acks = client.channel()
    without_acks.qos(10)
    without_acks.send(Basic.Consume(queue=queue, no_ack=True))
    client.expect_closed(540)


def test_a_stream_gives_nothing_by_get(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel, 1)
    other = clients.channel()
    other.send(Basic.Get(queue=queue))
    other.client.expect_closed(540)


def test_a_wrong_offset_is_refused(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel, 1)
    other = clients.channel()
    other.qos(10)
    with pytest.raises(Exception, match=r"406|541"):  # RabbitMQ calls it an internal error
        other.consume(queue, arguments={"x-stream-offset": "the-day-before-yesterday"})


def test_the_limits_of_a_stream_are_accepted(channel: AmqpChannel) -> None:
    arguments = {"x-max-age": "7D", "x-max-length-bytes": 1 << 30, "x-stream-max-segment-size-bytes": 1 << 20}
    filled(channel, 1, **arguments)


def test_a_wrong_age_is_refused(clients: AmqpClients) -> None:
    with pytest.raises(Exception, match=r"406|541"):
        filled(clients.channel(), 0, **{"x-max-age": "old"})


def test_a_stream_keeps_order_and_properties(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = filled(channel, 0)
    channel.publish_confirmed("", queue, b"x", headers={"a": 1}, message_id="m")
    delivery = reader(clients, queue, "first").delivery()
    assert delivery.properties.message_id == "m"
    assert delivery.headers["a"] == 1
    assert (delivery.method.exchange, delivery.method.routing_key) == ("", queue)
