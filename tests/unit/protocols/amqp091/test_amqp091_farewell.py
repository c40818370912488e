"""How a connection ends: a client that has closed has time to go, and nobody waits for it for ever."""

from __future__ import annotations

from amqp091_traffic import client_with, publish, queue, ready
from amqp091_world import AmqpPeer, AmqpWorld

from millstream.broker.line import Ending
from millstream.protocols.amqp091.endpoint import LINGER_NS
from millstream.protocols.amqp091.wire.methods import ConnectionClose, ConnectionCloseOk

CLOSE = ConnectionClose(200, b"done", 0, 0)


def connect() -> tuple[AmqpWorld, AmqpPeer]:
    world = AmqpWorld()
    return world, client_with(world, queue())


def test_what_comes_behind_the_close_of_a_client_is_for_nobody() -> None:
    world, peer = connect()
    assert peer.say(CLOSE) == [ConnectionCloseOk()]
    peer.receive(publish(b"q"))
    assert peer.say(CLOSE) == []
    assert ready(world) == 0
    assert not peer.link.is_closed


def test_a_client_that_has_closed_and_stays_is_let_go() -> None:
    world, peer = connect()
    peer.say(CLOSE)
    due = world.now_ns + LINGER_NS
    assert peer.endpoint.next_deadline() == due
    peer.endpoint.on_deadline(due - 1)
    assert not peer.link.is_closed
    peer.endpoint.on_deadline(due)
    assert peer.link.is_closed


def test_a_client_that_answers_our_close_is_let_go_at_once() -> None:
    world, peer = connect()
    peer.endpoint.end(Ending.NOT_AUTHORIZED)
    world.settle_down()
    assert not peer.link.is_closed
    peer.say(ConnectionCloseOk())
    assert peer.link.is_closed
