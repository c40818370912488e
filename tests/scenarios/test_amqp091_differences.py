"""AMQP 0.9.1: where random sessions on both showed another answer than RabbitMQ's."""

from __future__ import annotations

from typing import Any

import pytest
from amqp_names import OURS_ONLY, unique
from pika import frame as frames
from pika.spec import Basic, BasicProperties, Exchange, Queue
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel

pytest_plugins = ["amqp_broker"]


# ---- messages


def test_deaths_are_counted_in_64_bits(channel: AmqpChannel) -> None:
    """Typed clients (Go, Java) read nothing else."""
    grave = channel.temporary()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
    queue = channel.temporary(arguments=arguments)
    channel.publish_confirmed("", queue, b"x")
    channel.reject(channel.get_one(queue).tag, requeue=False)
    channel.wait_ready(grave, 1)
    assert b"\x05countl\0\0\0\0\0\0\0\1" in channel.get_one(grave).raw_properties


def test_a_death_that_comes_again_is_told_as_it_was_and_counted(channel: AmqpChannel) -> None:
    """The same queue and reason: where the letter came from is told of the first time."""
    exchange = channel.exchange(unique("dlx"), "fanout")
    queue = channel.temporary(arguments={"x-dead-letter-exchange": exchange})
    channel.bind(queue, exchange)
    channel.consume(queue)
    channel.publish_confirmed("", queue, b"x", expiration="60000")
    channel.reject(channel.delivery().tag, requeue=False)
    once = channel.delivery()
    channel.reject(once.tag, requeue=False)
    twice = channel.delivery()
    [first] = once.headers["x-death"]
    assert (first["exchange"], first["original-expiration"]) == ("", "60000")
    assert twice.headers["x-death"] == [{**first, "count": 2}]


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_an_unknown_delivery_mode_closes_the_channel(channel: AmqpChannel, mode: int) -> None:
    channel.publish("", "nowhere", delivery_mode=mode)
    channel.expect_closed(406, f"invalid message: {{delivery_mode_unknown,{mode}}}")


def test_copies_that_are_no_list_are_refused_in_rabbitmqs_words(channel: AmqpChannel) -> None:
    channel.publish("", "nowhere", headers={"BCC": "one"})
    channel.expect_closed(406, 'invalid message: {unacceptable_type_in_header,"BCC",longstr}')


def test_a_get_from_a_quorum_queue_always_tells_how_often_it_was_delivered(channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), durable=True, arguments={"x-queue-type": "quorum"}).queue
    channel.publish_confirmed("", queue, b"x")
    first = channel.get_one(queue)
    assert b"\x10x-delivery-countl\0\0\0\0\0\0\0\0" in first.raw_properties
    channel.nack(first.tag)
    channel.consume(queue)
    assert channel.delivery().headers == {"x-delivery-count": 1}


def test_single_records_are_not_got_from_a_quorum_queue_of_single_active_consumers(
    channel: AmqpChannel,
) -> None:
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    queue = channel.declare(unique(), durable=True, arguments=arguments).queue
    channel.send(Basic.Get(queue=queue))
    text = f"cannot obtain access to locked queue '{queue}' in vhost '/'. basic.get operations are not supported by"
    channel.expect_closed(405, text)


def test_what_a_transaction_has_answered_cannot_be_answered_again(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.publish_confirmed("", queue, b"x")
    other = channel.client.channel()
    other.tx_select()
    tag = other.get_one(queue).tag
    other.ack(tag)
    other.ack(tag, multiple=True)
    other.expect_closed(406, f"unknown delivery tag {tag}")


# ---- the order of answers


def test_what_was_asked_before_an_error_is_answered_before_it(channel: AmqpChannel) -> None:
    """In one write, as clients that do not wait send it; the first answer is a promise and waits for the disk."""
    queue = unique()
    channel.client.queues.append(queue)
    asked = [Queue.Declare(queue=queue, durable=True), Queue.Declare(queue=unique("none"), passive=True)]
    channel.client.send_bytes(b"".join([frames.Method(channel.number, method).marshal() for method in asked]))
    assert channel.expect(Queue.DeclareOk).queue == queue
    channel.expect_closed(404, "no queue")


@OURS_ONLY
def test_what_was_published_before_an_error_is_confirmed_before_it(channel: AmqpChannel) -> None:
    """RabbitMQ does this only for what need not be written."""
    queue = channel.declare(unique(), durable=True).queue
    publish = frames.Method(channel.number, Basic.Publish(routing_key=queue)).marshal()
    header = frames.Header(channel.number, 0, BasicProperties(delivery_mode=2)).marshal()
    unknown = frames.Method(channel.number, Queue.Declare(queue=unique("none"), passive=True)).marshal()
    channel.client.send_bytes(publish + header + publish + header + unknown)
    assert channel.wait_confirms(2) == ({1, 2}, set())
    channel.expect_closed(404, "no queue")


# ---- consumers


def test_nobody_consumes_alone_from_a_queue_of_single_active_consumers(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-single-active-consumer": True})
    channel.send(Basic.Consume(queue=queue, exclusive=True))
    channel.expect_closed(403, f"queue '{queue}' in vhost '/' in exclusive use")


@pytest.mark.parametrize(("priority", "kind"), [("all", "longstr"), (True, "bool"), (None, "void")])
def test_the_priority_of_a_consumer_is_a_number(channel: AmqpChannel, priority: Any, kind: str) -> None:
    queue = channel.temporary()
    channel.send(Basic.Consume(queue=queue, arguments={"x-priority": priority}))
    text = f"invalid arg 'x-priority' for queue '{queue}' in vhost '/': \"expected integer, got {kind}\""
    channel.expect_closed(406, text)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("classic", "x-stream-offset"),
        ("quorum", "x-stream-offset"),
        ("quorum", "x-cancel-on-ha-failover"),
        ("stream", "x-priority"),
        ("stream", "x-cancel-on-ha-failover"),
    ],
)
def test_arguments_for_consumers_of_another_type_of_queue_are_refused(
    channel: AmqpChannel, kind: str, name: str
) -> None:
    queue = channel.declare(unique(), durable=True, arguments={"x-queue-type": kind}).queue
    channel.qos(1)
    channel.send(Basic.Consume(queue=queue, arguments={name: 5}))
    text = f"invalid arg '{name}' for queue '{queue}' in vhost '/' of queue type rabbit_{kind}_queue"
    channel.expect_closed(406, text)


def test_consumers_say_by_yes_or_no_what_they_want_when_a_queue_moves(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.consume(queue, arguments={"x-cancel-on-ha-failover": True})
    channel.send(Basic.Consume(queue=queue, arguments={"x-cancel-on-ha-failover": 5}))
    channel.expect_closed(
        406, f"'x-cancel-on-ha-failover' for queue '{queue}' in vhost '/': {{unacceptable_type,"
    )


def test_a_stream_is_read_from_its_beginning_by_an_offset_below_it(channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), durable=True, arguments={"x-queue-type": "stream"}).queue
    channel.publish_confirmed("", queue, b"first")
    channel.qos(1)
    channel.consume(queue, arguments={"x-stream-offset": -1})
    assert channel.delivery().body == b"first"


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda queue: Basic.Get(queue=queue), "basic.get"),
        (lambda queue: Queue.Purge(queue=queue), "queue.purge"),
        (lambda queue: Basic.Consume(queue=queue, no_ack=True), "automatic acknowledgement"),
    ],
)
def test_what_streams_cannot_do_is_said_in_rabbitmqs_words(channel: AmqpChannel, ask: Any, what: str) -> None:
    queue = channel.declare(unique(), durable=True, arguments={"x-queue-type": "stream"}).queue
    channel.qos(1)
    channel.send(ask(queue))
    text = f"NOT_IMPLEMENTED - {what} not supported by stream queues queue '{queue}' in vhost '/'"
    channel.client.expect_closed(540, text)


def test_a_missing_queue_is_told_before_the_priority_is_looked_at(channel: AmqpChannel) -> None:
    channel.send(Basic.Consume(queue=unique("none"), arguments={"x-priority": "all"}))
    channel.expect_closed(404, "no queue")


def test_an_empty_name_is_looked_at_before_the_tag_of_a_consumer(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    other = channel.client.channel()
    other.consume(queue, "tag")
    other.send(Basic.Consume(queue="", consumer_tag="tag"))
    other.expect_closed(404, "no previously declared queue")


def test_recover_without_requeue_is_refused_in_rabbitmqs_words(channel: AmqpChannel) -> None:
    channel.send(Basic.Recover(requeue=False))
    channel.client.expect_closed(540, "NOT_IMPLEMENTED - requeue=false")


# ---- declarations


@pytest.mark.parametrize("method", [Queue.Bind, Queue.Unbind])
@pytest.mark.parametrize("exchange", ["", "missing"])
def test_an_empty_name_stands_for_no_queue_before_one_was_declared(
    channel: AmqpChannel, method: Any, exchange: str
) -> None:
    channel.send(method(queue="", exchange=exchange, routing_key="key"))
    channel.expect_closed(404, "NOT_FOUND - no previously declared queue")


def test_the_queue_of_somebody_else_is_unbound_already_when_it_is_not_bound(
    clients: AmqpClients, channel: AmqpChannel
) -> None:
    owner = clients.channel()
    queue = owner.temporary()
    channel.unbind(queue, "amq.direct", "key")
    owner.bind(queue, "amq.direct", "key")
    channel.send(Queue.Unbind(queue=queue, exchange="amq.direct", routing_key="key"))
    channel.expect_closed(405, "cannot obtain exclusive access to locked queue")


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_an_auto_delete_queue_of_such_a_type_is_refused_for_that_first(
    channel: AmqpChannel, kind: str
) -> None:
    arguments = {"x-queue-type": kind}
    channel.send(Queue.Declare(queue=unique(), exclusive=True, auto_delete=True, arguments=arguments))
    channel.expect_closed(406, "invalid property 'auto-delete'")


def test_the_first_of_several_other_arguments_is_the_one_rabbitmq_names(channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    arguments = {"x-single-active-consumer": True, "x-max-priority": 2}
    channel.send(Queue.Declare(queue=queue, arguments=arguments))
    channel.expect_closed(406, "inequivalent arg 'x-max-priority'")


def test_a_queue_declared_again_with_another_type_is_compared_as_in_rabbitmq(channel: AmqpChannel) -> None:
    """What is no argument of its own type is not looked at, and the type that goes without saying is none."""
    queue = channel.declare(unique()).queue
    channel.declare(queue, arguments={"x-queue-type": "classic", "x-initial-cluster-size": 1})
    channel.send(Queue.Declare(queue=queue, arguments={"x-queue-type": "stream"}))
    channel.expect_closed(406, "received the value 'stream' of type 'longstr' but current is none")


def test_of_two_wrong_arguments_rabbitmqs_first_is_named(channel: AmqpChannel) -> None:
    arguments = {"x-queue-mode": "none", "x-expires": -1}
    channel.send(Queue.Declare(queue=unique(), arguments=arguments))
    channel.expect_closed(406, "invalid arg 'x-expires'")


def test_another_alternate_exchange_is_told_by_its_name(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), arguments={"alternate-exchange": "one"})
    channel.send(Exchange.Declare(exchange=exchange, type="direct", arguments={"alternate-exchange": "two"}))
    channel.expect_closed(406, "received 'two' but current is 'one'")


def test_an_exchange_that_is_there_is_compared_before_its_arguments_are_checked(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"))
    channel.send(Exchange.Declare(exchange=exchange, type="fanout", arguments={"alternate-exchange": 5}))
    channel.expect_closed(406, "inequivalent arg 'type'")


def test_an_unknown_type_of_exchange_is_told_whatever_its_name(channel: AmqpChannel) -> None:
    channel.send(Exchange.Declare(exchange="", type="telepathic"))
    channel.client.expect_closed(503, "exchange type 'telepathic'")


@pytest.mark.parametrize(("match", "shown"), [(5, "signedint (value 5)"), (None, "void (value undefined)")])
def test_a_match_that_is_no_text_is_refused_by_its_type(channel: AmqpChannel, match: Any, shown: str) -> None:
    queue = channel.temporary()
    channel.send(Queue.Bind(queue=queue, exchange="amq.headers", arguments={"x-match": match}))
    channel.expect_closed(406, f"Invalid x-match field type {shown}; expected longstr")
