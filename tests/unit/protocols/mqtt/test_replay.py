"""Retained messages on their way: a few at a time, as fast as the connection takes them, none lost."""

from __future__ import annotations

import pytest
from fakes import FakeLine, MqttPeer, MqttWorld, World, make_message

from millstream.model.limits import Limits
from millstream.protocols.mqtt.replay import Replay
from millstream.protocols.mqtt.wire.packets import Connect, PubAck, Publish, SubAck, Subscribe, SubscribeEntry
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.routing.subscription import Subscription


def replay_to(world: World, guarantee: int, messages: int) -> tuple[Replay, FakeLine]:
    session, line = world.connect("c")
    subscription = Subscription(session, b"#", b"", guarantee, False, False, 3)
    kept = [make_message(b"t/%d" % number, b"%d" % number, 1, True) for number in range(messages)]
    return Replay(kept, subscription), line


def test_messages_leave_one_by_one_in_order() -> None:
    world = World()
    replay, line = replay_to(world, 0, 3)
    session = world.account.sessions["c"]
    for number in range(3):
        assert replay.send_next(session, line, world.now_ns)
        assert len(line.plain) == number + 1
    assert not replay.send_next(session, line, world.now_ns)
    assert line.plain == [(b"0", True, (3,)), (b"1", True, (3,)), (b"2", True, (3,))]


def test_numbered_ones_go_through_the_session() -> None:
    world = World()
    replay, line = replay_to(world, 2, 2)
    while replay.send_next(world.account.sessions["c"], line, world.now_ns):
        pass
    assert line.payloads() == [b"0", b"1"]
    assert all(one.retain and one.identifiers == (3,) and one.guarantee == 1 for one in line.deliveries)


def client(world: MqttWorld, window: int = 1000) -> MqttPeer:
    properties = Properties()
    properties.receive_maximum = window
    return world.client(Connect(5, "c", properties=properties))


def test_a_large_replay_is_sent_in_slices_and_waits_for_a_connection_that_lags() -> None:
    world = MqttWorld(Limits(unsent_bytes_high=1000))
    for number in range(100):
        world.publish(b"t/%d" % number, bytes(20_000), 0, retain=True)
    peer = client(world)
    peer.endpoint.on_lagging()
    peer.link.unsent = 1000
    first = peer.send(Subscribe(1, [SubscribeEntry(b"t/+", 0)]))
    assert isinstance(first[0], SubAck)
    assert 1 < len(first) < 100
    assert peer.take() == []
    peer.link.unsent = 0
    peer.endpoint.on_caught_up()
    rest = peer.take()
    assert len(first) - 1 + len(rest) == 100
    assert len({packet.topic for packet in [*first, *rest] if isinstance(packet, Publish)}) == 100


def test_live_messages_may_pass_a_replay_but_nothing_is_lost_or_doubled() -> None:
    world = MqttWorld()
    for number in range(50):
        world.publish(b"t/%d" % number, bytes(20_000), 0, retain=True)
    peer = client(world)
    peer.endpoint.receive_data(b"\x82\x09\x00\x01\x00\x00\x03t/+\x00", world.now_ns)
    world.publish(b"t/live", b"live", 0)
    got = [packet for packet in peer.take() if isinstance(packet, Publish)]
    assert len(got) == 51
    assert sum(1 for packet in got if packet.retain) == 50


@pytest.mark.parametrize("overflow", ["backpressure", "pending"])
def test_retained_messages_beyond_the_window_wait_and_are_not_dropped(overflow: str) -> None:
    """They lie safely among the retained ones: no bound of a queue may cost any of them."""
    world = MqttWorld(
        Limits(inflight_overflow=overflow, pending_messages_max=3, offline_messages_max=3, slow_grace_ms=100)
    )
    for number in range(30):
        world.publish(b"t/%d" % number, b"x", 1, retain=True)
    peer = client(world, window=2)
    got = [
        packet
        for packet in peer.send(Subscribe(1, [SubscribeEntry(b"t/+", 1)]))
        if isinstance(packet, Publish)
    ]
    for _ in range(40):
        world.move(0.2)
        for packet in got[-2:]:
            got += [one for one in peer.send(PubAck(packet.packet_id)) if isinstance(one, Publish)]
    assert len({packet.topic for packet in got}) == 30
    assert world.account.counters.dropped_queue_full == 0
