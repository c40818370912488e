"""Queues, exchanges and bindings: made, looked up, locked, bound and removed, with RabbitMQ's answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from amqp091_declarations import bind, declare, declare_exchange, find, refusal
from amqp091_world import AmqpWorld

from millstream.model.errors import Reason
from millstream.protocols.amqp091 import declaring
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import (
    BasicCancel,
    BasicConsume,
    ChannelClose,
    ConnectionClose,
    ExchangeBind,
    ExchangeDelete,
    ExchangeUnbind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from millstream.protocols.amqp091.wire.violation import Violation
from millstream.queues.definition import EPHEMERAL, STREAM, WORK, Definition

LOCKED = (
    "cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be originally declared on another "
    "connection or the exclusive property value does not match that of the original declaration."
)


# --------------------------------------------------------------------- declare


def test_a_queue_is_made_once_and_then_found() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    assert declare(endpoint) == (b"q", 0, 0)
    assert find(world).definition.kind == WORK
    assert declare(endpoint) == (b"q", 0, 0)
    world.publish(b"$queue/q")
    world.settle_down()
    assert declare(endpoint, passive=True) == (b"q", 1, 0)
    assert declare(world.client().endpoint, b"$queue/q") == (b"q", 1, 0)


def test_asking_for_a_queue_keeps_it() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    declare(endpoint, arguments={b"x-expires": 1000})
    queue = find(world)
    for _ in range(3):
        world.move(0.9)
        declare(endpoint, passive=True)
    assert not queue.is_removed
    world.move(1)
    assert queue.is_removed


def test_the_broker_finds_a_name_nobody_can_guess() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    names = [declare(endpoint, b"", exclusive=True)[0] for _ in range(2)]
    assert names[0] != names[1]
    assert all(name.startswith(b"amq.gen-") and len(name) == 30 for name in names)


def test_what_does_not_last_is_in_memory() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    for name, durable, exclusive in ((b"a", False, False), (b"b", True, True), (b"c", False, True)):
        declare(endpoint, name, durable=durable, exclusive=exclusive)
        assert find(world, name.decode()).definition.kind == EPHEMERAL
    declare(endpoint, b"s", arguments={b"x-queue-type": b"stream"})
    assert find(world, "s").definition.kind == STREAM


def test_a_queue_that_is_not_there_is_not_found() -> None:
    endpoint = AmqpWorld().client().endpoint
    missing = (Reason.NOT_FOUND, "no queue 'q' in vhost '/'")
    assert refusal(declare, endpoint, passive=True) == missing
    assert refusal(declaring.find_queue, endpoint, b"q") == missing
    assert refusal(declaring.begin_purge, endpoint, QueuePurge(b"q", False)) == missing
    assert refusal(bind, endpoint, b"q", b"amq.direct") == missing
    nothing = (Reason.NOT_FOUND, "no previously declared queue")
    assert refusal(declaring.find_queue, endpoint, b"") == nothing
    assert refusal(bind, endpoint, b"", b"amq.direct") == nothing
    assert declaring.delete_queue(endpoint, QueueDelete(b"q", False, False, False)) == 0
    declaring.unbind_queue(endpoint, QueueUnbind(b"q", b"amq.direct", b"k", {}))


def test_names_of_the_broker_cannot_be_taken() -> None:
    endpoint = AmqpWorld().client().endpoint
    text = "queue name 'amq.mine' contains reserved prefix 'amq.*'"
    assert refusal(declare, endpoint, b"amq.mine") == (Reason.NOT_AUTHORIZED, text)
    assert refusal(declare, endpoint, b"amq.mine", passive=True)[0] is Reason.NOT_FOUND
    assert refusal(declare, endpoint, b"$SYS")[0] is Reason.TOPIC_INVALID
    text = "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    assert refusal(declare_exchange, endpoint, b"amq.mine") == (Reason.NOT_AUTHORIZED, text)


def test_a_refused_declaration_makes_nothing() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    for arguments in ({b"x-message-ttl": -1}, {b"x-queue-type": b"abc"}, {b"x-dead-letter-exchange": 1}):
        assert refusal(declare, endpoint, arguments=arguments)[0] is Reason.PRECONDITION_FAILED
    quorum: FieldTable = {b"x-queue-type": b"quorum"}
    text = "Cannot declare a server-named queue for type rabbit_quorum_queue"
    assert refusal(declare, endpoint, b"", arguments=quorum) == (Reason.PRECONDITION_FAILED, text)
    assert refusal(declare, endpoint, durable=False, arguments=quorum)[1] == (
        "invalid property 'non-durable' for queue 'q' in vhost '/'"
    )
    assert world.account.queues.catalog.queues == {}


def test_a_queue_that_is_there_must_be_what_is_declared() -> None:
    endpoint = AmqpWorld().client().endpoint
    declare(endpoint, arguments={b"x-message-ttl": 100})
    start = "inequivalent arg '{}' for queue 'q' in vhost '/': received "
    assert refusal(declare, endpoint, durable=False, arguments={b"x-message-ttl": 100}) == (
        Reason.PRECONDITION_FAILED,
        start.format("durable") + "'false' but current is 'true'",
    )
    assert refusal(declare, endpoint, auto_delete=True)[1] == (
        start.format("auto_delete") + "'true' but current is 'false'"
    )
    assert refusal(declare, endpoint)[1] == (
        start.format("x-message-ttl") + "none but current is the value '100' of type 'signedint'"
    )


def test_a_queue_of_mqtt_is_the_same_queue() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    world.account.queues.catalog.declare("jobs", Definition(WORK))
    assert declare(endpoint, b"jobs") == (b"jobs", 0, 0)
    assert find(world, "jobs").definition.dead_letter == ""


# ------------------------------------------------------------------- exclusive


def test_an_exclusive_queue_is_for_its_connection_alone() -> None:
    world = AmqpWorld()
    owner, other = world.client().endpoint, world.client().endpoint
    declare(owner, exclusive=True)
    bind(owner, b"q", b"amq.direct")
    assert declare(owner, exclusive=True, durable=False) == (b"q", 0, 0)
    actions: list[Callable[[], object]] = [
        partial(declare, owner, exclusive=False),
        partial(declare, other),
        partial(declare, other, exclusive=True),
        partial(declare, other, passive=True),
        partial(declaring.find_queue, other, b"q"),
        partial(declaring.begin_purge, other, QueuePurge(b"q", False)),
        partial(declaring.delete_queue, other, QueueDelete(b"q", False, False, False)),
        partial(bind, other, b"q", b"amq.direct"),
        partial(declaring.unbind_queue, other, QueueUnbind(b"q", b"amq.direct", b"k", {})),
    ]
    for action in actions:
        assert refusal(action) == (Reason.LOCKED, LOCKED)


def test_an_ordinary_queue_cannot_be_made_exclusive_later() -> None:
    endpoint = AmqpWorld().client().endpoint
    declare(endpoint)
    assert refusal(declare, endpoint, exclusive=True) == (Reason.LOCKED, LOCKED)


def test_an_exclusive_queue_goes_with_its_connection() -> None:
    world = AmqpWorld()
    peer = world.client()
    declare(peer.endpoint, exclusive=True)
    declare(peer.endpoint, b"gone", exclusive=True)
    declaring.delete_queue(peer.endpoint, QueueDelete(b"gone", False, False, False))
    declare(world.client().endpoint, b"gone")
    peer.say(ConnectionClose(200, b"", 0, 0))
    assert sorted(world.account.queues.catalog.queues) == ["gone"]


# -------------------------------------------------------------- purge and delete


def test_purge_and_delete_tell_how_many_went() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    declare(endpoint)
    for _ in range(3):
        world.publish(b"$queue/q")
    purge = declaring.begin_purge(endpoint, QueuePurge(b"q", False))
    assert (purge.run(1000) > 0, purge.count) == (True, 3)
    for _ in range(2):
        world.publish(b"$queue/q")
    assert refusal(declaring.delete_queue, endpoint, QueueDelete(b"q", False, True, False)) == (
        Reason.PRECONDITION_FAILED,
        "queue 'q' in vhost '/' not empty",
    )
    assert declaring.delete_queue(endpoint, QueueDelete(b"q", True, False, False)) == 2
    assert world.account.queues.catalog.find("q") is None


def test_a_queue_in_use_is_kept_for_who_asks_so() -> None:
    world = AmqpWorld()
    peer = world.client()
    peer.open_channel()
    declare(peer.endpoint)
    peer.say(BasicConsume(b"q", b"tag", False, False, False, False, {}), 1)
    assert declare(peer.endpoint) == (b"q", 0, 1)
    assert refusal(declaring.delete_queue, peer.endpoint, QueueDelete(b"q", True, False, False)) == (
        Reason.PRECONDITION_FAILED,
        "queue 'q' in vhost '/' in use",
    )
    declaring.delete_queue(peer.endpoint, QueueDelete(b"q", False, False, False))
    world.settle_down()
    assert peer.take() == [BasicCancel(b"tag", True)]


# ------------------------------------------------------------------- exchanges


def test_an_exchange_is_made_found_and_must_stay_what_it_is() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    declare_exchange(endpoint)
    declare_exchange(endpoint)
    declare_exchange(endpoint, kind=b"", passive=True)
    declare_exchange(endpoint, b"amq.topic", b"topic")
    assert refusal(declare_exchange, endpoint, kind=b"fanout") == (
        Reason.PRECONDITION_FAILED,
        "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'",
    )
    assert refusal(declare_exchange, endpoint, b"y", passive=True) == (
        Reason.NOT_FOUND,
        "no exchange 'y' in vhost '/'",
    )
    with pytest.raises(Violation, match="unknown exchange type 'x-delayed-message'") as caught:
        declare_exchange(endpoint, b"y", b"x-delayed-message")
    assert (caught.value.code, caught.value.is_hard) == (503, True)


def test_the_default_exchange_is_left_alone() -> None:
    endpoint = AmqpWorld().client().endpoint
    declare(endpoint)
    forbidden = (Reason.NOT_AUTHORIZED, "operation not permitted on the default exchange")
    for action in (
        partial(declare_exchange, endpoint, b""),
        partial(declare_exchange, endpoint, b"", passive=True),
        partial(declaring.delete_exchange, endpoint, ExchangeDelete(b"", False, False)),
        partial(bind, endpoint, b"q", b""),
        partial(declaring.unbind_queue, endpoint, QueueUnbind(b"q", b"", b"k", {})),
        partial(declaring.bind_exchange, endpoint, ExchangeBind(b"", b"amq.direct", b"k", False, {})),
        partial(declaring.bind_exchange, endpoint, ExchangeBind(b"amq.direct", b"", b"k", False, {})),
        partial(declaring.unbind_exchange, endpoint, ExchangeUnbind(b"", b"amq.direct", b"k", False, {})),
    ):
        assert refusal(action) == forbidden


def test_an_exchange_is_deleted_unless_it_is_in_use_or_the_brokers() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    declaring.delete_exchange(endpoint, ExchangeDelete(b"nothing", False, False))
    declare(endpoint)
    declare_exchange(endpoint)
    bind(endpoint, b"q", b"x")
    assert refusal(declaring.delete_exchange, endpoint, ExchangeDelete(b"x", True, False)) == (
        Reason.PRECONDITION_FAILED,
        "exchange 'x' in vhost '/' in use",
    )
    declaring.delete_exchange(endpoint, ExchangeDelete(b"x", False, False))
    assert world.account.exchanges.find("x") is None
    text = "deletion of system exchange 'amq.topic' in vhost '/' not allowed"
    assert refusal(declaring.delete_exchange, endpoint, ExchangeDelete(b"amq.topic", False, False)) == (
        Reason.NOT_AUTHORIZED,
        text,
    )


def test_bindings_come_and_go() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    exchanges = world.account.exchanges
    declare(endpoint)
    bind(endpoint, b"q", b"amq.direct")
    bind(endpoint, b"q", b"amq.direct")
    assert len(exchanges.bindings_of_queue(find(world))) == 1
    declaring.unbind_queue(endpoint, QueueUnbind(b"q", b"amq.direct", b"other", {}))
    assert len(exchanges.bindings_of_queue(find(world))) == 1
    declaring.unbind_queue(endpoint, QueueUnbind(b"q", b"amq.direct", b"k", {}))
    assert exchanges.bindings_of_queue(find(world)) == []
    assert refusal(bind, endpoint, b"none", b"nothing")[1] == "no exchange 'nothing' in vhost '/'"
    declaring.bind_exchange(endpoint, ExchangeBind(b"amq.fanout", b"amq.direct", b"k", False, {}))
    direct = exchanges.find("amq.direct")
    assert direct is not None
    assert len(direct.bindings) == 1
    declaring.unbind_exchange(endpoint, ExchangeUnbind(b"amq.fanout", b"amq.direct", b"k", False, {}))
    declaring.unbind_exchange(endpoint, ExchangeUnbind(b"none", b"amq.direct", b"k", False, {}))
    assert direct.bindings == {}
    for target, source in ((b"none", b"amq.direct"), (b"amq.direct", b"none")):
        bound = ExchangeBind(target, source, b"k", False, {})
        assert refusal(declaring.bind_exchange, endpoint, bound) == (
            Reason.NOT_FOUND,
            "no exchange 'none' in vhost '/'",
        )


@pytest.mark.parametrize("name", [b"plant.*.temperature", b"plant/+/temperature", b"plant/#", b"plant.#"])
def test_a_name_with_wildcards_is_a_subscription_to_topics(name: bytes) -> None:
    world = AmqpWorld()
    peer = world.client()
    queue = declaring.make_topic_queue(peer.endpoint, name)
    world.publish(b"plant/hall1/temperature")
    world.publish(b"office/hall1/temperature")
    world.settle_down()
    assert queue.ready() == 1
    peer.say(ConnectionClose(200, b"", 0, 0))
    assert queue.is_removed


def test_over_the_wire_a_refusal_closes_the_channel_with_the_code_of_rabbitmq() -> None:
    world = AmqpWorld()
    peer = world.client()
    for number, (method, code) in enumerate(
        [
            (QueueDeclare(b"none", True, False, False, False, False, {}), 404),
            (QueueDeclare(b"amq.x", False, False, False, False, False, {}), 403),
            (QueueDeclare(b"q", False, True, False, False, False, {b"x-expires": 0}), 406),
        ],
        1,
    ):
        peer.open_channel(number)
        answer = peer.say(method, number)[0]
        assert isinstance(answer, ChannelClose)
        assert (answer.reply_code, answer.failed_class_id, answer.failed_method_id) == (code, 50, 10)
    peer.open_channel(9)
    answers = peer.say(QueueDeclare(b"q", False, True, False, False, False, {}), 9)
    assert answers == [QueueDeclareOk(b"q", 0, 0)]
