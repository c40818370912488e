"""Who may declare, bind and consume what; and what is taken away when the rules change."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import amqp091_traffic as traffic
from amqp091_declarations import bind, declare, declare_exchange, find, refusal
from amqp091_traffic import client_with, publish
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import FakeOutlet

from millstream.broker.conditions import RIGHTS_REVOKED
from millstream.broker.tasks import STEPS_PER_SLICE
from millstream.model.errors import Reason
from millstream.protocols.amqp091 import declaring
from millstream.protocols.amqp091.rights import TOPIC_QUEUE
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, FieldTable, Timestamp
from millstream.protocols.amqp091.wire.methods import (
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    ChannelClose,
    ExchangeBind,
    ExchangeDelete,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from millstream.queues.definition import WORK, Definition
from millstream.routing.subscription import Subscription
from millstream.security.acl import parse_acl


def rules(*topics: str, deny: str = "") -> object:
    """Anonymous may do everything there."""
    listed: list[object] = [{"allow": "all", "topics": list(topics)}] if topics else []
    if deny:
        listed.append({"deny": "all", "topics": [deny]})
    return {"rules": listed}


def denied(action: Callable[..., object], *arguments: Any, **options: Any) -> str:
    reason, text = refusal(action, *arguments, **options)
    assert reason is Reason.NOT_AUTHORIZED
    return text


def test_a_queue_is_for_who_may_subscribe_to_it() -> None:
    world = AmqpWorld(rules=rules("$queue/mine", "$queue/a%%2Fb"))
    endpoint = world.client().endpoint
    world.account.queues.catalog.declare("theirs", Definition(WORK))
    declare(endpoint, b"mine")
    declare(endpoint, b"a/b")
    text = "configure access to queue '{}' in vhost '/' refused for user 'anonymous'"
    for name in ("theirs", "nothing"):
        for action in (
            partial(declare, endpoint, name.encode()),
            partial(declare, endpoint, name.encode(), passive=True),
            partial(declaring.find_queue, endpoint, name.encode()),
            partial(declaring.begin_purge, endpoint, QueuePurge(name.encode(), False)),
            partial(declaring.delete_queue, endpoint, QueueDelete(name.encode(), False, False, False)),
        ):
            assert denied(action) == text.format(name)
    assert ("denied", endpoint.connection_id, "configure $queue/theirs") in world.observer.lines


def test_a_binding_needs_the_right_to_all_that_it_brings() -> None:
    world = AmqpWorld(rules=rules("$queue/#", "plant/#", "x/a/#", deny="plant/secret/#"))
    endpoint = world.client().endpoint
    declare(endpoint)
    bind(endpoint, b"q", b"amq.topic", b"plant.hall1.#")
    bind(endpoint, b"q", b"amq.topic", b"plant.hall2.*")
    for key in (b"plant.#", b"#", b"plant.*.temperature", b"plant.secret.door", b"office.a", b"#.plant"):
        text = denied(bind, endpoint, b"q", b"amq.topic", key)
        assert text == "read access to exchange 'amq.topic' in vhost '/' refused for user 'anonymous'"
    for key in (b"plant.#", b"#"):
        denied(declaring.make_topic_queue, endpoint, key)
    assert len(world.account.exchanges.bindings_of_queue(find(world))) == 2


def test_an_exchange_is_for_who_may_have_all_of_it() -> None:
    world = AmqpWorld(rules=rules("$queue/#", "x/#", "y/a"))
    endpoint = world.client().endpoint
    declare(endpoint)
    declare_exchange(endpoint)
    declare_exchange(endpoint, b"amq.direct", b"direct")
    for passive in (False, True):
        denied(declare_exchange, endpoint, b"y", passive=passive)
    denied(declaring.delete_exchange, endpoint, ExchangeDelete(b"y", False, False))
    world.account.exchanges.declare("y", "direct", True, False, False, {})
    bind(endpoint, b"q", b"y", b"a")
    denied(bind, endpoint, b"q", b"y", b"b")
    declaring.bind_exchange(endpoint, ExchangeBind(b"x", b"y", b"a", False, {}))
    denied(declaring.bind_exchange, endpoint, ExchangeBind(b"y", b"x", b"a", False, {}))
    world.account.exchanges.declare("z", "fanout", True, False, False, {})
    denied(bind, endpoint, b"q", b"z", b"a")


def test_a_binding_between_exchanges_needs_the_right_to_publish_to_where_it_leads() -> None:
    """Else who may publish to the source could publish to the target by it."""
    listed = [{"allow": "all", "topics": ["mine/#", "amq.direct/#"]}, {"allow": "subscribe", "topics": ["#"]}]
    world = AmqpWorld(rules={"rules": listed})
    endpoint = world.client().endpoint
    declare_exchange(endpoint, b"mine", b"fanout")
    for name in ("theirs", "amq.topic"):
        if name == "theirs":
            world.account.exchanges.declare(name, "direct", True, False, False, {})
        text = denied(declaring.bind_exchange, endpoint, ExchangeBind(name.encode(), b"mine", b"", False, {}))
        assert text == f"write access to exchange '{name}' in vhost '/' refused for user 'anonymous'"
    declaring.bind_exchange(endpoint, ExchangeBind(b"amq.direct", b"mine", b"", False, {}))


def test_an_exclusive_queue_of_another_is_no_secret_only_to_who_may_use_it() -> None:
    world = AmqpWorld(rules=rules("$queue/mine"))
    owner, other = world.client().endpoint, world.client().endpoint
    declare(owner, b"mine", durable=False, exclusive=True)
    assert refusal(declaring.find_queue, other, b"mine")[0] is Reason.LOCKED
    world.authorizer.replace(parse_acl(rules("else")))
    assert refusal(declaring.find_queue, other, b"mine")[0] is Reason.NOT_AUTHORIZED


def test_what_the_broker_will_publish_for_one_needs_the_right_to_publish() -> None:
    world = AmqpWorld(rules=rules("$queue/#", "x/#", "letters/dead", "all/#"))
    endpoint = world.client().endpoint
    dead: FieldTable = {b"x-dead-letter-exchange": b"letters", b"x-dead-letter-routing-key": b"dead"}
    declare(endpoint, arguments=dead)
    dead[b"x-dead-letter-routing-key"] = b"other"
    denied(declare, endpoint, b"p", arguments=dead)
    denied(declare, endpoint, b"p", arguments={b"x-dead-letter-exchange": b"letters"})
    declare(endpoint, b"p", arguments={b"x-dead-letter-exchange": b"all"})
    declare(endpoint, b"r", arguments={b"x-dead-letter-exchange": b""})
    declare_exchange(endpoint, b"x", arguments={b"alternate-exchange": b"all"})
    denied(declare_exchange, endpoint, b"x2", arguments={b"alternate-exchange": b"letters"})


def test_an_alternate_exchange_of_another_type_than_text_is_refused_whatever_it_says() -> None:
    """Stored as text they would name an exchange that no right was asked for."""
    world = AmqpWorld(rules=rules("x/#"))
    endpoint = world.client().endpoint
    world.account.exchanges.declare("12", "fanout", True, False, False, {})
    name = base64.b64encode(b"123").decode()
    world.account.exchanges.declare(name, "fanout", True, False, False, {})
    values: list[tuple[object, str]] = [
        (ByteArray(b"123"), "binary"),
        (Decimal091(0, 12), "decimal"),
        (Timestamp(12), "timestamp"),
        (12, "signedint"),
        ([b"12"], "array"),
        ({b"a": b"12"}, "table"),
        (None, "void"),
        (True, "bool"),
    ]
    for value, word in values:
        reason, text = refusal(
            declare_exchange, endpoint, b"x", arguments=cast("FieldTable", {b"alternate-exchange": value})
        )
        assert reason is Reason.PRECONDITION_FAILED, value
        assert text == f"invalid type '{word}' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    assert world.account.exchanges.find("x") is None


def test_the_right_to_an_alternate_exchange_is_asked_for_the_text_that_is_stored() -> None:
    """Bytes that are no text are stored as their base64."""
    raw = b"a\xfe"
    stored = base64.b64encode(raw).decode()
    world = AmqpWorld(rules=rules("x/#", raw.decode(errors="replace") + "/#"))
    endpoint = world.client().endpoint
    denied(declare_exchange, endpoint, b"x", arguments={b"alternate-exchange": raw})
    world.authorizer.replace(parse_acl(rules("x/#", stored + "/#")))
    declare_exchange(endpoint, b"x", arguments={b"alternate-exchange": raw})
    assert world.account.exchanges.get("x").alternate == stored


def consume(peer: AmqpPeer, queue: bytes) -> None:
    peer.open_channel()
    declare(peer.endpoint, queue)
    peer.say(BasicConsume(queue, b"tag", False, False, False, False, {}), 1)


def test_when_the_rules_change_consumers_lose_what_is_not_theirs_any_more() -> None:
    world = AmqpWorld(rules=rules("#", "$queue/#"))
    told, old, kept = world.client(), world.stranger(), world.client()
    old.log_in(b"ANONYMOUS", b"", {})
    old.open()
    consume(told, b"q")
    consume(old, b"q")
    consume(kept, b"p")
    declare(kept.endpoint, b"own", exclusive=True)
    for key in (b"a.#", b"b.#"):
        bind(kept.endpoint, b"own", b"amq.topic", key)
    declaring.make_topic_queue(kept.endpoint, b"b.*")
    world.authorizer.replace(parse_acl(rules("$queue/p", "b/#")))
    world.context.on_rights_changed()
    world.settle_down()
    assert told.take() == [BasicCancel(b"tag", True)]
    closed = old.take()[0]
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == 403
    assert kept.take() == []
    assert find(world).consumer_count() == 0
    assert find(world, "p").consumer_count() == 1
    bindings = world.account.exchanges.bindings_of_queue(find(world, "own"))
    assert [binding.key for binding in bindings] == [b"b.#"]


def test_when_the_rules_change_very_many_bindings_of_one_connection_are_looked_at_in_slices() -> None:
    world = AmqpWorld(rules=rules("#", "$queue/#"))
    peer = world.client()
    peer.open_channel()
    declare(peer.endpoint, b"own", exclusive=True)
    for number in range(500):
        bind(peer.endpoint, b"own", b"amq.topic", b"a.%d" % number)
        bind(peer.endpoint, b"own", b"amq.topic", b"b.%d" % number)
    world.authorizer.replace(parse_acl(rules("$queue/#", "b/#")))
    world.context.on_rights_changed()
    bindings = world.account.exchanges.bindings_of_queue(find(world, "own"))
    assert 1000 - STEPS_PER_SLICE // 10 <= len(bindings) < 1000
    assert peer.link.waits_for_turn
    world.settle_down()
    assert not peer.link.waits_for_turn
    bindings = world.account.exchanges.bindings_of_queue(find(world, "own"))
    assert [binding.key for binding in bindings] == [b"b.%d" % number for number in range(500)]


def test_when_the_rules_change_very_many_consumers_of_one_connection_are_looked_at_in_slices() -> None:
    world = AmqpWorld(rules=rules("$queue/#"))
    peer = world.client()
    peer.open_channel()
    for name in (b"kept", b"gone"):
        declare(peer.endpoint, name)
        for number in range(200):
            peer.say(BasicConsume(name, b"%s-%d" % (name, number), False, False, False, True, {}), 1)
    world.authorizer.replace(parse_acl(rules("$queue/kept")))
    world.context.on_rights_changed()
    consumers = peer.endpoint.channels[1].consumers
    assert 200 < len(consumers) < 400
    assert peer.link.waits_for_turn
    world.settle_down()
    assert not peer.link.waits_for_turn
    assert list(consumers) == [b"kept-%d" % number for number in range(200)]


def test_no_argument_of_a_client_keeps_a_consumer_whose_right_is_gone() -> None:
    """The broker marks the queues that stand for subscriptions with an argument."""
    world = AmqpWorld(rules=rules("#", "$queue/#"))
    peer = world.client()
    peer.open_channel()
    arguments: FieldTable = {TOPIC_QUEUE.encode(): b"mine"}
    declare(peer.endpoint, b"own", durable=False, exclusive=True, arguments=arguments)
    declare(peer.endpoint, b"lasting", arguments=arguments)
    definition = Definition(WORK)  # as an earlier release has stored it
    definition.bounds_ready = True
    definition.arguments = {TOPIC_QUEUE: "mine"}
    world.account.queues.catalog.declare("old", definition)
    for name in (b"own", b"lasting", b"old"):
        peer.say(BasicConsume(name, name, False, False, False, False, {}), 1)
    world.authorizer.replace(parse_acl(rules("else")))
    world.context.on_rights_changed()
    world.settle_down()
    told = [method.consumer_tag for method in peer.take() if isinstance(method, BasicCancel)]
    assert told == [b"own", b"lasting", b"old"]


def test_a_dead_letter_through_the_default_exchange_needs_the_right_to_the_topic_it_would_reach() -> None:
    """A key that names no queue is a topic there, as in a publish; the right to a queue of that name is enough."""
    world = AmqpWorld(rules=rules("$queue/+", "office/#", deny="$queue/secret"))
    endpoint = world.client().endpoint

    def declare_with(name: bytes, key: bytes) -> None:
        dead: FieldTable = {b"x-dead-letter-exchange": b"", b"x-dead-letter-routing-key": key}
        declare(endpoint, name, arguments=dead)

    for key in (b"", b"$SYS/x", b"secret", b"$queue/secret", b"$queue/a/b"):
        text = denied(declare_with, b"q", key)
        assert text == "write access to exchange 'amq.default' in vhost '/' refused for user 'anonymous'"
    world.authorizer.replace(parse_acl(rules("$queue/q", "office/#")))
    for key in (b"plant/press/stop", b"plant.press.stop", b"later"):
        denied(declare_with, b"q", key)
    assert world.account.queues.catalog.find("q") is None
    declare_with(b"q", b"office/lamp")  # by the right to the topic alone
    world.authorizer.replace(parse_acl(rules("$queue/+", "office/#")))
    for number, key in enumerate((b"later", b"plant.press", b"$queue/other", b"office/lamp", b"office.lamp")):
        declare_with(b"q%d" % number, key)
    denied(declare_with, b"last", b"plant/press/stop")  # no name of a queue that could be made later
    declare(endpoint, b"plant/press/stop")
    declare_with(b"last", b"plant/press/stop")


def test_a_retry_queue_may_be_declared_before_the_queue_it_leads_to() -> None:
    """Until that is there its letters would go to a topic, for which there is no right."""
    world = AmqpWorld(rules=rules("$queue/#"))
    watcher = FakeOutlet()
    world.account.router.subscribe(Subscription(watcher, b"#", b"", 2, False, False, 0))
    peer = client_with(world)
    dead: FieldTable = {
        b"x-dead-letter-exchange": b"",
        b"x-dead-letter-routing-key": b"work",
        b"x-max-length": 1,
    }
    declare(peer.endpoint, b"retry", arguments=dead)
    world.account.on_rights_changed()
    world.settle_down()
    assert world.broker.health.find(RIGHTS_REVOKED) is None
    peer.receive(publish(b"retry", b"first") + publish(b"retry", b"second"))
    assert watcher.messages == []
    assert world.account.counters.dead_letters_denied == 1
    declare(peer.endpoint, b"work")
    peer.receive(publish(b"retry", b"third"))
    assert find(world, "work").ready() == 1
    world.account.queues.catalog.delete(find(world, "work"))
    peer.receive(publish(b"retry", b"fourth"))
    assert watcher.messages == []
    assert world.account.counters.dead_letters_denied == 2


def test_who_was_asked_by_direct_reply_to_may_answer_whatever_the_rules_say() -> None:
    world = AmqpWorld(rules=rules("$queue/#"))
    asker, server = client_with(world), client_with(world)
    asker.say(traffic.consume(b"amq.rabbitmq.reply-to", no_ack=True), 1)
    address = b"amq.rabbitmq.reply-to." + asker.endpoint.channels[1].reply_token
    server.receive(publish(address, b"answer"))
    assert [type(method) for method in asker.take()] == [BasicDeliver]
    server.say(TxSelect(), 1)
    server.receive(publish(address, b"answer"))
    assert server.say(TxCommit(), 1) == [TxCommitOk()]
    assert [type(method) for method in asker.take()] == [BasicDeliver]
    # an address that nobody was given is nobody's, and no way to the topic of that name
    server.receive(publish(address[:-1], b"answer"))
    assert server.take() == asker.take() == []
    assert server.endpoint.channels[1].transaction is not None
