"""What takes more than a slice of a turn: carried out bit by bit, in order, while others are served."""

from __future__ import annotations

import pytest
from fakes import MqttPeer, MqttWorld

from millstream.broker.tasks import STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.model.limits import Limits
from millstream.protocols.mqtt.backlog import Job
from millstream.protocols.mqtt.endpoint import MqttEndpoint
from millstream.protocols.mqtt.subscribing import STEPS_PER_FILTER
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
    Will,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.queues.definition import WORK, Definition

FILTERS_PER_SLICE = STEPS_PER_SLICE // STEPS_PER_FILTER + 1


def read(peer: MqttPeer, *packets: Packet) -> None:
    """Hand packets over as one read, without a turn after it."""
    peer.endpoint.receive_data(b"".join([encode_packet(packet, 5) for packet in packets]), peer.world.now_ns)


def wide(packet_id: int, count: int, start: int = 0) -> Subscribe:
    return Subscribe(packet_id, [SubscribeEntry(b"f/%d/+" % (start + number), 0) for number in range(count)])


def held(peer: MqttPeer) -> int:
    session = peer.endpoint.session
    assert session is not None
    return int(session.subscriptions.count())


def kinds(packets: list[Packet]) -> list[str]:
    return [type(packet).__name__ for packet in packets]


def test_a_large_subscribe_is_carried_out_in_slices_and_answered_once() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    read(peer, wide(7, 1000))
    assert 0 < held(peer) <= FILTERS_PER_SLICE
    assert peer.link.waits_for_turn
    turns = 0
    while held(peer) < 1000:
        before = held(peer)
        world.broker.work_off()
        turns += 1
        assert 0 < held(peer) - before <= STEPS_PER_TURN // STEPS_PER_FILTER + 8
    world.broker.work_off()
    assert not peer.link.waits_for_turn
    answers = peer.take()
    assert kinds(answers) == ["SubAck"]
    assert isinstance(answers[0], SubAck)
    assert answers[0].reasons == [0] * 1000


def test_small_subscribes_of_one_read_are_bounded_together() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    read(peer, *[wide(number + 1, 1, number) for number in range(2000)])
    assert 0 < held(peer) <= FILTERS_PER_SLICE
    got = peer.take()
    assert held(peer) == 2000
    assert [packet.packet_id for packet in got if isinstance(packet, SubAck)] == list(range(1, 2001))


def test_what_comes_behind_a_large_subscribe_waits_for_it_and_keeps_its_order() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    read(peer, wide(1, 500), Publish(b"f/3/x", b"own", 1, packet_id=9), PingReq())
    read(peer, Unsubscribe(2, [b"f/%d/+" % number for number in range(500)]), PingReq())
    assert peer.link.data == b""
    got = peer.take()
    assert kinds(got) == ["SubAck", "Publish", "PubAck", "PingResp", "UnsubAck", "PingResp"]
    assert held(peer) == 0


def test_others_are_served_between_the_slices() -> None:
    world = MqttWorld()
    reader = world.client(Connect(5, "reader"))
    reader.send(Subscribe(1, [SubscribeEntry(b"news", 0)]))
    writer = world.client(Connect(5, "writer"))
    peer = world.client(Connect(5, "c"))
    read(peer, *[wide(number + 1, 1000, 1000 * number) for number in range(8)])
    world.broker.work_off()
    assert held(peer) < 8000
    read(writer, Publish(b"news", b"1"), PingReq())
    world.pool.flush()
    assert writer.link.data
    assert reader.link.data
    assert held(peer) < 8000


def test_a_large_unsubscribe_is_carried_out_in_slices() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    peer.send(wide(1, 1000))
    read(peer, Unsubscribe(2, [b"f/%d/+" % number for number in range(1000)]))
    assert 0 < held(peer) < 1000
    got = peer.take()
    assert kinds(got) == ["UnsubAck"]
    assert isinstance(got[0], UnsubAck)
    assert got[0].reasons == [0] * 1000
    assert held(peer) == 0


def test_a_small_subscribe_is_answered_on_the_spot() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    read(peer, wide(1, 20))
    assert held(peer) == 20
    assert not peer.link.waits_for_turn
    assert world.broker.tasks.count() == 0


def lasting() -> Properties:
    """Of a session that outlives its connection."""
    properties = Properties()
    properties.session_expiry_interval = 100
    return properties


def reader_and_client_with_a_will(world: MqttWorld) -> tuple[MqttPeer, MqttPeer]:
    reader = world.client(Connect(5, "reader"))
    reader.send(Subscribe(1, [SubscribeEntry(b"#", 1)]))
    return reader, world.client(Connect(5, "c", properties=lasting(), will=Will(b"will", b"gone")))


def test_a_client_that_leaves_is_heard_to_the_end() -> None:
    """Lost right behind its packets: they count as if they had been acted on at once, and DISCONNECT takes the will back."""
    world = MqttWorld()
    reader, peer = reader_and_client_with_a_will(world)
    read(peer, wide(1, 900), Publish(b"last", b"words", 1, packet_id=2), Disconnect())
    peer.lose()
    world.settle_down()
    assert [packet.topic for packet in reader.take() if isinstance(packet, Publish)] == [b"last"]
    session = world.account.sessions["c"]
    assert session.line is None
    assert session.subscriptions.count() == 900


def test_a_takeover_does_not_wait_for_what_the_older_connection_had_sent() -> None:
    world = MqttWorld()
    older = world.client(Connect(5, "c", properties=lasting()))
    read(older, wide(1, 900), Publish(b"f/1/x", b"late"))
    newer = world.client(Connect(5, "c", clean_start=False, properties=lasting()))
    assert older.link.is_closed
    assert world.broker.tasks.count() == 0
    assert 0 < held(newer) < 900
    assert isinstance(newer.send(PingReq())[0], PingResp)


@pytest.mark.parametrize(
    ("reason", "wills"), [(code.NORMAL_DISCONNECTION, []), (code.DISCONNECT_WITH_WILL, [b"will"])]
)
def test_a_takeover_knows_how_the_older_connection_had_ended(reason: int, wills: list[bytes]) -> None:
    """Its DISCONNECT waits behind a SUBSCRIBE of many slices."""
    world = MqttWorld()
    reader, older = reader_and_client_with_a_will(world)
    read(older, wide(1, 900), Disconnect(reason))
    older.lose()
    world.client(Connect(5, "c", clean_start=False, properties=lasting()))
    assert [packet.topic for packet in reader.take() if isinstance(packet, Publish)] == wills
    assert older.link.is_closed
    assert world.broker.tasks.count() == 0


def test_publishing_to_ever_new_topics_is_bounded_per_read() -> None:
    world = MqttWorld()
    reader = world.client(Connect(5, "reader"))
    reader.send(Subscribe(1, [SubscribeEntry(b"#", 0)]))
    writer = world.client(Connect(5, "writer"))
    read(writer, *[Publish(b"new/%d" % number, b"x") for number in range(5000)], PingReq())
    assert writer.link.waits_for_turn
    assert int(world.account.counters.messages_received) <= STEPS_PER_SLICE
    got = [packet.topic for packet in reader.take() if isinstance(packet, Publish)]
    assert got == [b"new/%d" % number for number in range(5000)]
    assert not writer.link.waits_for_turn


def test_topics_that_are_costly_to_route_through_exchanges_are_published_to_over_several_turns() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    access = world.account.exchanges
    queue = world.account.queues.catalog.declare("q", Definition(WORK))
    access.bind_exchange("amq.headers", "amq.topic", b"#", {})
    for number in range(700):
        access.bind_queue(queue, "amq.headers", b"", {f"k{at}": number for at in range(20)})
    counters = world.account.counters
    read(peer, *[Publish(b"new/%d" % number, b"") for number in range(10)])
    assert counters.messages_received == 1  # 14,700 comparisons, which is more than a slice
    assert peer.link.waits_for_turn
    while world.broker.tasks.count():
        before = int(counters.messages_received)
        world.broker.tasks.work_off()
        assert counters.messages_received - before <= 1 + STEPS_PER_TURN // STEPS_PER_SLICE
    assert counters.messages_received == 10


def test_publishing_to_known_topics_is_not() -> None:
    world = MqttWorld(Limits(receive_maximum=6000))
    writer = world.client(Connect(5, "writer"))
    packets = [Publish(b"known/%d" % (number % 10), b"x", 1, packet_id=number + 1) for number in range(5000)]
    writer.send(*packets[:10])
    read(writer, *packets)
    assert not writer.link.waits_for_turn
    assert len([packet for packet in writer.take() if isinstance(packet, PubAck)]) == 5000


class BrokenJob(Job):
    """Our own bug, met in the second slice."""

    def __init__(self, endpoint: MqttEndpoint) -> None:
        self._endpoint = endpoint
        self._slices = 0

    def run(self) -> bool:
        self._slices += 1
        self._endpoint.backlog.spend(2 * STEPS_PER_SLICE)
        if self._slices == 2:
            raise ZeroDivisionError
        return True


def test_a_job_that_fails_ends_its_connection_and_waits_for_nothing_more() -> None:
    world = MqttWorld()
    reader = world.client(Connect(5, "reader"))
    reader.send(Subscribe(1, [SubscribeEntry(b"#", 0)]))
    peer = world.client(Connect(5, "c", will=Will(b"will", b"gone")))
    peer.link.expects_faults = True
    peer.endpoint.backlog.start(BrokenJob(peer.endpoint))
    peer.endpoint.backlog.end()
    read(peer, Publish(b"behind", b"it"))
    world.broker.work_off()
    assert [type(fault) for fault in peer.link.faults] == [ZeroDivisionError]
    assert not peer.endpoint.backlog.is_waiting()
    peer.lose()  # as the transport does when its link is aborted
    assert "c" not in world.account.sessions
    assert world.broker.tasks.count() == 0
    assert [packet.topic for packet in reader.take() if isinstance(packet, Publish)] == [b"will"]
