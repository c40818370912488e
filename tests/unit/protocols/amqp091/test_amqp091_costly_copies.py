"""Messages with many routing keys in CC and BCC: what finding their receivers costs is bounded, however many keys they name."""

from __future__ import annotations

import pytest
from amqp091_traffic import client_with, frames_of, publish, queue, ready
from amqp091_world import AmqpPeer, AmqpWorld

from millstream.broker.conditions import LIMIT_REACHED
from millstream.protocols.amqp091.transaction import ROUTING_STEPS_MAX
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import BasicGet, BasicNack, ChannelClose, TxCommit, TxSelect
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.queues.definition import WORK, Definition
from millstream.queues.x_death import KEYS_MAX
from millstream.routing.exchanges import COPIES_STEPS_MAX, KEYS_PER_STEP

HEADERS = b"amq.headers"


class CopiesWorld(AmqpWorld):
    """What is published to `amq.headers` is compared with 14,000 values, which takes about a millisecond, and comes to `all`."""

    def __init__(self) -> None:
        super().__init__()
        declare = self.account.queues.catalog.declare
        self.all = declare("all", Definition(WORK))
        access = self.account.exchanges
        access.bind_queue(self.all, "amq.headers", b"", {})
        for number in range(700):
            access.bind_queue(self.all, "amq.headers", b"", {f"k{at}": number for at in range(20)})
        self.peer = client_with(self, queue(arguments={b"x-dead-letter-exchange": HEADERS}))

    def steps(self) -> int:
        return int(self.account.exchanges.routing_steps())

    def cost_of(self, data: bytes, peer: AmqpPeer | None = None) -> int:
        before = self.steps()
        (peer or self.peer).receive(data)
        return self.steps() - before


@pytest.fixture
def world() -> CopiesWorld:
    return CopiesWorld()


def copies(count: int, word: bytes = b"CC", form: bytes = b"k%d") -> BasicProperties:
    return BasicProperties(headers={word: [form % number for number in range(count)]})


@pytest.mark.parametrize("word", [b"CC", b"BCC"])
def test_further_keys_cost_next_to_nothing_where_no_exchange_looks_at_them(
    world: CopiesWorld, word: bytes
) -> None:
    alone = world.cost_of(publish(b"k", exchange=HEADERS))
    with_copies = world.cost_of(publish(b"k", exchange=HEADERS, properties=copies(KEYS_MAX, word)))
    assert with_copies <= 2 * alone + KEYS_MAX // KEYS_PER_STEP  # but the right to each is asked
    assert ready(world, "all") == 2


def test_a_message_is_refused_if_finding_where_its_keys_lead_takes_too_long(world: CopiesWorld) -> None:
    world.account.exchanges.bind_exchange("amq.topic", "amq.headers", b"", {})  # there each key is a topic
    alone = world.cost_of(publish(b"k", exchange=HEADERS))
    world.peer.receive(publish(b"k", exchange=HEADERS, properties=copies(4)))
    assert ready(world, "all") == 2
    answers = world.peer.take()
    assert answers == []
    cost = world.cost_of(publish(b"k", exchange=HEADERS, properties=copies(KEYS_MAX)))
    assert cost <= COPIES_STEPS_MAX + 2 * alone
    [closed] = world.peer.take()
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == codes.PRECONDITION_FAILED
    assert closed.reply_text.endswith(b"keys take too long to find; name fewer in CC and BCC")
    assert ready(world, "all") == 2


def test_keys_that_all_lead_to_very_many_are_left_before_they_hold_everybody_up() -> None:
    world = AmqpWorld()
    access = world.account.exchanges
    access.declare("wide", "topic", True, False, False, {}, None)
    for number in range(600):
        bound = world.account.queues.catalog.declare(f"q{number}", Definition(WORK))
        access.bind_queue(bound, "wide", b"#", {})
    peer = client_with(world)
    before = int(access.routing_steps())
    peer.receive(publish(b"k", exchange=b"wide", properties=copies(KEYS_MAX)))
    assert COPIES_STEPS_MAX < int(access.routing_steps()) - before < COPIES_STEPS_MAX * 5 // 4
    [closed] = peer.take()
    assert isinstance(closed, ChannelClose)
    assert all(not ready(world, f"q{number}") for number in range(600))


def test_known_routes_of_many_keys_to_very_many_are_not_put_together_either() -> None:
    world = AmqpWorld()
    access = world.account.exchanges
    for number in range(600):
        bound = world.account.queues.catalog.declare(f"q{number}", Definition(WORK))
        access.bind_queue(bound, "amq.topic", b"#", {})
    peer = client_with(world)
    for number in range(KEYS_MAX):
        key = b"k%d" % number
        access.find_route("amq.topic", key, key, None, "anonymous")
    before = int(access.routing_steps())
    peer.receive(publish(b"k0", exchange=b"amq.topic", properties=copies(KEYS_MAX)))
    assert int(access.routing_steps()) - before < COPIES_STEPS_MAX
    [closed] = peer.take()
    assert isinstance(closed, ChannelClose)
    assert all(not ready(world, f"q{number}") for number in range(600))


def test_a_dead_letter_goes_by_as_many_of_its_keys_as_there_is_time_for(world: CopiesWorld) -> None:
    world.account.exchanges.bind_exchange("amq.topic", "amq.headers", b"", {})
    alone = world.cost_of(publish(b"k", exchange=HEADERS))
    world.peer.receive(publish(b"q", properties=copies(KEYS_MAX)))
    cost = world.cost_of(frames_of(BasicGet(b"q", False), BasicNack(0, True, False)))
    assert cost <= COPIES_STEPS_MAX + 2 * alone
    assert ready(world, "all") == 2
    [told] = [each for each in world.broker.health.active() if each.condition is LIMIT_REACHED]
    assert told.cause.startswith(f"a dead letter with {KEYS_MAX + 1} keys in CC takes too long to route")


def test_a_transaction_whose_messages_have_too_many_keys_to_ask_the_rights_of_is_refused() -> None:
    """Also where no exchange looks at them."""
    world = AmqpWorld()
    peer = client_with(world, queue())
    peer.say(TxSelect(), 1)
    count = ROUTING_STEPS_MAX // (KEYS_MAX // KEYS_PER_STEP)
    for messages, is_taken in ((count // 2, True), (count + 2, False)):
        peer.receive(publish(b"k", exchange=b"amq.fanout", properties=copies(KEYS_MAX)) * messages)
        [answer] = peer.say(TxCommit(), 1)
        assert isinstance(answer, ChannelClose) != is_taken
    assert answer.reply_text.endswith(b"messages take too long to find; commit more often")
