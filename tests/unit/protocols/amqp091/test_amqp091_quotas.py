"""Quotas over AMQP: the channel is closed with 406 and the quota is named, as RabbitMQ does; the connection lives."""

from __future__ import annotations

import pytest
from amqp091_traffic import consume, publish, ready
from amqp091_traffic import queue as declare
from amqp091_world import AmqpPeer, AmqpWorld

from millstream.broker.account_options import AccountOptions
from millstream.broker.conditions import QUOTA_REACHED
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicNack,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConnectionClose,
    Method,
    QueueBind,
    QueueDelete,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.security.quota import CONNECTIONS, KINDS, QUEUES, SUBSCRIPTIONS, Bound, Quota
from millstream.security.quotas import QuotaTerms, make_quota
from millstream.security.users import User, UserTable, hash_password

HASH = hash_password("secret")
USERS = UserTable({name: User(name, HASH, "default", None) for name in ("ann", "ben")})


def world_of(kind: int, value: int) -> AmqpWorld:
    user = make_quota({kind: Bound(value, f"user_quotas.max_{KINDS[kind]}")})
    return AmqpWorld(users=USERS, accounts={"default": AccountOptions(0, QuotaTerms(None, user))})


def client(world: AmqpWorld, user: bytes) -> AmqpPeer:
    peer = world.client(user, b"secret")
    peer.open_channel(1)
    return peer


def refused(peer: AmqpPeer, method: Method) -> bytes:
    (closed,) = peer.say(method, 1)
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == codes.PRECONDITION_FAILED
    peer.say(ChannelCloseOk(), 1)
    peer.open_channel(1)
    return closed.reply_text


def test_a_user_declares_no_more_queues_than_its_quota() -> None:
    world = world_of(QUEUES, 2)
    ann, ben = client(world, b"ann"), client(world, b"ben")
    for name in (b"one", b"two"):
        ann.say(declare(name), 1)
    text = refused(ann, declare(b"three"))
    assert (
        text
        == b"PRECONDITION_FAILED - the user 'ann' has 2 queues, as many as user_quotas.max_queues = 2 allows"
    )
    assert refused(ann, declare(b"")) == text
    ben.say(declare(b"three"), 1)
    ann.say(declare(b"two"), 1)
    ann.say(QueueDelete(b"one", False, False, False), 1)
    ann.say(declare(b"four"), 1)
    assert sorted(world.account.queues.catalog.queues) == ["four", "three", "two"]


def test_what_was_refused_to_one_user_is_not_refused_to_others() -> None:
    """The route of a key is shared; the refusal to make its queue is not."""
    world = world_of(QUEUES, 1)
    ann, ben = client(world, b"ann"), client(world, b"ben")
    ann.say(declare(b"one"), 1)
    for peer in (ann, ben):
        peer.say(ConfirmSelect(False), 1)
    ann.receive(publish(b"$queue/new"))
    assert [type(answer) for answer in ann.take()] == [BasicNack]
    ben.receive(publish(b"$queue/new"))
    assert [type(answer) for answer in ben.take()] == [BasicAck]
    ann.receive(publish(b"$queue/new"))  # it is there now
    assert [type(answer) for answer in ann.take()] == [BasicAck]
    assert ready(world, "new") == 2


@pytest.mark.parametrize(("key", "copy"), [(b"$queue/two", b"one"), (b"one", b"$queue/two")])
def test_a_publish_with_a_key_of_a_queue_that_cannot_be_made_is_not_confirmed(
    key: bytes, copy: bytes
) -> None:
    """Who can take it has it, as where one of several queues is full."""
    world = world_of(QUEUES, 1)
    ann = client(world, b"ann")
    ann.say(declare(b"one"), 1)
    ann.say(ConfirmSelect(False), 1)
    ann.receive(publish(key, properties=BasicProperties(headers={b"CC": [copy]})))
    assert [type(answer) for answer in ann.take()] == [BasicNack]
    assert ready(world, "one") == 1
    ann.receive(publish(b"one", properties=BasicProperties(headers={b"CC": [b"nowhere"]})))
    assert [type(answer) for answer in ann.take()] == [BasicAck]


def test_a_publish_that_was_refused_for_want_of_memory_is_not_refused_when_there_is_some() -> None:
    """To a queue that it would make: nobody else makes it meanwhile."""
    world = AmqpWorld()
    peer = world.client()
    peer.open_channel(1)
    peer.say(ConfirmSelect(False), 1)
    used = world.account.quotas.whole.used
    used[QUEUES] += 100_000
    world.use_memory(101)
    peer.receive(publish(b"$queue/new"))
    assert [type(answer) for answer in peer.take()] == [BasicNack]
    used[QUEUES] -= 100_000
    world.use_memory(10)
    peer.receive(publish(b"$queue/new"))
    assert [type(answer) for answer in peer.take()] == [BasicAck]
    assert ready(world, "new") == 1


def test_bindings_and_consumers_count_as_subscriptions_and_go_with_their_connection() -> None:
    world = world_of(SUBSCRIPTIONS, 3)
    ann = client(world, b"ann")
    ann.say(declare(b"q"), 1)
    ann.say(QueueBind(b"q", b"amq.topic", b"a", False, {}), 1)
    ann.say(QueueBind(b"q", b"amq.topic", b"b", False, {}), 1)
    ann.say(consume(b"q", b"1"), 1)
    text = b"PRECONDITION_FAILED - the user 'ann' has 3 subscriptions, as many as user_quotas.max_subscriptions = 3 allows"
    assert refused(ann, consume(b"q", b"2")) == text  # which ends the consumer of that channel
    assert world.account.quotas.of("ann").used[SUBSCRIPTIONS] == 2
    ann.say(consume(b"q", b"1"), 1)
    ann.say(BasicCancel(b"1", False), 1)
    ann.say(consume(b"q", b"1"), 1)
    ann.say(QueueDelete(b"q", False, False, False), 1)
    assert world.account.quotas.of("ann").used[SUBSCRIPTIONS] == 0


def test_a_quota_that_is_reached_is_one_condition_and_not_a_limit_as_well() -> None:
    world = world_of(QUEUES, 1)
    ann = client(world, b"ann")
    ann.say(declare(b"one"), 1)
    refused(ann, declare(b"two"))
    assert [active.condition for active in world.broker.health.active()] == [QUOTA_REACHED]
    assert any(line[0] == "limited" for line in world.observer.lines)  # the log names the connection


def test_a_user_has_no_more_connections_than_its_quota() -> None:
    world = world_of(CONNECTIONS, 1)
    first = client(world, b"ann")
    second = world.stranger()
    second.log_in(b"PLAIN", b"\x00ann\x00secret")
    (closed,) = second.open()
    assert isinstance(closed, ConnectionClose)
    assert closed.reply_code == codes.NOT_ALLOWED
    assert b"connection limit is reached (the user 'ann' has 1 connections" in closed.reply_text
    client(world, b"ben")
    first.endpoint.on_lost(world.now_ns)
    client(world, b"ann")


def test_connections_of_a_user_share_the_rate_of_their_user() -> None:
    user = Quota(None, 10.0, 1)
    world = AmqpWorld(users=USERS, accounts={"default": AccountOptions(0, QuotaTerms(None, user))})
    first, second, other = client(world, b"ann"), client(world, b"ann"), client(world, b"ben")
    first.say(declare(b"q"), 1)
    first.receive(publish(b"q"))
    assert first.link.paused_ns == []
    second.receive(publish(b"q"))
    assert second.link.paused_ns == [100_000_000]
    other.receive(publish(b"q"))
    assert other.link.paused_ns == []


def test_connections_of_an_account_share_its_rate() -> None:
    world = AmqpWorld(users=USERS, accounts={"default": AccountOptions(0, QuotaTerms(Quota(None, 10.0, 1)))})
    first, second = client(world, b"ann"), client(world, b"ben")
    first.say(declare(b"q"), 1)
    first.receive(publish(b"q"))
    second.receive(publish(b"q") * 2)
    assert (first.link.paused_ns, second.link.paused_ns) == ([], [200_000_000])
