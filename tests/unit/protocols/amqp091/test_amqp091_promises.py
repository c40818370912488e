"""What an answer promises: nothing is lost, nothing is said before it is safe, a transaction is whole or not at all."""

from __future__ import annotations

import pytest
from amqp091_traffic import FullableStore, client_with, consume, frames_of, publish, queue, ready
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import HeldStore

from millstream.model.errors import Reason
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicGet,
    BasicGetOk,
    BasicNack,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclareOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties

EXCHANGE = ExchangeDeclare(b"x", b"fanout", False, True, False, False, False, {})
BINDING = QueueBind(b"q", b"x", b"", False, {})


def make_safe(world: AmqpWorld, store: HeldStore) -> None:
    store.release()
    world.broker.on_durable()
    world.settle_down()


# ------------------------------------------------------------------- basic.get


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_message_that_was_asked_for_stays_when_who_asked_is_gone_before_it_is_safe(no_ack: bool) -> None:
    store = HeldStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue())
    store.hold()
    peer.receive(publish(b"q"))
    assert peer.say(BasicGet(b"q", no_ack), 1) == []
    peer.endpoint.on_lost(world.now_ns)
    make_safe(world, store)
    assert isinstance(client_with(world).say(BasicGet(b"q", True), 1)[0], BasicGetOk)


def test_a_connection_that_is_being_closed_gets_nothing_that_it_would_not_see() -> None:
    """What it did wrong stands behind a publish that waits for the disk: its consumers are not gone yet."""
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(), queue(b"memory", durable=False))
    peer.say(consume(b"memory", no_ack=True), 1)
    store.is_full = True
    peer.receive(publish(b"q") + frames_of(QueueDeclareOk(b"q", 0, 0)))
    assert isinstance(peer.take()[0], ConnectionClose)
    store.is_full = False
    world.publish(b"$queue/memory", b"x", guarantee=0)
    world.settle_down()
    assert ready(world, "memory") == 1


# --------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("asked", "promised"),
    [(queue(), QueueDeclareOk), (EXCHANGE, ExchangeDeclareOk), (BINDING, QueueBindOk)],
)
def test_what_another_connection_made_is_not_promised_before_it_is_safe(
    asked: Method, promised: type[Method]
) -> None:
    store = HeldStore()
    world = AmqpWorld(store=store)
    first, second = client_with(world), client_with(world)
    store.hold()
    first.receive(frames_of(queue(), EXCHANGE, BINDING))
    assert second.say(asked, 1) == []
    make_safe(world, store)
    assert isinstance(second.take()[0], promised)


def test_answers_on_a_channel_come_in_the_order_of_the_questions() -> None:
    store = HeldStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(b"memory", durable=False))
    store.hold()
    assert peer.say(queue(b"disk"), 1) == []
    assert peer.say(queue(b"memory", durable=False), 1) == []
    make_safe(world, store)
    assert peer.take() == [QueueDeclareOk(b"disk", 0, 0), QueueDeclareOk(b"memory", 0, 0)]


# -------------------------------------------------------------------- confirms


def test_a_publisher_with_confirms_waits_for_a_disk_that_is_behind_and_is_not_refused() -> None:
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(), ConfirmSelect(False))
    store.is_behind = True
    peer.receive(publish(b"q") + publish(b"q"))
    assert peer.take() == []
    assert peer.link.waits_for_store
    store.is_behind = False
    make_safe(world, store)
    assert peer.take() == [BasicAck(2, True)]
    assert ready(world) == 2
    assert not peer.link.waits_for_store


def test_a_publisher_with_confirms_is_refused_by_a_full_disk() -> None:
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue())
    assert peer.say(ConfirmSelect(False), 1) == [ConfirmSelectOk()]
    store.is_full = True
    peer.receive(publish(b"q"))
    assert peer.take() == [BasicNack(1, False, False)]


# ---------------------------------------------------------------- transactions


def test_a_commit_whose_exchange_is_gone_publishes_nothing_of_it() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(), EXCHANGE, BINDING, TxSelect())
    peer.receive(publish(b"q") + publish(b"", exchange=b"x"))
    client_with(world, ExchangeDelete(b"x", False, False))
    answers = peer.say(TxCommit(), 1)
    assert isinstance(answers[0], ChannelClose)
    assert answers[0].reply_code == 404
    assert ready(world) == 0


def test_a_commit_with_a_copy_for_nobody_publishes_nothing_of_it() -> None:
    """Direct reply-to needs a consumer for the answers: without one the publish is refused, at once."""
    world = AmqpWorld()
    peer = client_with(world, queue(), TxSelect())
    asking = BasicProperties()
    asking.reply_to = b"amq.rabbitmq.reply-to"
    peer.receive(publish(b"q"))
    peer.receive(publish(b"q", properties=asking))
    answers = peer.take()
    assert isinstance(answers[0], ChannelClose)
    assert answers[0].reply_code == 406
    assert ready(world) == 0


def commit_behind_disk() -> tuple[FullableStore, AmqpWorld, AmqpPeer]:
    """A commit of one publish, which waits because the disk is behind."""
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(), TxSelect())
    peer.receive(publish(b"q"))
    store.is_behind = True
    assert peer.say(TxCommit(), 1) == []
    return store, world, peer


def test_a_commit_waits_for_a_disk_that_is_behind() -> None:
    store, world, peer = commit_behind_disk()
    assert ready(world) == 0
    store.is_behind = False
    make_safe(world, store)
    assert peer.take() == [TxCommitOk()]
    assert ready(world) == 1


def test_a_commit_that_waits_for_a_disk_is_refused_when_the_disk_is_full() -> None:
    store, world, peer = commit_behind_disk()
    store.is_full = True
    world.context.on_tick(world.now_ns)
    world.settle_down()
    [answer] = [each for each in peer.take() if isinstance(each, ChannelClose)]
    assert b"cannot be made durable now" in answer.reply_text
    assert ready(world) == 0


def test_a_publish_with_confirms_that_waits_for_a_disk_is_refused_when_the_disk_is_full() -> None:
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(), ConfirmSelect(False))
    store.is_behind = True
    peer.receive(publish(b"q"))
    assert peer.take() == []
    store.is_full = True
    world.context.on_tick(world.now_ns)
    world.settle_down()
    assert [each for each in peer.take() if isinstance(each, BasicNack)] == [BasicNack(1, False, False)]


def test_a_publish_without_confirms_waits_until_the_disk_has_room() -> None:
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue())
    store.is_full = True
    peer.receive(publish(b"q"))
    world.context.on_tick(world.now_ns)
    world.settle_down()
    assert ready(world) == 0
    store.is_full = False
    make_safe(world, store)
    assert ready(world) == 1


def test_a_commit_that_began_is_finished_however_far_the_disk_is_behind() -> None:
    class SlowStore(FullableStore):
        """Behind as soon as two facts wait for it."""

        def refusal(self) -> Reason:
            return Reason.UNAVAILABLE if self.position() >= self.durable() + 2 else Reason.SUCCESS

    store = SlowStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(), TxSelect())
    store.hold()
    peer.receive(publish(b"q") * 5)
    assert peer.say(TxCommit(), 1) == []
    make_safe(world, store)
    assert peer.take() == [TxCommitOk()]
    assert ready(world) == 5
