"""Very many consumers and groups of one client: what it sends in a few bytes is no look at all of them each time."""

from __future__ import annotations

from amqp091_declarations import declare, find
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import make_message
from queue_world import FakeConsumer

from millstream.broker.group_round import CONSUMERS_FEW
from millstream.broker.queue_access import GROUPS_MAX
from millstream.model.outcome import Outcome
from millstream.protocols.amqp091.declaring import GROUPS_AT_ONCE, catch_up
from millstream.protocols.amqp091.wire.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    ChannelClose,
    Method,
)


def consume(queue: bytes, tag: bytes) -> BasicConsume:
    return BasicConsume(queue, tag, False, False, False, False, {})


def open_client(world: AmqpWorld) -> AmqpPeer:
    client = world.client()
    client.open_channel()
    return client


def test_consumers_of_a_stream_are_bounded_like_any_groups() -> None:
    world = AmqpWorld()
    client = open_client(world)
    declare(client.endpoint, b"s", arguments={b"x-queue-type": b"stream"})
    client.say(BasicQos(0, 1, False), 1)
    stream = find(world, "s")
    for number in range(GROUPS_MAX - 1):
        stream.get_group(f"g{number}", b"", False)
    assert isinstance(client.say(consume(b"s", b"last"), 1)[0], BasicConsumeOk)
    closed: list[Method] = client.say(consume(b"s", b"more"), 1)
    assert isinstance(closed[0], ChannelClose)
    assert f"has {GROUPS_MAX} groups".encode() in closed[0].reply_text


def test_very_many_groups_hand_out_in_their_turn_and_not_while_somebody_asks_for_the_queue() -> None:
    world = AmqpWorld()
    client = open_client(world)
    declare(client.endpoint)
    queue = find(world)
    for number in range(GROUPS_AT_ONCE):
        queue.get_group(f"g{number}", b"")
    consumer = FakeConsumer()
    queue.groups["g0"].join(consumer)
    queue.append(make_message(b"$queue/q"))
    catch_up(queue)
    assert consumer.offsets() == [0]
    queue.get_group("one more", b"")
    queue.append(make_message(b"$queue/q"))
    catch_up(queue)
    assert consumer.offsets() == [0]
    world.settle_down()
    assert consumer.offsets() == [0, 1]


def test_answers_on_a_channel_with_very_many_consumers_bring_about_one_round() -> None:
    world = AmqpWorld()
    client = open_client(world)
    count = CONSUMERS_FEW + 1
    client.say(BasicQos(0, 4, True), 1)
    for number in range(count):
        declare(client.endpoint, b"q%d" % number)
        client.say(consume(b"q%d" % number, b"c%d" % number), 1)
    for number in range(count):
        find(world, f"q{number}").append(make_message(b"$queue/q%d" % number))
    world.settle_down()
    channel = client.endpoint.channels[1]
    assert len(channel.unsettled) == 4
    for tag in list(channel.unsettled):
        channel.settle(tag, False, Outcome.ACCEPTED)
    assert (len(channel.unsettled), world.broker.tasks.count()) == (0, 1)
    world.settle_down()
    assert len(channel.unsettled) == 4
