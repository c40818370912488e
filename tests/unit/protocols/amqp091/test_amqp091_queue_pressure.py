"""A queue that grows although it is served slows who publishes into it, with confirms and without, in a transaction too."""

from __future__ import annotations

import pytest
from amqp091_traffic import client_with, consume, frames_of, publish, queue
from amqp091_world import AmqpPeer, AmqpWorld
from queue_world import AutoConsumer

from millstream.model.limits import Limits
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicQos,
    ConfirmSelect,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionUnblocked,
    TxCommit,
    TxSelect,
)
from millstream.queues.consumers import AMQP_GROUP

MOST = 100


def make_world() -> tuple[AmqpWorld, AmqpPeer, AutoConsumer]:
    """A publisher, and a queue with a consumer that takes nothing until it is told."""
    world = AmqpWorld(Limits(queue_backlog_max=MOST))
    peer = client_with(world, queue())
    consumer = AutoConsumer()
    world.account.queues.catalog.get("q").get_group(AMQP_GROUP, b"").join(consumer)
    world.settle_down()
    return world, peer, consumer


def drain(world: AmqpWorld, consumer: AutoConsumer, count: int) -> None:
    consumer.room += count
    world.account.queues.catalog.get("q").reschedule()
    world.settle_down()


@pytest.mark.parametrize("mode", ["plain", "confirms", "transaction"])
def test_a_publisher_is_not_read_until_the_queue_has_shrunk(mode: str) -> None:
    world, peer, consumer = make_world()
    if mode == "confirms":
        peer.say(ConfirmSelect(False), 1)
    if mode == "transaction":
        peer.say(TxSelect(), 1)
    peer.receive(publish(b"q") * (2 * MOST))
    if mode == "transaction":
        assert not peer.link.is_paused
        peer.say(TxCommit(), 1)
    assert peer.link.is_paused
    drain(world, consumer, 2 * MOST)
    assert not peer.link.is_paused
    told = [method for method in peer.take() if isinstance(method, (ConnectionBlocked, ConnectionUnblocked))]
    assert told == [], "as with RabbitMQ, a client is not told of this"


def test_who_publishes_elsewhere_is_read() -> None:
    world, peer, _ = make_world()
    other = client_with(world, queue(b"other"))
    peer.receive(publish(b"q") * (2 * MOST))
    other.receive(publish(b"other") * (2 * MOST))
    assert peer.link.is_paused
    assert not other.link.is_paused


def test_a_client_that_publishes_to_itself_and_has_not_answered_is_read() -> None:
    world = AmqpWorld(Limits(queue_backlog_max=MOST))
    peer = client_with(world, queue())
    peer.say(BasicQos(0, 10, False), 1)
    peer.say(consume(), 1)
    for _ in range(10):
        peer.receive(publish(b"q") * MOST)
        assert not peer.link.is_paused
    peer.say(BasicAck(10, True), 1)
    peer.receive(publish(b"q") * (2 * MOST))
    assert not peer.link.is_paused


def test_a_store_without_a_consumer_takes_all() -> None:
    world = AmqpWorld(Limits(queue_backlog_max=MOST))
    peer = client_with(world, queue())
    for _ in range(10):
        peer.receive(publish(b"q") * MOST)
        assert not peer.link.is_paused


def test_a_client_that_is_held_does_not_miss_its_heartbeat() -> None:
    world, peer, _ = make_world()
    peer.endpoint.machine.heartbeat_s = 1
    peer.receive(publish(b"q") * (2 * MOST))
    world.now_ns += 10**10
    peer.endpoint.on_deadline(world.now_ns)
    assert not peer.endpoint.machine.is_closed()


def test_a_client_that_leaves_while_it_is_held_is_forgotten() -> None:
    world, peer, consumer = make_world()
    peer.receive(publish(b"q") * (2 * MOST))
    peer.endpoint.on_lost(world.now_ns)
    assert not world.broker.pressure.is_waiting(peer.endpoint)
    drain(world, consumer, 2 * MOST)


def test_a_publisher_that_leaves_in_the_read_that_filled_the_queue_is_not_kept() -> None:
    world, peer, _ = make_world()
    leave = frames_of(ConnectionClose(200, b"bye", 0, 0), channel=0)
    peer.receive(publish(b"q") * (2 * MOST) + leave)
    assert peer.endpoint.machine.is_closed()
    assert not world.broker.pressure.is_waiting(peer.endpoint)
