"""What one connection can make the broker hold for it is bounded, and a bound that was met lets go again."""

from __future__ import annotations

import pytest
from amqp091_traffic import client_with, consume, frames_of, publish, queue, ready
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import MEMORY_LIMIT

from millstream.broker.conditions import CLIENT_NOT_READING
from millstream.broker.queue_access import GROUPS_MAX
from millstream.model.limits import Limits
from millstream.model.message import NANOSECONDS
from millstream.protocols.amqp091.consuming import UNSETTLED_BYTES_MAX
from millstream.protocols.amqp091.context import CHANNEL_BYTES, CHANNELS_PER_TICK
from millstream.protocols.amqp091.transaction import (
    BYTES_MAX,
    OPERATIONS_MAX,
    RECEIVERS_MAX,
    ROUTING_STEPS_MAX,
)
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.field_table import FieldTable, Timestamp
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionTuneOk,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxSelect,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.queues.catalog import LETTERS_MAX
from millstream.queues.x_death import DEATHS_MAX, KEYS_MAX

ACK = BasicAck(1, False)


def bodies(answers: list[Method]) -> int:
    return len([answer for answer in answers if isinstance(answer, (BasicDeliver, BasicGetOk))])


def make_lag(peer: AmqpPeer, unsent: int) -> None:
    """The client does not read: so much has not left."""
    peer.link.unsent = unsent
    peer.endpoint.on_lagging()


def test_a_client_that_does_not_read_its_answers_is_not_read_either() -> None:
    world = AmqpWorld(Limits(unsent_bytes_max=10_000, amqp_body_size_max=5_000))
    peer = client_with(world, queue())
    make_lag(peer, 2 * 1024 * 1024)
    peer.say(QueueDeclare(b"q", True, False, False, False, False, {}), 1)
    assert peer.link.is_paused
    assert peer.say(BasicGet(b"q", True), 1) == []
    peer.link.unsent = 0
    peer.endpoint.on_caught_up()
    assert not peer.link.is_paused
    world.move(0.05)
    world.settle_down()
    assert peer.take() == [BasicGetEmpty()]


def test_a_client_that_does_not_read_its_answers_for_long_is_named() -> None:
    world = AmqpWorld(Limits(unsent_bytes_max=10_000, amqp_body_size_max=5_000))
    peer, health = client_with(world, queue()), world.broker.health
    make_lag(peer, 2 * 1024 * 1024)
    peer.say(QueueDeclare(b"q", True, False, False, False, False, {}), 1)
    world.context.on_tick(world.now_ns)
    assert health.find(CLIENT_NOT_READING) is None  # it may be about to
    world.move(1.0)
    world.context.on_tick(world.now_ns)
    told = health.find(CLIENT_NOT_READING)
    assert told is not None
    assert told.cause.startswith(peer.endpoint.describe())
    assert health.totals()[CLIENT_NOT_READING.name] == 1


def test_a_client_that_reads_its_answers_in_time_is_not_named() -> None:
    world = AmqpWorld(Limits(unsent_bytes_max=10_000, amqp_body_size_max=5_000))
    peer = client_with(world, queue())
    make_lag(peer, 2 * 1024 * 1024)
    peer.say(QueueDeclare(b"q", True, False, False, False, False, {}), 1)
    peer.link.unsent = 0
    peer.endpoint.on_caught_up()
    world.move(2.0)
    world.context.on_tick(world.now_ns)
    assert world.broker.health.find(CLIENT_NOT_READING) is None


def test_what_others_send_to_a_slow_reader_does_not_stop_its_own_words() -> None:
    """It may be writing, and reads only when that is done."""
    world = AmqpWorld()
    peer = client_with(world, queue())
    peer.say(consume(), 1)
    make_lag(peer, 2 * 1024 * 1024)
    world.publish(b"$queue/q", b"x" * 100_000)
    world.settle_down()
    assert not peer.link.is_paused


def test_one_that_does_not_read_does_not_hold_up_what_others_ask_for() -> None:
    world = AmqpWorld(Limits(unsent_bytes_max=10_000, amqp_body_size_max=5_000))
    slow, other = client_with(world, queue()), client_with(world)
    make_lag(slow, 2 * 1024 * 1024)
    slow.say(QueueDeclare(b"q", True, False, False, False, False, {}), 1)
    slow.receive(frames_of(BasicGet(b"q", False)))
    world.publish(b"$queue/q", b"1")
    world.settle_down()
    assert bodies(other.say(BasicGet(b"q", True), 1)) == 1


def test_who_never_settles_gets_no_more_than_so_much_and_goes_on_when_it_does() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    peer.say(consume(), 1)
    peer.endpoint.unsettled_bytes = UNSETTLED_BYTES_MAX - 1
    peer.receive(publish(b"q") + publish(b"q"))
    assert bodies(peer.take()) == 1
    assert ready(world) == 1
    peer.endpoint.unsettled_bytes -= 10_000
    assert bodies(peer.say(ACK, 1)) == 1


def test_what_is_open_is_counted_until_it_is_settled_or_the_channel_ends() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    peer.receive(publish(b"q") * 4)
    peer.say(consume(), 1)
    assert peer.endpoint.unsettled_bytes > 0
    peer.receive(frames_of(ACK, BasicAck(2, True)))
    peer.say(ChannelClose(200, b"", 0, 0), 1)
    assert peer.endpoint.unsettled_bytes == 0


def test_a_bound_of_the_whole_channel_wakes_its_other_queues() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(b"a"), queue(b"b"), BasicQos(0, 1, True))
    peer.receive(publish(b"a") + publish(b"b"))
    peer.say(consume(b"a", b"ta"), 1)
    assert bodies(peer.say(consume(b"b", b"tb"), 1)) == 0
    assert bodies(peer.say(ACK, 1)) == 1


def test_replies_to_one_that_does_not_read_are_refused() -> None:
    world = AmqpWorld(Limits(unsent_bytes_max=10_000, amqp_body_size_max=5_000))
    asker, server = client_with(world), client_with(world, ConfirmSelect(False))
    asker.say(consume(b"amq.rabbitmq.reply-to", no_ack=True), 1)
    address = b"amq.rabbitmq.reply-to." + asker.endpoint.channels[1].reply_token
    make_lag(asker, 2 * 1024 * 1024)
    server.receive(publish(address))
    assert bodies(asker.take()) == 1
    assert server.take() == [BasicAck(1, False)]
    server.receive(publish(address))
    assert bodies(asker.take()) == 0
    assert server.take() == [BasicNack(2, False, False)]


def test_channels_of_a_connection_remember_routes_together() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    peer.open_channel(2)
    peer.receive(publish(b"q") + publish(b"q", channel=2))
    assert list(peer.endpoint.places) == [(b"", b"q")]


# ---------------------------------------------------------------- transactions


def test_transactions_of_a_connection_hold_no_more_than_one_may() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(), TxSelect())
    peer.open_channel(2)
    peer.say(TxSelect(), 2)
    room = peer.endpoint.transaction_room
    peer.receive(publish(b"q"))
    room.operations += OPERATIONS_MAX - 2
    peer.receive(publish(b"q", channel=2))
    assert peer.take() == []
    peer.receive(publish(b"q", channel=2))
    close = peer.take()[0]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    room.operations -= OPERATIONS_MAX - 2
    assert peer.say(TxCommit(), 1) == [TxCommitOk()]
    assert (room.operations, room.size_bytes) == (0, 0)
    assert ready(world) == 1


def test_a_transaction_that_would_reach_too_many_receivers_is_refused_before_its_first_publish() -> None:
    world = AmqpWorld()
    names = [b"q%d" % number for number in range(20)]
    binds = [QueueBind(name, b"amq.fanout", b"", False, {}) for name in names]
    peer = client_with(world, *(queue(name) for name in names), *binds, TxSelect())
    peer.receive(publish(b"", exchange=b"amq.fanout") * (RECEIVERS_MAX // len(names) + 1))
    close = peer.say(TxCommit(), 1)[0]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    assert f"(limit: {RECEIVERS_MAX})".encode() in close.reply_text
    assert ready(world, "q0") == 0
    assert peer.endpoint.transaction_room.operations == 0


def test_a_transaction_whose_messages_are_too_costly_to_route_is_refused_before_its_first_publish() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(), TxSelect())
    bound = world.account.queues.catalog.get("q")
    for number in range(700):
        arguments: dict[str, object] = {f"k{at}": number for at in range(20)}
        world.account.exchanges.bind_queue(bound, "amq.headers", b"", arguments)
    properties = BasicProperties(headers={b"k0": -1})
    one = publish(b"", exchange=b"amq.headers", properties=properties)
    peer.receive(one * (ROUTING_STEPS_MAX // 1000) + publish(b"q"))
    close = peer.say(TxCommit(), 1)[0]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    assert close.reply_text.endswith(b"take too long to find; commit more often")
    assert ready(world) == 0
    peer.open_channel(2)
    peer.receive(frames_of(TxSelect(), channel=2))
    peer.receive(publish(b"", exchange=b"amq.headers", properties=properties, channel=2) * 50)
    peer.take()
    assert [type(answer) for answer in peer.say(TxCommit(), 2)] == [TxCommitOk]


def test_a_transaction_that_would_store_too_much_is_refused_before_its_first_publish() -> None:
    world = AmqpWorld()
    names = [b"q%d" % number for number in range(40)]
    binds = [QueueBind(name, b"amq.fanout", b"", False, {}) for name in names]
    peer = client_with(world, *(queue(name) for name in names), *binds, TxSelect())
    body = bytes(100_000)
    room = BYTES_MAX // len(names) // len(body)
    peer.receive(publish(b"", body, b"amq.fanout") * (room + 1))
    close = peer.say(TxCommit(), 1)[0]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    assert b"bytes in durable queues" in close.reply_text
    assert ready(world, "q0") == 0
    peer.open_channel(2)
    peer.receive(frames_of(TxSelect(), channel=2) + publish(b"", body, b"amq.fanout", channel=2) * room)
    peer.take()
    assert [type(answer) for answer in peer.say(TxCommit(), 2)] == [TxCommitOk]
    assert ready(world, "q0") == room


def test_a_transaction_that_is_rolled_back_gives_its_room_back() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(), TxSelect())
    peer.receive(publish(b"q", b"12345") + frames_of(TxRollback()))
    room = peer.endpoint.transaction_room
    assert (room.operations, room.size_bytes) == (0, 0)


@pytest.mark.parametrize("more", [[b"q"], [b"q" * 256]])
def test_a_message_goes_to_only_so_many_further_keys(more: list[object]) -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    properties = BasicProperties()
    properties.headers = {b"CC": [b"q"] * KEYS_MAX}
    peer.receive(publish(b"nowhere", properties=properties))
    assert ready(world) == 1
    properties.headers = {b"CC": [b"q"] * (KEYS_MAX if more == [b"q"] else 1), b"BCC": more}
    peer.receive(publish(b"nowhere", properties=properties))
    close = peer.take()[0]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406


# ----------------------------------------------------------------------- rates


def test_a_client_publishes_no_faster_than_its_rate_and_is_not_taken_for_dead_meanwhile() -> None:
    world = AmqpWorld(Limits(message_rate=10.0, message_burst=2))
    peer = world.stranger()
    peer.log_in(b"PLAIN", b"\x00guest\x00guest")
    peer.say(ConnectionTuneOk(0, 0, 1))
    peer.say(ConnectionOpen(b"/"))
    peer.open_channel()
    peer.say(queue(), 1)
    peer.receive(publish(b"q") * 2)
    assert peer.link.paused_ns == []
    peer.receive(publish(b"q") * 30)
    assert peer.link.paused_ns == [3_000_000_000]
    for seconds in (1.0, 2.5):
        peer.endpoint.on_deadline(world.now_ns + int(seconds * NANOSECONDS))
    assert peer.endpoint.machine.is_open
    assert ready(world) == 32


# --------------------------------------------------------------------- content


def test_a_header_that_other_protocols_cannot_hold_is_for_amqp_clients_alone() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    properties = BasicProperties()
    properties.headers = {b"x-correlation-id": b"c" * 70_000}
    peer.receive(publish(b"q", properties=properties))
    assert bodies(peer.say(BasicGet(b"q", True), 1)) == 1
    assert peer.link.data.count(b"c" * 70_000) == 1


# ---------------------------------------------------------------------- groups


def test_a_queue_has_only_so_many_groups() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    found = world.account.queues.catalog.get("q")
    filler = found.get_group("filler", b"")
    for number in range(GROUPS_MAX - 1):
        found.groups[str(number)] = filler
    close = peer.say(consume(arguments={b"x-consumer-group": b"mine"}), 1)[0]
    assert isinstance(close, ChannelClose)
    assert close.reply_code == 406
    assert "mine" not in found.groups


def test_a_filter_that_is_none_makes_no_group() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    assert isinstance(peer.say(consume(b"$queue/q/a#b"), 1)[0], ChannelClose)
    assert world.account.queues.catalog.get("q").groups == {}


def test_a_letter_that_died_as_often_as_is_told_can_be_published_again() -> None:
    """A client that tries again by hand sends the headers it got, its own among them."""
    world = AmqpWorld()
    peer = client_with(world, queue())
    properties = BasicProperties()
    death: FieldTable = {
        b"count": 1,
        b"reason": b"expired",
        b"queue": b"q",
        b"time": Timestamp(1),
        b"exchange": b"",
        b"routing-keys": [b"q", b"copy"],
        b"original-expiration": b"10",
    }
    properties.headers = {b"x-death": [death] * DEATHS_MAX, **{b"own-%d" % n: n for n in range(200)}}
    peer.receive(publish(b"q", properties=properties))
    assert bodies(peer.say(BasicGet(b"q", True), 1)) == 1


def test_one_message_makes_only_so_many_letters_where_queues_refuse_the_letters_of_each_other() -> None:
    """Of each that is refused every queue of the next row makes one: without a bound they double and double again."""
    rows, width = 5, 8
    world = AmqpWorld()
    peer = client_with(world)
    names = [[b"q%d.%d" % (row, at) for at in range(width)] for row in range(rows)]
    for row in range(rows):
        exchange = b"x%d" % row
        peer.receive(frames_of(ExchangeDeclare(exchange, b"fanout", False, True, False, False, False, {})))
        arguments: FieldTable = {b"x-max-length": 1, b"x-overflow": b"reject-publish-dlx"}
        if row + 1 < rows:
            arguments[b"x-dead-letter-exchange"] = b"x%d" % (row + 1)
        for name in names[row]:
            peer.receive(
                frames_of(queue(name, arguments=arguments), QueueBind(name, exchange, b"", True, {}))
            )
        peer.receive(publish(b"", exchange=exchange))
    queues = [world.account.queues.catalog.get(name.decode()) for row in names for name in row]
    assert [queue.depth() for queue in queues] == [1] * (rows * width)
    peer.receive(publish(b"", exchange=b"x0"))
    assert LETTERS_MAX < sum(queue.counters.refused for queue in queues) <= (LETTERS_MAX + 1) * width
    refused = queues[0].counters.refused
    peer.receive(publish(b"q0.0"))
    assert queues[0].counters.refused == refused + 1
    assert sum(queue.counters.refused for queue in queues) > (LETTERS_MAX + 1) * width, "another message"


def test_keys_of_their_own_for_all_messages_of_a_fanout_make_one_route() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(), QueueBind(b"q", b"amq.fanout", b"", False, {}))
    peer.receive(publish(b"one", exchange=b"amq.fanout") + publish(b"two", exchange=b"amq.fanout"))
    routes = [place.route for place in peer.endpoint.places.values()]
    assert len(routes) == 2
    assert routes[0] is routes[1]
    assert ready(world) == 2


def test_a_binding_beyond_what_messages_may_cost_is_refused_told_and_counted() -> None:
    world = AmqpWorld(Limits(amqp_header_conditions_max=3))
    peer = client_with(world, queue())
    peer.say(QueueBind(b"q", b"amq.headers", b"", False, {b"a": 1, b"b": 2}), 1)
    (closed,) = peer.say(QueueBind(b"q", b"amq.headers", b"", False, {b"c": 1}), 1)
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == 406
    assert b"more than 3 values, which amqp.max_header_conditions allows" in closed.reply_text
    assert [line[0] for line in world.observer.lines if line[0] == "limited"] == ["limited"]
    assert world.account.counters.subscribes_limited == 1


# ------------------------------------------------------------------- channels


def test_channels_get_no_more_memory_than_there_is() -> None:
    world = AmqpWorld()
    peer, other = client_with(world), client_with(world)
    world.context.channels = MEMORY_LIMIT // 16 // CHANNEL_BYTES + 100  # as if others had them
    world.use_memory(101)
    peer.receive(b"".join([frames_of(ChannelOpen(), channel=number) for number in range(2, 100)]))
    [close] = [answer for answer in peer.take() if isinstance(answer, ConnectionClose)]
    assert close.reply_code == codes.RESOURCE_ERROR
    assert b"channels there is no room for another" in close.reply_text
    assert not peer.endpoint.channels
    world.use_memory(50)
    assert other.say(ChannelOpen(), 2) == [ChannelOpenOk()]


def test_channels_are_counted_while_they_are_open() -> None:
    world = AmqpWorld()
    first, second = client_with(world), client_with(world)
    second.open_channel(2)
    assert world.context.channels == 3
    second.say(ChannelClose(200, b"", 0, 0), 2)
    assert world.context.channels == 2
    second.endpoint.on_lost(world.now_ns)
    first.say(ConnectionClose(200, b"", 0, 0))
    world.settle_down()
    assert world.context.channels == 0


def test_very_many_channels_are_not_all_looked_at_in_one_turn() -> None:
    world = AmqpWorld(Limits(amqp_consumer_timeout_ms=1000))
    peers = [client_with(world, queue()) for _ in range(12)]
    for peer in peers:
        peer.receive(publish(b"q"))
        peer.say(BasicGet(b"q", False), 1)
        peer.receive(b"".join([frames_of(ChannelOpen(), channel=number) for number in range(2, 2048)]))
    world.now_ns += 2 * NANOSECONDS
    open_after = []
    for _ in range(2):
        world.context.on_tick(world.now_ns)
        world.settle_down()
        open_after.append(sum([1 in peer.endpoint.channels for peer in peers]))
    assert open_after == [12 - CHANNELS_PER_TICK // 2047 - 1, 0]
