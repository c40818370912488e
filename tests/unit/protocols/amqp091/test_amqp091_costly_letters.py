"""Dead letters that are costly to route: however they come about, a turn makes a few of them and others are served between."""

from __future__ import annotations

import pytest
from amqp091_traffic import client_with, consume, frames_of, publish, queue, ready
from amqp091_world import AmqpPeer, AmqpWorld

from millstream.broker.conditions import LIMIT_REACHED
from millstream.broker.tasks import STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.model.limits import Limits
from millstream.protocols.amqp091.transaction import ROUTING_STEPS_MAX
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import (
    BasicGet,
    BasicNack,
    ChannelClose,
    ChannelCloseOk,
    QueueBind,
    QueueDeclare,
    TxCommit,
    TxSelect,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.queues.definition import WORK, Definition
from millstream.queues.x_death import KEYS_MAX
from millstream.routing.exchanges import KEYS_PER_STEP

COUNT = 30
FEW = 1 + STEPS_PER_TURN // STEPS_PER_SLICE  # of them in a turn


class CostlyWorld(AmqpWorld):
    """Each letter of `q` is compared with 14,700 values of headers, which is more than a slice, and comes to `grave`."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self.grave = self.account.queues.catalog.declare("grave", Definition(WORK))
        access = self.account.exchanges
        access.bind_queue(self.grave, "amq.headers", b"", {})
        for number in range(700):
            access.bind_queue(self.grave, "amq.headers", b"", {f"k{at}": number for at in range(20)})

    def client_of(self, **arguments: object) -> AmqpPeer:
        table: FieldTable = {b"x-dead-letter-exchange": b"amq.headers"}
        for name, value in arguments.items():
            table[b"x-" + name.replace("_", "-").encode()] = value
        return client_with(self, queue(arguments=table))

    def letters(self) -> int:
        return int(self.grave.depth())

    def turn(self) -> None:
        """What the loop does at the end of a turn."""
        self.broker.scheduler.work_off()
        self.broker.tasks.work_off()
        self.broker.write_settled()
        self.pool.flush()

    def wait_letters(self, count: int) -> None:
        """No turn makes more than a few."""
        turns = 0
        while self.letters() < count:
            before = self.letters()
            self.turn()
            assert self.letters() - before <= FEW
            turns += 1
            assert turns < 20 * count
        assert turns > 1


@pytest.fixture
def world() -> CostlyWorld:
    return CostlyWorld()


def say(peer: AmqpPeer, data: bytes) -> None:
    """What is done in the turn of the read, and no more."""
    peer.endpoint.receive_data(data, peer.world.now_ns)


def test_messages_that_are_rejected_together_become_letters_over_several_turns(world: CostlyWorld) -> None:
    peer = world.client_of()
    peer.receive(publish(b"q") * COUNT + frames_of(consume()))
    say(peer, frames_of(BasicNack(0, True, False)))
    assert world.letters() == 1
    assert peer.link.waits_for_turn
    world.wait_letters(COUNT)


def test_letters_with_very_many_keys_do_as_well_because_the_right_to_each_is_asked() -> None:
    world = AmqpWorld()
    grave = world.account.queues.catalog.declare("grave", Definition(WORK))
    world.account.exchanges.bind_queue(grave, "amq.fanout", b"", {})
    peer = client_with(world, queue(arguments={b"x-dead-letter-exchange": b"amq.fanout"}))
    keys = BasicProperties(headers={b"CC": [b"k%d" % number for number in range(KEYS_MAX)]})
    peer.receive(publish(b"q", properties=keys) * COUNT + frames_of(consume()))
    say(peer, frames_of(BasicNack(0, True, False)))
    assert grave.depth() <= 1 + STEPS_PER_SLICE * KEYS_PER_STEP // KEYS_MAX
    world.settle_down()
    assert grave.depth() == COUNT


def test_a_transaction_that_would_make_too_many_of_them_in_one_turn_is_refused(world: CostlyWorld) -> None:
    peer = world.client_of()
    peer.receive(frames_of(TxSelect(), consume()))
    other = client_with(world)
    few = ROUTING_STEPS_MAX // (2 * STEPS_PER_SLICE)
    for count, is_taken in ((few, True), (4 * few, False)):
        other.receive(publish(b"q") * count)
        peer.say(BasicNack(0, True, False), 1)
        before = world.letters()
        [answer] = peer.say(TxCommit(), 1)
        assert isinstance(answer, ChannelClose) != is_taken
        assert world.letters() - before == (count if is_taken else 0)
    assert answer.reply_text.endswith(b"would take too long to route; commit more often")
    world.settle_down()
    assert ready(world) == 4 * few


def test_a_transaction_that_a_full_queue_refuses_makes_as_many_as_there_is_time_for(
    world: CostlyWorld,
) -> None:
    peer = world.client_of(max_length=1, overflow=b"reject-publish-dlx")
    peer.receive(publish(b"q"))
    peer.say(TxSelect(), 1)
    most = ROUTING_STEPS_MAX // STEPS_PER_SLICE
    peer.receive(publish(b"q") * (2 * most))
    [answer] = peer.say(TxCommit(), 1)
    assert isinstance(answer, ChannelClose)
    assert most // 2 < world.letters() <= most
    dying = world.account.queues.catalog.get("q")
    assert dying.counters.dead_lettered + dying.counters.dropped == 2 * most
    peer.say(ChannelCloseOk(), 1)
    peer.open_channel(1)
    before = world.letters()
    peer.receive(publish(b"q"))
    assert world.letters() == before + 1, "it was for the transaction alone"


def test_messages_that_are_rejected_one_by_one_do_as_well(world: CostlyWorld) -> None:
    peer = world.client_of()
    peer.receive(publish(b"q") * COUNT + frames_of(consume()))
    say(peer, frames_of(*[BasicNack(tag + 1, False, False) for tag in range(COUNT)]))
    assert world.letters() == 1
    assert peer.link.waits_for_turn
    world.wait_letters(COUNT)


def test_messages_that_a_full_queue_refuses_make_their_publisher_wait_its_turn(world: CostlyWorld) -> None:
    peer = world.client_of(max_length=1, overflow=b"reject-publish-dlx")
    peer.receive(publish(b"q"))
    say(peer, publish(b"q") * COUNT)
    assert world.letters() == 1
    assert peer.link.waits_for_turn
    world.wait_letters(COUNT)


def test_messages_that_make_room_for_others_go_over_several_turns(world: CostlyWorld) -> None:
    peer = world.client_of(max_length=1)
    say(peer, publish(b"q") * (COUNT + 1))
    assert world.letters() == 0
    world.wait_letters(COUNT)
    assert ready(world) == 1


def test_who_asks_for_a_queue_does_not_wait_until_all_that_is_too_much_has_gone(world: CostlyWorld) -> None:
    peer = world.client_of(max_length=1)
    say(
        peer,
        publish(b"q") * (COUNT + 1) + frames_of(QueueDeclare(b"q", True, False, False, False, False, {})),
    )
    assert world.letters() == 1
    world.wait_letters(COUNT)


def test_messages_that_expire_before_a_consumer_go_over_several_turns(world: CostlyWorld) -> None:
    peer = world.client_of(message_ttl=1000)
    peer.receive(publish(b"q") * COUNT)
    world.now_ns += 2_000_000_000
    say(peer, frames_of(consume()))
    world.wait_letters(COUNT)


def test_a_tick_lets_few_messages_expire_where_nobody_has_room(world: CostlyWorld) -> None:
    peer = world.client_of(message_ttl=1000)
    peer.receive(publish(b"q") * COUNT)
    for _ in range(2 * COUNT):
        before = world.letters()
        world.move(1.1)
        assert world.letters() - before <= FEW
    assert world.letters() == COUNT


def test_who_asks_for_one_message_goes_by_few_that_have_expired(world: CostlyWorld) -> None:
    peer = world.client_of(message_ttl=1000)
    peer.receive(publish(b"q") * COUNT)
    world.now_ns += 2_000_000_000
    say(peer, frames_of(*[BasicGet(b"q", False)] * 5))
    assert world.letters() <= 2
    world.wait_letters(COUNT)


def test_a_letter_that_would_go_to_more_queues_than_a_message_may_is_dropped_and_told() -> None:
    world = AmqpWorld(Limits(queues_per_message_max=3))
    names = [b"to%d" % number for number in range(4)]
    peer = client_with(
        world,
        queue(arguments={b"x-dead-letter-exchange": b"amq.fanout"}),
        *[queue(name) for name in names],
        *[QueueBind(name, b"amq.fanout", b"", False, {}) for name in names[:3]],
    )
    dying = world.account.queues.catalog.get("q")
    reject = publish(b"q") + frames_of(BasicGet(b"q", False), BasicNack(0, True, False))
    peer.receive(reject)
    assert [ready(world, name.decode()) for name in names] == [1, 1, 1, 0]
    peer.receive(frames_of(QueueBind(names[3], b"amq.fanout", b"", False, {})))
    peer.receive(reject)
    assert [ready(world, name.decode()) for name in names] == [1, 1, 1, 0]
    assert (dying.counters.dead_lettered, dying.counters.dropped) == (1, 1)
    [told] = [each for each in world.broker.health.active() if each.condition is LIMIT_REACHED]
    assert told.cause.startswith("a dead letter would go to more than 3 queues, as many as broker.max_queues")


def test_a_letter_that_would_take_too_much_room_in_durable_queues_is_dropped_and_told() -> None:
    world = AmqpWorld(Limits(stored_bytes_per_message_max=100))
    names = [b"to%d" % number for number in range(3)]
    peer = client_with(
        world,
        queue(arguments={b"x-dead-letter-exchange": b"amq.fanout"}),
        *[queue(name, durable=True) for name in names],
        *[QueueBind(name, b"amq.fanout", b"", False, {}) for name in names],
    )
    for body, letters in ((b"x" * 33, 1), (b"x" * 34, 1)):
        peer.receive(publish(b"q", body=body) + frames_of(BasicGet(b"q", False), BasicNack(0, True, False)))
        assert [ready(world, name.decode()) for name in names] == [letters] * 3
    [told] = [each for each in world.broker.health.active() if each.condition is LIMIT_REACHED]
    assert "broker.max_stored_bytes_per_message" in told.cause
