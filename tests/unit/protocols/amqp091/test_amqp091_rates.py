"""How fast a client may make queues, exchanges, bindings and consumers: it is slowed down, never refused."""

from __future__ import annotations

from amqp091_traffic import FullableStore, client_with, consume, frames_of, publish, queue
from amqp091_world import AmqpWorld

from millstream.model.limits import Limits
from millstream.protocols.amqp091.wire.methods import (
    BasicConsumeOk,
    BasicGet,
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)


def exchange(name: bytes, *, passive: bool = False) -> ExchangeDeclare:
    return ExchangeDeclare(name, b"fanout", passive, True, False, False, False, {})


def bind(name: bytes) -> QueueBind:
    return QueueBind(b"q", name, b"", False, {})


def test_a_client_declares_binds_and_consumes_no_faster_than_its_rate() -> None:
    world = AmqpWorld(Limits(subscribe_rate=10.0, subscribe_burst=5))
    peer = client_with(world)
    made = (queue(), exchange(b"x"), exchange(b"y"), ExchangeBind(b"x", b"y", b"", False, {}), bind(b"x"))
    peer.receive(frames_of(*made))
    assert peer.link.paused_ns == []
    peer.receive(frames_of(consume(), bind(b"y")))
    assert peer.link.paused_ns == [200_000_000]
    assert world.account.counters.rate_pauses == 1
    assert [type(answer) for answer in peer.take()[-2:]] == [BasicConsumeOk, QueueBindOk]


def test_the_slower_of_its_rates_holds_a_client_back() -> None:
    world = AmqpWorld(Limits(subscribe_rate=10.0, subscribe_burst=1, message_rate=1.0, message_burst=1))
    peer = client_with(world)
    peer.receive(frames_of(queue(), bind(b"amq.fanout")) + publish(b"q") * 3)
    assert peer.link.paused_ns == [2_000_000_000]
    assert world.account.counters.rate_pauses == 1


def test_work_that_waits_for_the_store_counts_when_it_is_done() -> None:
    store = FullableStore()
    world = AmqpWorld(Limits(subscribe_rate=10.0, subscribe_burst=1), store=store)
    peer = client_with(world, queue())
    store.is_full = True
    peer.receive(publish(b"q") + frames_of(bind(b"amq.fanout"), bind(b"amq.direct")))
    assert peer.link.paused_ns == []
    store.is_full = False
    world.broker.on_durable()
    world.settle_down()
    assert peer.link.paused_ns == [200_000_000]


def test_looking_fetching_and_removing_take_no_part_of_that_rate() -> None:
    world = AmqpWorld(Limits(subscribe_rate=10.0, subscribe_burst=1))
    peer = client_with(world, queue())
    peer.link.paused_ns.clear()
    looks = (
        QueueDeclare(b"q", True, True, False, False, False, {}),
        exchange(b"amq.fanout", passive=True),
        BasicGet(b"q", True),
        QueueUnbind(b"q", b"amq.fanout", b"", {}),
        QueuePurge(b"q", False),
        QueueDelete(b"other", False, False, False),
    )
    peer.receive(frames_of(*looks) * 3)
    assert peer.link.paused_ns == []
    peer.receive(frames_of(queue()))
    assert peer.link.paused_ns == [100_000_000]
