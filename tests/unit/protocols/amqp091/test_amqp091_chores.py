"""What takes more than a slice of a turn: many deliveries answered at once, channels and connections with much open that end."""

from __future__ import annotations

from amqp091_traffic import client_with, consume, frames_of, publish, queue, ready
from amqp091_world import AmqpPeer, AmqpWorld

from millstream.broker.tasks import STEP_NS, STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.protocols.amqp091.chores import STEPS_PER_REJECTED, STEPS_PER_RETURNED
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.frames import HEARTBEAT_FRAME
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    QueueBind,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.queues.group import Group
from millstream.queues.purge import RECORDS_PER_STEP
from millstream.routing.subscription import Subscription

MANY = 3000


def holder(world: AmqpWorld, count: int = MANY, **options: object) -> AmqpPeer:
    """A client with so many deliveries open."""
    peer = client_with(world, queue(**options))  # type: ignore[arg-type]
    peer.receive(publish(b"q") * count)
    peer.receive(frames_of(consume()))
    assert len([answer for answer in peer.take() if isinstance(answer, BasicDeliver)]) == count
    return peer


def group_of(world: AmqpWorld) -> Group:
    found = world.account.queues.catalog.find("q")
    assert found is not None
    return found.groups["amqp"]


def say(peer: AmqpPeer, data: bytes) -> None:
    """What is done in the turn of the read, and no more."""
    peer.endpoint.receive_data(data, peer.world.now_ns)


def turns_until_open(world: AmqpWorld, wanted: int, most: int) -> int:
    """How many turns of tasks, none of which takes back more than so many."""
    turns = 0
    group = group_of(world)
    while len(group.pending) > wanted:
        before = len(group.pending)
        world.broker.tasks.work_off()
        assert 0 < before - len(group.pending) <= most
        turns += 1
    return turns


def test_very_many_nacks_are_carried_out_in_slices_and_come_back_in_order() -> None:
    world = AmqpWorld()
    peer = holder(world)
    peer.say(BasicCancel(b"t", False), 1)
    say(peer, frames_of(BasicNack(0, True, True), BasicQos(0, 10, False)))
    assert MANY - len(group_of(world).pending) <= STEPS_PER_SLICE // STEPS_PER_RETURNED + 1
    assert peer.link.waits_for_turn
    most = STEPS_PER_TURN // STEPS_PER_RETURNED + STEPS_PER_SLICE
    assert turns_until_open(world, 0, most) >= 1
    world.settle_down()
    assert not peer.link.waits_for_turn
    assert [type(answer) for answer in peer.take()] == [BasicQosOk]  # it came behind them
    assert ready(world) == MANY
    other = client_with(world)
    other.receive(frames_of(consume()))
    tags = [answer.delivery_tag for answer in other.take() if isinstance(answer, BasicDeliver)]
    assert tags == list(range(1, MANY + 1))
    assert [int(offset) for offset in group_of(world).pending] == list(range(MANY))


def test_a_client_whose_chore_goes_on_is_not_taken_for_dead_and_hears_our_heartbeats() -> None:
    world = AmqpWorld()
    peer = holder(world)
    peer.endpoint.machine.heartbeat_s = 1
    say(peer, frames_of(BasicNack(0, True, True)))
    assert peer.link.waits_for_turn
    for _ in range(10):
        sent = len(peer.link.data)
        world.now_ns += 1_000_000_000
        peer.endpoint.on_deadline(world.now_ns)
        peer.endpoint.flush()
        assert not peer.endpoint.machine.is_closed()
    assert peer.link.data[sent:] == HEARTBEAT_FRAME
    world.settle_down()
    world.now_ns += 3_000_000_000
    peer.endpoint.on_deadline(world.now_ns)
    assert peer.endpoint.machine.is_closed(), "now its silence counts"


def test_the_time_of_chores_counts_for_the_client_that_asked_for_them() -> None:
    world = AmqpWorld()
    peer = holder(world)
    peer.say(BasicCancel(b"t", False), 1)
    say(peer, frames_of(BasicNack(0, True, True)))
    assert peer.link.spent_ns == 0  # the transport counts what is done in the read itself
    world.settle_down()
    steps = MANY * STEPS_PER_RETURNED - STEPS_PER_SLICE
    assert steps - STEPS_PER_SLICE <= peer.link.spent_ns // STEP_NS <= steps + STEPS_PER_SLICE


def test_waiting_for_the_work_of_others_costs_a_client_nothing() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    for number in range(3000):
        bind = QueueBind(b"q", b"amq.direct", b"%d" % number, True, FieldTable())
        peer.receive(frames_of(bind))
    say(peer, frames_of(QueueDelete(b"q", False, False, False)))
    assert peer.link.waits_for_turn
    world.settle_down()
    assert not peer.link.waits_for_turn
    assert peer.link.spent_ns == 0


def test_who_deletes_something_small_does_not_wait_for_what_others_have_deleted() -> None:
    world = AmqpWorld()
    crowded = client_with(world, queue())
    peer = client_with(world, queue(b"small"))
    catalog = world.account.queues.catalog
    for name, count in (("q", 3 * STEPS_PER_TURN), ("small", 1)):
        for number in range(count):
            world.account.exchanges.bind_queue(catalog.get(name), "amq.direct", b"%d" % number, {})
    say(crowded, frames_of(QueueDelete(b"q", False, False, False)))
    say(peer, frames_of(QueueDelete(b"small", False, False, False), queue(b"small")))
    world.broker.tasks.work_off()
    world.pool.flush()
    assert crowded.link.waits_for_turn
    assert not peer.link.waits_for_turn
    assert [type(answer) for answer in peer.take()] == [QueueDeleteOk, QueueDeclareOk]
    world.settle_down()
    assert not crowded.link.waits_for_turn


def test_a_publisher_waits_for_a_queue_that_is_being_removed_no_longer_than_that_takes() -> None:
    """Its message makes the queue again."""
    world = AmqpWorld()
    owner, peer = client_with(world, queue()), client_with(world)
    peer.say(ConfirmSelect(False), 1)
    gone = world.account.queues.catalog.get("q")
    for number in range(3 * STEPS_PER_TURN):
        world.account.exchanges.bind_queue(gone, "amq.direct", b"%d" % number, {})
    say(owner, frames_of(QueueDelete(b"q", False, False, False)))
    say(peer, publish(b"$queue/q"))
    assert peer.link.waits_for_store
    world.settle_down()
    peer.endpoint.on_tick(world.now_ns)
    world.settle_down()
    assert not peer.link.waits_for_store
    assert [type(answer) for answer in peer.take()] == [BasicAck]
    assert ready(world) == 1


def test_very_many_that_are_rejected_become_dead_letters_in_slices() -> None:
    world = AmqpWorld()
    client_with(world, queue(b"dead"))
    arguments = {b"x-dead-letter-exchange": b"", b"x-dead-letter-routing-key": b"dead"}
    peer = holder(world, 1000, arguments=arguments)
    say(peer, frames_of(BasicNack(0, True, False)))
    assert 1000 - len(group_of(world).pending) <= STEPS_PER_SLICE // STEPS_PER_REJECTED + 1
    turns = turns_until_open(world, 0, (STEPS_PER_TURN + STEPS_PER_SLICE) // STEPS_PER_REJECTED + 1)
    assert turns >= 1000 * STEPS_PER_REJECTED // (STEPS_PER_TURN + STEPS_PER_SLICE)
    world.settle_down()
    assert ready(world, "dead") == 1000


def test_a_purge_of_very_many_goes_on_in_slices_and_is_answered_behind_them() -> None:
    world = AmqpWorld()
    count = 4 * STEPS_PER_SLICE * RECORDS_PER_STEP
    peer = client_with(world, queue())
    for _ in range(0, count, 1000):
        peer.receive(publish(b"q") * 1000)
    peer.take()
    say(peer, frames_of(QueuePurge(b"q", False), BasicQos(0, 10, False)))
    assert peer.link.waits_for_turn
    assert count - ready(world) <= STEPS_PER_SLICE * RECORDS_PER_STEP
    assert peer.take() == []
    world.settle_down()
    assert not peer.link.waits_for_turn
    purged, granted = peer.take()
    assert isinstance(purged, QueuePurgeOk)
    assert purged.message_count == count
    assert isinstance(granted, BasicQosOk)
    assert ready(world) == 0


def test_a_few_answers_are_acted_on_at_once() -> None:
    world = AmqpWorld()
    peer = holder(world, 100)
    say(peer, frames_of(BasicAck(50, True)))
    assert len(group_of(world).pending) == 50
    assert not peer.link.waits_for_turn


def test_a_recover_of_very_many_delivers_all_of_them_again() -> None:
    world = AmqpWorld()
    peer = holder(world)
    peer.receive(frames_of(BasicRecover(True)))
    answers = peer.take()
    assert isinstance(answers[0], BasicRecoverOk)
    again = [answer for answer in answers if isinstance(answer, BasicDeliver)]
    assert [answer.delivery_tag for answer in again] == list(range(MANY + 1, 2 * MANY + 1))
    assert all(answer.redelivered for answer in again)


def test_a_channel_with_much_open_is_closed_when_all_of_it_went_back() -> None:
    world = AmqpWorld()
    peer = holder(world)
    say(peer, frames_of(ChannelClose(200, b"", 0, 0)))
    world.pool.flush()
    assert peer.take() == []
    world.settle_down()
    assert [type(answer) for answer in peer.take()] == [ChannelCloseOk]
    assert ready(world) == MANY


def test_a_lost_connection_gives_back_what_it_had_in_slices() -> None:
    world = AmqpWorld()
    peer = holder(world)
    peer.endpoint.on_lost(world.now_ns)
    assert MANY - len(group_of(world).pending) <= STEPS_PER_SLICE // STEPS_PER_RETURNED + 1
    other = client_with(world)
    assert isinstance(other.say(queue(b"other"), 1)[0], QueueDeclareOk)
    world.settle_down()
    assert ready(world) == MANY
    assert world.context.endpoints() == [other.endpoint]


def test_a_connection_lost_in_the_middle_of_a_chore_ends_behind_it() -> None:
    world = AmqpWorld()
    peer = holder(world)
    say(peer, frames_of(BasicNack(2500, True, True), BasicQos(0, 10, False)))
    peer.endpoint.on_lost(world.now_ns)
    world.settle_down()
    assert ready(world) == MANY
    assert world.context.endpoints() == []


def test_very_many_consumers_leave_in_slices() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    for number in range(2000):
        say(peer, frames_of(BasicConsume(b"q", b"c%d" % number, False, False, False, True, {})))
    world.settle_down()
    assert len(group_of(world).consumers) == 2000
    peer.endpoint.on_lost(world.now_ns)
    assert len(group_of(world).consumers) >= 1000
    world.broker.tasks.work_off()
    world.settle_down()
    assert len(group_of(world).consumers) == 0


def test_a_close_is_answered_when_the_queues_of_the_connection_are_gone() -> None:
    world = AmqpWorld()
    peer = client_with(world)
    for number in range(500):
        say(peer, frames_of(queue(b"x%d" % number, exclusive=True)))
    world.settle_down()
    peer.take()
    say(peer, frames_of(ConnectionClose(200, b"", 0, 0), channel=0))
    world.pool.flush()
    assert 0 < len(world.account.queues.catalog.queues) < 500
    assert (peer.take(), peer.link.is_closed) == ([], False)
    world.settle_down()
    assert world.account.queues.catalog.queues == {}
    assert [type(answer) for answer in peer.take()] == [ConnectionCloseOk]


def test_publishes_that_are_costly_to_route_are_carried_out_over_several_turns() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    for number in range(700):
        arguments: FieldTable = {b"k%d" % at: number for at in range(20)}
        say(peer, frames_of(QueueBind(b"q", b"amq.headers", b"", True, arguments)))
    world.settle_down()
    properties = BasicProperties(headers={b"k0": -1})
    say(peer, publish(b"", exchange=b"amq.headers", properties=properties) * 10)
    assert world.account.counters.messages_received == 1  # 14,700 comparisons, which is more than a slice
    assert peer.link.waits_for_turn
    turns = 0
    while world.broker.tasks.count():
        before = world.account.counters.messages_received
        world.broker.tasks.work_off()
        assert world.account.counters.messages_received - before <= 1 + STEPS_PER_TURN // STEPS_PER_SLICE
        turns += 1
    world.settle_down()
    assert world.account.counters.messages_received == 10
    assert not peer.link.waits_for_turn


def test_new_topics_that_very_many_filters_may_match_are_published_to_over_several_turns() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    bound = world.account.queues.catalog.get("q")
    for number in range(1024):
        levels = [b"+" if number >> at & 1 else b"a" for at in range(10)]
        world.account.router.subscribe(
            Subscription(bound, b"/".join([*levels, b"z"]), b"", 0, False, True, 0)
        )
    counters = world.account.counters
    say(peer, b"".join([publish(b"a." * 10 + b"%d" % number, exchange=b"amq.topic") for number in range(40)]))
    assert 0 < counters.messages_received <= 5  # each looks at two thousand nodes, a quarter of a slice
    assert peer.link.waits_for_turn
    world.settle_down()
    assert counters.messages_received == 40


def test_who_deletes_a_queue_with_very_many_bindings_goes_on_when_they_are_gone() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(durable=True))
    for number in range(MANY):
        peer.receive(frames_of(QueueBind(b"q", b"amq.topic", b"k%d.#" % number, True, {})))
    peer.take()
    say(peer, frames_of(QueueDelete(b"q", False, False, False), queue()))
    assert peer.link.waits_for_turn
    assert world.account.queues.catalog.find("q") is None
    world.settle_down()
    answers = peer.take()
    assert [type(answer) for answer in answers] == [QueueDeleteOk, QueueDeclareOk]
    assert not peer.link.waits_for_turn
    assert world.account.exchanges.binding_count() == 0


def test_costly_routes_of_one_client_take_a_turn_each() -> None:
    """Through a headers exchange with as many conditions as are admitted."""
    world = AmqpWorld()
    peer = client_with(world, queue())
    table: FieldTable = {b"n%d" % number: number for number in range(2000)}
    for number in range(95):
        arguments: FieldTable = {b"x-match": b"any", b"big": table, b"own": number}
        peer.receive(frames_of(QueueBind(b"q", b"amq.headers", b"", True, arguments)))
    counters = world.account.counters
    before = int(counters.messages_received)
    say(peer, publish(b"", exchange=b"amq.headers") * 6)
    assert counters.messages_received - before == 1
    for _ in range(3):
        done = int(counters.messages_received)
        world.broker.tasks.work_off()
        assert counters.messages_received - done <= 1
    world.settle_down()
    assert counters.messages_received - before == 6
