"""A queue that grows although it is served slows who publishes into it, with every QoS, by name and by a bound topic."""

from __future__ import annotations

import pytest
from fakes import MqttWorld
from queue_world import AutoConsumer

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.packets import Connect, Disconnect, Packet, Publish
from millstream.queues.definition import make_definition

MOST = 100


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", [b"$queue/q", b"plant/press"])
def test_a_publisher_is_not_read_until_the_queue_has_shrunk(qos: int, topic: bytes) -> None:
    world = MqttWorld(Limits(queue_backlog_max=MOST))
    queue = world.account.queues.catalog.declare("q", make_definition({"bindings": ["plant/#"]}))
    consumer = AutoConsumer()
    queue.get_group("g", b"").join(consumer)
    world.settle_down()
    peer = world.client(Connect(5, "publisher", True, 0))
    packets: list[Packet] = []
    for number in range(2 * MOST):
        packets.append(Publish(topic, b"x", qos, packet_id=number + 1 if qos else 0))
    peer.send(*packets)
    assert peer.link.is_paused
    consumer.room = 2 * MOST
    queue.reschedule()
    world.settle_down()
    assert not peer.link.is_paused


@pytest.mark.parametrize("qos", [0, 1])
def test_a_publisher_that_leaves_in_the_read_that_filled_the_queue_is_not_kept(qos: int) -> None:
    world = MqttWorld(Limits(queue_backlog_max=MOST))
    queue = world.account.queues.catalog.declare("q", make_definition({"bindings": ["plant/#"]}))
    queue.get_group("g", b"").join(AutoConsumer())
    world.settle_down()
    peer = world.client(Connect(5, "publisher", True, 0))
    packets: list[Packet] = [
        Publish(b"plant/press", b"x", qos, packet_id=number + 1 if qos else 0) for number in range(2 * MOST)
    ]
    peer.send(*packets, Disconnect(0))
    assert peer.link.is_closed
    assert not world.broker.pressure.is_waiting(peer.endpoint)
