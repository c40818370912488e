"""However a connection, a channel or a consumer ends, nothing of it is left behind, and nobody else notices."""

from __future__ import annotations

import pytest
from amqp091_traffic import FullableStore, client_with, consume, frames_of, publish, queue, ready
from amqp091_world import AmqpWorld
from queue_world import FakeConsumer

from millstream.broker.line import Ending
from millstream.model.memory_budget import BINDING_OVERHEAD, QUEUE_OVERHEAD
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import (
    BasicCancel,
    BasicConsumeOk,
    BasicDeliver,
    BasicQos,
    BasicRecover,
    ChannelClose,
    ChannelCloseOk,
    ConnectionClose,
    QueueBind,
    QueueDeclareOk,
)

STREAM: FieldTable = {b"x-queue-type": b"stream"}
GOODBYE = ConnectionClose(200, b"", 0, 0)


@pytest.mark.parametrize("is_shutdown", [False, True])
def test_a_connection_that_said_goodbye_while_the_disk_was_full_ends_whole(is_shutdown: bool) -> None:
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(), queue(b"own", durable=False, exclusive=True))
    peer.receive(publish(b"q"))
    assert isinstance(peer.say(consume(), 1)[1], BasicDeliver)
    store.is_full = True
    peer.receive(publish(b"q") + frames_of(GOODBYE, channel=0))
    assert peer.take() == []
    if is_shutdown:
        peer.endpoint.end(Ending.SHUTTING_DOWN)
    else:
        peer.endpoint.on_lost(world.now_ns)
    world.settle_down()
    assert world.account.connected == 0
    assert world.context.endpoints() == []
    assert world.account.queues.catalog.find("own") is None
    assert ready(world) == 1


def test_a_client_without_heartbeats_has_its_time_to_answer_a_close_too() -> None:
    world = AmqpWorld()
    peer = client_with(world)
    assert peer.endpoint.next_deadline() == 0
    peer.link.is_authenticated = False
    assert isinstance(peer.say(BasicRecover(False), 1)[0], ConnectionClose)
    assert peer.link.is_authenticated, "the link is told that there is a deadline again"
    world.now_ns = int(peer.endpoint.next_deadline())
    peer.endpoint.on_deadline(world.now_ns)
    world.now_ns = int(peer.endpoint.next_deadline())
    peer.endpoint.on_deadline(world.now_ns)
    assert peer.link.is_closed


def test_a_client_that_breaks_frames_behind_our_close_is_let_go_sooner() -> None:
    world = AmqpWorld()
    peer = client_with(world)
    assert isinstance(peer.say(BasicRecover(False), 1)[0], ConnectionClose)
    peer.endpoint.on_deadline(world.now_ns)  # from now on the answer is awaited
    due_ns = peer.endpoint.next_deadline()
    peer.link.is_authenticated = False
    peer.receive(b"\x09" * 8)
    assert peer.link.is_authenticated, "the link is told that there is a nearer deadline"
    assert not peer.link.is_closed
    assert peer.endpoint.next_deadline() < due_ns
    world.now_ns = int(peer.endpoint.next_deadline())
    peer.endpoint.on_deadline(world.now_ns)
    assert peer.link.is_closed


def test_exclusive_queues_that_went_with_their_consumers_are_forgotten() -> None:
    world = AmqpWorld()
    peer = client_with(world)
    for _ in range(200):
        declared = peer.say(queue(b"", durable=False, exclusive=True, auto_delete=True), 1)[0]
        assert isinstance(declared, QueueDeclareOk)
        peer.say(consume(declared.queue), 1)
        peer.say(BasicCancel(b"t", False), 1)
    assert len(world.account.queues.catalog.queues) == 0
    assert len(peer.endpoint.exclusive_queues) < 50


def test_exclusive_queues_and_their_bindings_are_what_a_connection_owns() -> None:
    world = AmqpWorld()
    peer = client_with(world)
    other = client_with(world, queue(b"others", durable=False))
    assert int(peer.endpoint.owned_bytes()) == 0
    for number in range(3):
        peer.say(queue(b"own-%d" % number, durable=False, exclusive=True), 1)
    assert int(peer.endpoint.owned_bytes()) == 3 * QUEUE_OVERHEAD
    for number in range(8):
        peer.say(QueueBind(b"own-0", b"amq.topic", b"key.%d" % number, False, {}), 1)
    assert int(peer.endpoint.owned_bytes()) == 3 * (QUEUE_OVERHEAD + 2 * BINDING_OVERHEAD)
    assert int(other.endpoint.owned_bytes()) == 0


# --------------------------------------------------------------------- streams


def test_a_reader_of_a_stream_leaves_nothing_when_it_is_cancelled_with_deliveries_open() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(b"s", arguments=STREAM), BasicQos(0, 10, False))
    peer.receive(publish(b"s"))
    answers = peer.say(consume(b"s", arguments={b"x-stream-offset": b"first"}), 1)
    assert isinstance(answers[1], BasicDeliver)
    peer.say(BasicCancel(b"t", False), 1)
    assert world.account.queues.catalog.get("s").groups == {}


@pytest.mark.parametrize("arguments", [{b"x-stream-offset": True}, {b"x-priority": b"high"}])
def test_a_reader_of_a_stream_that_is_refused_leaves_nothing(arguments: FieldTable) -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(b"s", arguments=STREAM), BasicQos(0, 10, False))
    assert isinstance(peer.say(consume(b"s", arguments=arguments), 1)[0], ChannelClose)
    assert world.account.queues.catalog.get("s").groups == {}


def test_the_place_of_a_reader_of_a_stream_is_no_fact_of_the_log() -> None:
    """A crash must not leave it there for ever."""
    store = FullableStore()
    world = AmqpWorld(store=store)
    peer = client_with(world, queue(b"s", arguments=STREAM), BasicQos(0, 1, False))
    before = store.position()
    assert isinstance(peer.say(consume(b"s"), 1)[0], BasicConsumeOk)
    peer.say(BasicCancel(b"t", False), 1)
    assert store.position() == before


# ----------------------------------------------------------------------- costs


def test_a_channel_with_many_consumers_of_one_queue_ends_with_one_look_for_others() -> None:
    class Bystander(FakeConsumer):
        """Of the same queue, with no room: it is asked each time somebody is looked for."""

        asked = 0

        def has_credit(self) -> bool:
            self.asked += 1
            return False

    world = AmqpWorld()
    peer = client_with(world, queue())
    peer.receive(b"".join(frames_of(consume(tag=b"t%d" % number)) for number in range(500)))
    found = world.account.queues.catalog.get("q")
    bystander = Bystander()
    found.groups["amqp"].join(bystander)
    world.settle_down()
    bystander.asked = 0
    assert peer.say(ChannelClose(200, b"", 0, 0), 1) == [ChannelCloseOk()]
    assert found.consumer_count() == 1
    assert bystander.asked < 5
