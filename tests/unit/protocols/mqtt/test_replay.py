"""Retained messages on their way: a few at a time, as fast as the connection takes them, none lost."""

from __future__ import annotations

import pytest
from fakes import FakeLine, MqttPeer, MqttWorld, World

from millstream.model.limits import Limits
from millstream.protocols.mqtt.replay import Replay
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties


def replay_to(world: World, guarantee: int, messages: int) -> tuple[Replay, FakeLine]:
    for number in range(messages):
        world.publish(b"t/%d" % number, b"%d" % number, 1, True)
    session, line = world.connect("c")
    world.subscribe(session, b"#", guarantee, identifier=3)
    subscription = session.subscriptions.find(b"#")
    assert subscription is not None
    return Replay(session, subscription), line


def test_messages_leave_one_by_one_in_order() -> None:
    world = World()
    replay, line = replay_to(world, 0, 3)
    for number in range(3):
        assert replay.send_next(line, world.now_ns, 10)
        assert len(line.plain) == number + 1
    assert not replay.send_next(line, world.now_ns, 10)
    assert line.plain == [(b"0", True, (3,)), (b"1", True, (3,)), (b"2", True, (3,))]


def test_numbered_ones_go_through_the_session() -> None:
    world = World()
    replay, line = replay_to(world, 2, 2)
    while replay.send_next(line, world.now_ns, 10):
        pass
    assert line.payloads() == [b"0", b"1"]
    assert all(one.retain and one.identifiers == (3,) and one.guarantee == 1 for one in line.deliveries)


def test_a_replay_that_finds_nothing_takes_no_more_steps_than_it_may() -> None:
    world = World()
    replay, line = replay_to(world, 0, 500)
    session = world.account.sessions["c"]
    world.subscribe(session, b"+/+/nothing")
    subscription = session.subscriptions.find(b"+/+/nothing")
    assert subscription is not None
    replay = Replay(session, subscription)
    slices = 1
    while replay.send_next(line, world.now_ns, 50):
        slices += 1
        assert replay.steps <= 50 * slices
        replay.pause()
    assert slices >= 10
    assert line.plain == []


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


def test_a_replay_that_is_over_asks_for_no_more_turns() -> None:
    world = MqttWorld()
    for number in range(1000):
        world.publish(b"t/%d" % number, b"x", 0, retain=True)
    peer = client(world)
    assert len(peer.send(Subscribe(1, [SubscribeEntry(b"t/+", 0)]))) == 1001
    for _ in range(2):
        world.publish(b"t/live", b"live", 0)
        world.pool.flush()
    assert world.broker.tasks.count() == 0


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


def publishes(packets: list[Packet]) -> list[Publish]:
    return [packet for packet in packets if isinstance(packet, Publish)]


def fill(world: MqttWorld, count: int, size: int = 10) -> None:
    for number in range(count):
        world.publish(b"t/%d" % number, bytes(size), 0, retain=True)


def test_one_filter_a_thousand_times_in_one_packet_is_replayed_once() -> None:
    """Each is answered, the last one counts; there is one place among the retained messages and no copy of them."""
    world = MqttWorld()
    fill(world, 300)
    peer = client(world)
    peer.endpoint.receive_data(encode_packet(Subscribe(1, [SubscribeEntry(b"#", 0)] * 1000), 5), world.now_ns)
    turns = 0
    while world.broker.tasks.count():
        assert world.account.retained.places.count() <= 1
        world.pool.flush()
        world.broker.work_off()
        turns += 1
    got = peer.take()
    answers = [packet for packet in got if isinstance(packet, SubAck)]
    assert [len(packet.reasons) for packet in answers] == [1000]
    assert sorted(packet.topic for packet in publishes(got)) == sorted(b"t/%d" % at for at in range(300))


def test_a_filter_subscribed_again_and_again_waits_at_most_twice() -> None:
    world = MqttWorld()
    fill(world, 100, 20_000)
    peer = client(world)
    peer.endpoint.on_lagging()
    peer.endpoint.is_blocked = True
    peer.send(*[Subscribe(number + 1, [SubscribeEntry(b"#", 0)]) for number in range(50)])
    assert world.account.retained.places.count() <= 1
    peer.endpoint.on_caught_up()
    assert len(publishes(peer.take())) <= 200


def test_a_replay_does_not_bring_an_older_message_behind_a_newer_one() -> None:
    world = MqttWorld()
    fill(world, 50, 20_000)
    peer = client(world)
    peer.endpoint.receive_data(encode_packet(Subscribe(1, [SubscribeEntry(b"t/+", 0)]), 5), world.now_ns)
    world.publish(b"t/49", b"new", 0, retain=True)
    got = publishes(peer.take())
    assert [packet.payload for packet in got if packet.topic == b"t/49"] == [b"new"]
    assert len(got) == 50


def test_a_replay_ends_with_its_subscription() -> None:
    world = MqttWorld()
    fill(world, 50, 20_000)
    peer = client(world)
    peer.endpoint.is_blocked = True
    peer.send(Subscribe(1, [SubscribeEntry(b"t/+", 0), SubscribeEntry(b"t/#", 0)]))
    peer.send(Unsubscribe(2, [b"t/+"]), Unsubscribe(3, [b"t/#"]))
    peer.endpoint.on_caught_up()
    assert publishes(peer.take()) == []


def test_a_replay_that_has_begun_ends_with_its_subscription_and_others_go_on() -> None:
    world = MqttWorld()
    fill(world, 300, 20_000)
    peer = client(world)
    filters = [SubscribeEntry(b"t/+", 0), SubscribeEntry(b"t/7", 0)]
    peer.endpoint.receive_data(encode_packet(Subscribe(1, filters), 5), world.now_ns)
    peer.endpoint.receive_data(encode_packet(Unsubscribe(2, [b"t/+"]), 5), world.now_ns)
    got = peer.take()
    kinds = [type(packet) for packet in got]
    assert [packet.topic for packet in publishes(got[kinds.index(UnsubAck) :])] == [b"t/7"]
    assert 0 < len(publishes(got)) < 100
    assert world.account.retained.places.count() == 0
    assert world.broker.tasks.count() == 0


def test_replays_of_many_connections_share_every_turn() -> None:
    world = MqttWorld()
    fill(world, 5_000)
    peers = [world.client(Connect(5, f"c{number}")) for number in range(20)]
    for peer in peers:
        peer.endpoint.receive_data(encode_packet(Subscribe(1, [SubscribeEntry(b"#", 0)]), 5), world.now_ns)
    world.pool.flush()
    sizes: list[list[int]] = []
    while world.broker.tasks.count():
        before = int(world.account.counters.messages_sent)
        world.broker.work_off()
        world.pool.flush()
        assert int(world.account.counters.messages_sent) - before <= 4_000  # of 100,000
        sizes.append([len(peer.link.data) for peer in peers])
    for before_half in sizes[len(sizes) // 2 :]:
        assert min(before_half) > 0.5 * max(before_half)
    assert all(len(publishes(peer.take())) == 5_000 for peer in peers)


def test_a_lost_connection_leaves_no_place_behind() -> None:
    world = MqttWorld()
    fill(world, 5_000)
    peer = client(world)
    peer.endpoint.receive_data(encode_packet(Subscribe(1, [SubscribeEntry(b"#", 0)]), 5), world.now_ns)
    assert world.account.retained.places.count() == 1
    peer.lose()
    assert world.account.retained.places.count() == 0
    assert world.broker.tasks.count() == 0
