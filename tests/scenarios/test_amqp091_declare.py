"""AMQP 0.9.1: queues and exchanges are declared, found, conflicting, locked, refused and removed as in RabbitMQ.

Every error closes its channel with the code RabbitMQ gives, and the connection lives.
"""

from __future__ import annotations

from typing import Any

import pytest
from amqp_names import unique
from pika.spec import Basic, Exchange, Queue
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel, ChannelClosed, wait_until

pytest_plugins = ["amqp_broker"]


@pytest.fixture
def channel(clients: AmqpClients) -> AmqpChannel:
    """Not in confirm mode."""
    return clients.channel()


def expect_refused(channel: AmqpChannel, method: Any, code: int, part: str = "") -> None:
    """The channel ends with this code and names the method; another channel on its connection works."""
    channel.send(method)
    closed = channel.expect_closed(code, part)
    assert closed.method == (method.INDEX >> 16, method.INDEX & 0xFFFF)
    channel.client.channel().sync()


# ---- queues


def test_a_queue_is_named_by_the_broker_and_by_the_last_declare(channel: AmqpChannel) -> None:
    name = channel.declare(exclusive=True).queue
    assert name.startswith("amq.gen-")
    channel.bind("", "amq.fanout")
    channel.publish("", name, b"x")
    assert channel.get_one("").body == b"x"
    assert channel.temporary() != name


def test_a_binding_without_names_is_of_the_last_queue_by_its_name(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "direct")
    queue = channel.temporary()
    channel.confirm_select()
    channel.bind("", exchange, "")
    for key in ("", queue):
        channel.publish_confirmed(exchange, key, key.encode())
    assert channel.get_one("", no_ack=True).body == queue.encode()
    channel.unbind("", exchange, "")
    channel.publish_confirmed(exchange, queue, b"unbound")
    assert channel.get("") is None


def test_declaring_again_with_the_same_arguments_changes_nothing(channel: AmqpChannel) -> None:
    queue = unique()
    options: dict[str, Any] = {"durable": True, "arguments": {"x-max-length": 10, "x-message-ttl": 60_000}}
    channel.declare(queue, **options)
    channel.confirm_select()
    channel.publish_confirmed("", queue, b"x")
    assert channel.declare(queue, **options).message_count == 1


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        ({"durable": True}, {"durable": False}, "inequivalent arg 'durable'"),
        ({"durable": True}, {"durable": True, "auto_delete": True}, "inequivalent arg 'auto_delete'"),
        (
            {"arguments": {"x-message-ttl": 1000}},
            {"arguments": {"x-message-ttl": 2000}},
            "inequivalent arg 'x-message-ttl'",
        ),
        ({"arguments": {"x-max-length": 5}}, {}, "inequivalent arg 'x-max-length'"),
        ({}, {"arguments": {"x-dead-letter-exchange": "d"}}, "inequivalent arg 'x-dead-letter-exchange'"),
        ({}, {"arguments": {"x-max-priority": 5}}, "inequivalent arg 'x-max-priority'"),
        (
            {"durable": True},
            {"durable": True, "arguments": {"x-queue-type": "quorum"}},
            "inequivalent arg 'x-queue-type'",
        ),
    ],
)
def test_declaring_again_with_other_arguments_is_a_conflict(
    channel: AmqpChannel, first: dict[str, Any], second: dict[str, Any], part: str
) -> None:
    queue = unique()
    channel.declare(queue, **first)
    expect_refused(channel, Queue.Declare(queue=queue, **second), 406, part)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "soon"},
        {"x-expires": 0},
        {"x-expires": "later"},
        {"x-max-length": -5},
        {"x-max-length-bytes": -5},
        {"x-overflow": "explode"},
        {"x-dead-letter-exchange": 5},
        {"x-dead-letter-routing-key": "key-without-exchange"},
        {"x-max-priority": 256},
        {"x-max-priority": -1},
        {"x-queue-type": "cardboard"},
    ],
    ids=str,
)
def test_an_argument_with_a_wrong_value_is_refused(channel: AmqpChannel, arguments: dict[str, Any]) -> None:
    expect_refused(channel, Queue.Declare(queue=unique(), durable=True, arguments=arguments), 406)


def test_arguments_nobody_knows_are_accepted(channel: AmqpChannel) -> None:
    channel.declare(unique(), arguments={"x-of-my-own": 7, "note": "hello"})


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize("options", [{}, {"durable": True, "exclusive": True}], ids=str)
def test_a_replicated_kind_must_be_durable_and_not_exclusive(
    channel: AmqpChannel, kind: str, options: dict[str, Any]
) -> None:
    declare = Queue.Declare(queue=unique(), arguments={"x-queue-type": kind}, **options)
    expect_refused(channel, declare, 406)


def test_a_passive_declare_tells_the_counts(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.confirm_select()
    for number in range(3):
        channel.publish_confirmed("", queue, b"%d" % number)
    assert channel.counts(queue) == (3, 0)
    channel.qos(2)
    channel.consume(queue)
    channel.deliveries(2)
    assert channel.counts(queue) == (1, 1)


def test_a_missing_queue_is_not_found(clients: AmqpClients) -> None:
    queue = unique("missing")
    text = f"no queue '{queue}' in vhost '/'"
    connection = clients.open()
    for method in (
        Queue.Declare(queue=queue, passive=True),
        Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k"),
        Queue.Purge(queue=queue),
        Basic.Consume(queue=queue),
        Basic.Get(queue=queue),
    ):
        expect_refused(connection.channel(), method, 404, text)


def test_deleting_a_missing_queue_is_no_error(channel: AmqpChannel) -> None:
    assert channel.delete(unique("missing")) == 0


def test_an_empty_name_before_any_declare_is_not_found(channel: AmqpChannel) -> None:
    expect_refused(channel, Basic.Get(queue=""), 404)


def test_names_of_the_broker_cannot_be_declared(clients: AmqpClients) -> None:
    connection = clients.open()
    expect_refused(connection.channel(), Queue.Declare(queue="amq.mine"), 403, "amq.")
    expect_refused(connection.channel(), Exchange.Declare(exchange="amq.mine", type="direct"), 403, "amq.")


def test_an_exclusive_queue_is_locked_for_other_connections(clients: AmqpClients) -> None:
    owner = clients.channel()
    queue = owner.declare(unique(), exclusive=True).queue
    other = clients.open()
    for method in (
        Queue.Declare(queue=queue, exclusive=True),
        Queue.Declare(queue=queue, passive=True),
        Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k"),
        Queue.Purge(queue=queue),
        Queue.Delete(queue=queue),
        Basic.Consume(queue=queue),
        Basic.Get(queue=queue),
    ):
        expect_refused(other.channel(), method, 405, "cannot obtain exclusive access to locked queue")
    second_of_owner = owner.client.channel()
    second_of_owner.publish("", queue, b"x")
    assert second_of_owner.get_one(queue).body == b"x"


def test_anyone_may_publish_to_an_exclusive_queue(clients: AmqpClients) -> None:
    owner, other = clients.channel(), clients.channel()
    queue = owner.temporary()
    owner.consume(queue, no_ack=True)
    other.publish("", queue, b"hello")
    assert owner.delivery().body == b"hello"


@pytest.mark.parametrize("is_cut", [False, True], ids=["closed", "cut"])
def test_an_exclusive_queue_goes_with_its_connection(clients: AmqpClients, is_cut: bool) -> None:
    owner, other = clients.channel(), clients.channel()
    queue = owner.declare(unique(), exclusive=True, durable=True).queue
    if is_cut:
        owner.client.cut()
    else:
        owner.client.close()
    wait_until(lambda: not exists(other.client.channel(), queue), f"{queue} stays")


def exists(channel: AmqpChannel, queue: str) -> bool:
    try:
        channel.declare(queue, passive=True)
    except ChannelClosed as closed:
        if closed.code == 405:  # locked: its owner is just leaving
            return True
        assert closed.code == 404
        return False
    channel.close()
    return True


def test_an_exclusive_queue_outlives_the_channel_that_declared_it(clients: AmqpClients) -> None:
    connection = clients.open()
    channel = connection.channel()
    queue = channel.temporary()
    channel.close()
    assert connection.channel().counts(queue) == (0, 0)


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), auto_delete=True).queue
    assert channel.counts(queue) == (0, 0), "without a first consumer it stays"
    one, two = channel.consume(queue), channel.consume(queue)
    channel.cancel(one)
    assert channel.counts(queue) == (0, 1)
    channel.cancel(two)
    wait_until(lambda: not exists(channel.client.channel(), queue), f"{queue} stays")


def test_a_durable_queue_outlives_its_connection(clients: AmqpClients) -> None:
    first = clients.channel()
    queue = first.declare(unique(), durable=True).queue
    first.confirm_select()
    first.publish_confirmed("", queue, b"kept", delivery_mode=2)
    first.client.close()
    assert clients.channel().get_one(queue, no_ack=True).body == b"kept"


def test_a_purge_takes_the_ready_messages_only(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.confirm_select()
    for number in range(5):
        channel.publish_confirmed("", queue, b"%d" % number)
    held = channel.get_one(queue)
    assert channel.purge(queue) == 4
    assert channel.counts(queue) == (0, 0)
    channel.nack(held.tag)
    assert channel.get_one(queue).body == b"0"


def test_delete_tells_how_many_messages_went(channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    channel.confirm_select()
    for _ in range(3):
        channel.publish_confirmed("", queue, b"x")
    assert channel.delete(queue) == 3
    expect_refused(channel, Queue.Declare(queue=queue, passive=True), 404)


def test_delete_spares_a_queue_in_use_when_asked(clients: AmqpClients) -> None:
    channel = clients.channel()
    queue = channel.declare(unique()).queue
    channel.consume(queue)
    expect_refused(channel.client.channel(), Queue.Delete(queue=queue, if_unused=True), 406, "in use")
    assert channel.counts(queue) == (0, 1)


def test_delete_spares_a_queue_with_messages_when_asked(clients: AmqpClients) -> None:
    channel = clients.channel()
    queue = channel.declare(unique()).queue
    channel.confirm_select()
    channel.publish_confirmed("", queue, b"x")
    expect_refused(channel.client.channel(), Queue.Delete(queue=queue, if_empty=True), 406, "not empty")
    assert channel.purge(queue) == 1
    assert channel.delete(queue, if_empty=True, if_unused=True) == 0


def test_no_wait_methods_are_done_and_not_answered(channel: AmqpChannel) -> None:
    queue, exchange = unique(), unique("x")
    channel.client.queues.append(queue)
    channel.client.exchanges.append(exchange)
    channel.send(Queue.Declare(queue=queue, nowait=True))
    channel.send(Exchange.Declare(exchange=exchange, type="fanout", nowait=True))
    channel.send(Queue.Bind(queue=queue, exchange=exchange, nowait=True))
    channel.send(Basic.Consume(queue=queue, consumer_tag="t", no_ack=True, nowait=True))
    channel.publish(exchange, "", b"x")
    assert channel.delivery().body == b"x"
    channel.send(Basic.Cancel(consumer_tag="t", nowait=True))
    channel.send(Queue.Purge(queue=queue, nowait=True))
    channel.send(Queue.Delete(queue=queue, nowait=True))
    channel.expect_nothing()
    expect_refused(channel, Queue.Declare(queue=queue, passive=True), 404)


@pytest.mark.parametrize(
    "name", ["with space", "with/slash", "plus+hash#", "ümlaut", "a" * 255, "100%", "a.b.c"]
)
def test_a_queue_may_have_any_name(channel: AmqpChannel, name: str) -> None:
    assert channel.declare(name).queue == name
    channel.consume(name, no_ack=True)
    channel.publish("", name, b"found")
    delivery = channel.delivery()
    assert (delivery.body, delivery.method.routing_key, delivery.method.exchange) == (b"found", name, "")
    channel.delete(name)


# ---- exchanges


def test_the_exchanges_of_the_standard_are_there(channel: AmqpChannel) -> None:
    for name in ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"):
        if name:
            channel.exchange(name, passive=True)
    for name, kind in (("amq.direct", "direct"), ("amq.topic", "topic"), ("amq.headers", "headers")):
        channel.call(Exchange.Declare(exchange=name, type=kind, durable=True), Exchange.DeclareOk)


def test_declaring_an_exchange_again_with_other_arguments_is_a_conflict(clients: AmqpClients) -> None:
    channel = clients.channel()
    name = channel.exchange(unique("x"), "direct", durable=True)
    channel.exchange(name, "direct", durable=True)
    for second, part in (
        ({"type": "fanout", "durable": True}, "inequivalent arg 'type'"),
        ({"type": "direct", "durable": False}, "inequivalent arg 'durable'"),
        ({"type": "direct", "durable": True, "auto_delete": True}, "inequivalent arg 'auto_delete'"),
        ({"type": "direct", "durable": True, "internal": True}, "inequivalent arg 'internal'"),
        (
            {"type": "direct", "durable": True, "arguments": {"alternate-exchange": "other"}},
            "inequivalent arg 'alternate-exchange'",
        ),
    ):
        method = Exchange.Declare(exchange=name, **second)  # type: ignore[arg-type]
        expect_refused(channel.client.channel(), method, 406, part)


def test_an_exchange_of_an_unknown_kind_ends_the_connection(clients: AmqpClients) -> None:
    channel = clients.channel()
    channel.send(Exchange.Declare(exchange=unique("x"), type="telepathic"))
    channel.client.expect_closed(503, "unknown exchange type")


def test_a_missing_exchange_is_not_found(clients: AmqpClients) -> None:
    connection = clients.open()
    queue = connection.channel().temporary()
    name = unique("missing")
    text = f"no exchange '{name}' in vhost '/'"
    for method in (
        Exchange.Declare(exchange=name, passive=True),
        Queue.Bind(queue=queue, exchange=name),
        Exchange.Bind(destination="amq.direct", source=name),
        Exchange.Bind(destination=name, source="amq.direct"),
    ):
        expect_refused(connection.channel(), method, 404, text)


def test_publishing_to_a_missing_exchange_closes_the_channel(clients: AmqpClients) -> None:
    channel = clients.channel()
    name = unique("missing")
    channel.publish(name, "k", b"x")
    closed = channel.expect_closed(404, f"no exchange '{name}' in vhost '/'")
    assert closed.method == (60, 40)
    channel.client.channel().sync()


def test_deleting_a_missing_exchange_and_unbinding_what_is_not_bound_are_no_errors(
    channel: AmqpChannel,
) -> None:
    channel.call(Exchange.Delete(exchange=unique("missing")), Exchange.DeleteOk)
    queue = channel.temporary()
    channel.unbind(queue, "amq.direct", "never-bound")


def test_predeclared_exchanges_cannot_be_deleted(clients: AmqpClients) -> None:
    connection = clients.open()
    expect_refused(connection.channel(), Exchange.Delete(exchange="amq.topic"), 403)
    expect_refused(connection.channel(), Exchange.Delete(exchange=""), 403)


def test_the_default_exchange_takes_no_bindings(clients: AmqpClients) -> None:
    connection = clients.open()
    queue = connection.channel().temporary()
    for method in (
        Queue.Bind(queue=queue, exchange="", routing_key="k"),
        Queue.Unbind(queue=queue, exchange="", routing_key="k"),
        Exchange.Bind(destination="amq.direct", source=""),
        Exchange.Declare(exchange="", type="direct", durable=True),
    ):
        expect_refused(connection.channel(), method, 403)


def test_delete_spares_an_exchange_in_use_when_asked(clients: AmqpClients) -> None:
    channel = clients.channel()
    name = channel.exchange(unique("x"), "fanout")
    queue = channel.temporary()
    channel.bind(queue, name)
    expect_refused(channel.client.channel(), Exchange.Delete(exchange=name, if_unused=True), 406, "in use")
    channel.unbind(queue, name)
    channel.call(Exchange.Delete(exchange=name, if_unused=True), Exchange.DeleteOk)
    expect_refused(channel, Exchange.Declare(exchange=name, passive=True), 404)


def test_an_auto_delete_exchange_goes_with_its_last_binding(clients: AmqpClients) -> None:
    channel = clients.channel()
    name = channel.exchange(unique("x"), "fanout", auto_delete=True)
    one, two = channel.temporary(), channel.temporary()
    channel.bind(one, name)
    channel.bind(two, name)
    channel.unbind(one, name)
    channel.exchange(name, passive=True)
    channel.delete(two)
    expect_refused(channel, Exchange.Declare(exchange=name, passive=True), 404)


def test_an_internal_exchange_takes_no_publishes(clients: AmqpClients) -> None:
    channel = clients.channel()
    name = channel.exchange(unique("x"), "fanout", internal=True)
    channel.publish(name, "", b"x")
    channel.expect_closed(403, "internal exchange")
