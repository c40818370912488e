"""A publish to very many receivers goes in slices; nothing overtakes it, and it is answered behind the last of them."""

from __future__ import annotations

import pytest
from amqp091_traffic import client_with, publish
from amqp091_world import AmqpWorld
from fakes import FakeLine, MqttPeer, MqttWorld, World

from millstream.broker.fan_out import RECEIVERS_AT_ONCE, RECEIVERS_PER_STEP
from millstream.broker.line import Ending
from millstream.broker.tasks import STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.model.limits import NEVER_EXPIRES
from millstream.protocols.amqp091.wire.methods import BasicAck, ConfirmSelect
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, Packet, PingReq, PingResp, PubAck, Publish, PubRec
from millstream.queues.definition import WORK, Definition

MANY = 3 * STEPS_PER_SLICE * RECEIVERS_PER_STEP
PER_SLICE = (STEPS_PER_SLICE + 250) * RECEIVERS_PER_STEP


def receivers(world: World, count: int = MANY, expiry_s: int = NEVER_EXPIRES) -> list[FakeLine]:
    lines: list[FakeLine] = []
    for number in range(count):
        session, line = world.connect(f"r{number}", expiry_s=expiry_s)
        world.subscribe(session, b"t")
        lines.append(line)
    return lines


def read(peer: MqttPeer, *packets: Packet) -> None:
    """In one read, and no turn after it."""
    peer.endpoint.receive_data(b"".join([encode_packet(packet, 5) for packet in packets]), peer.world.now_ns)


def payloads(line: FakeLine) -> list[bytes]:
    found = [payload for _, payload, _ in line.sent] + [payload for payload, _, _ in line.plain]
    for run in line.runs:
        found += [message.payload for message in run.messages()]
    return found


def reached(lines: list[FakeLine]) -> int:
    return sum(bool(payloads(line)) for line in lines)


def kinds(packets: list[Packet]) -> list[type[Packet]]:
    return [type(packet) for packet in packets]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_publish_to_very_many_goes_in_slices_and_nothing_overtakes_it(qos: int) -> None:
    world = MqttWorld()
    lines = receivers(world)
    peer = world.client(Connect(5, "publisher"))
    first, second = (
        Publish(b"t", payload, qos, packet_id=number * qos) for number, payload in ((1, b"1"), (2, b"2"))
    )
    read(peer, first, PingReq(), second)
    assert 0 < reached(lines) <= PER_SLICE
    assert peer.link.waits_for_turn
    assert peer.link.data == b""
    while reached(lines) < MANY:
        before = reached(lines)
        world.broker.tasks.work_off()
        assert 0 < reached(lines) - before <= (STEPS_PER_TURN + STEPS_PER_SLICE) * RECEIVERS_PER_STEP
    answers = kinds(peer.take())
    assert answers == ([PubAck, PingResp, PubAck] if qos else [PingResp])
    assert not peer.link.waits_for_turn
    assert [payloads(line) for line in lines] == [[b"1", b"2"]] * MANY


def test_messages_that_a_queue_takes_too_go_to_very_many_one_after_the_other() -> None:
    world = MqttWorld()
    lines = receivers(world, RECEIVERS_AT_ONCE + 1)
    catalog = world.account.queues.catalog
    bound = catalog.declare("q", Definition(WORK))
    catalog.bind(bound, "t")
    peer = world.client(Connect(5, "publisher"))
    read(peer, *[Publish(b"t", b"%d" % number) for number in range(5)])
    assert bound.next < 5
    assert peer.link.waits_for_turn
    world.settle_down()
    assert bound.next == 5
    assert [payloads(line) for line in lines] == [[b"0", b"1", b"2", b"3", b"4"]] * len(lines)


def test_a_publisher_that_is_ended_meanwhile_has_published_to_all() -> None:
    world = MqttWorld()
    lines = receivers(world)
    peer = world.client(Connect(5, "publisher"))
    read(peer, Publish(b"t", b"x", 1, packet_id=1))
    assert reached(lines) < MANY
    peer.endpoint.end(Ending.ADMINISTRATIVE)
    world.settle_down()
    assert [payloads(line) for line in lines] == [[b"x"]] * MANY


def test_exactly_once_is_not_cut() -> None:
    world = MqttWorld()
    lines = receivers(world)
    peer = world.client(Connect(5, "publisher"))
    read(peer, Publish(b"t", b"x", 2, packet_id=1))
    assert reached(lines) == MANY
    assert kinds(peer.take()) == [PubRec]


def test_exactly_once_to_very_many_is_not_begun_when_the_time_of_the_turn_is_spent() -> None:
    """As it cannot be cut, those of many publishers at once would keep everybody waiting for all of them."""
    world = MqttWorld()
    lines = receivers(world, RECEIVERS_AT_ONCE + 1)
    peer = world.client(Connect(5, "publisher"))
    world.broker.tasks.spend(STEPS_PER_TURN)
    read(peer, Publish(b"t", b"1", 2, packet_id=1), PingReq(), Publish(b"t", b"2", 2, packet_id=2))
    assert reached(lines) == 0
    assert peer.link.waits_for_turn
    assert kinds(peer.take()) == [PubRec, PingResp, PubRec]
    assert [payloads(line) for line in lines] == [[b"1", b"2"]] * len(lines)
    assert world.account.counters.messages_received == 2


def test_exactly_once_to_few_does_not_wait_for_a_turn() -> None:
    world = MqttWorld()
    lines = receivers(world, 10)
    peer = world.client(Connect(5, "publisher"))
    world.broker.tasks.spend(STEPS_PER_TURN)
    read(peer, Publish(b"t", b"1", 2, packet_id=1))
    assert reached(lines) == 10


def test_many_small_publishes_to_some_hundred_receivers_are_cut_between_them() -> None:
    world = MqttWorld()
    lines = receivers(world, 500)
    peer = world.client(Connect(5, "publisher"))
    read(peer, *[Publish(b"t", b"%d" % number, 1, packet_id=number) for number in range(1, 101)])
    assert 0 < len(payloads(lines[0])) <= 1 + STEPS_PER_SLICE * RECEIVERS_PER_STEP // 500
    assert kinds(peer.take()) == [PubAck] * 100
    assert payloads(lines[-1]) == [b"%d" % number for number in range(1, 101)]


def test_an_amqp_publish_to_very_many_goes_in_slices_and_is_confirmed_behind_them() -> None:
    world = AmqpWorld()
    lines = receivers(world)
    peer = client_with(world, ConfirmSelect(False))
    peer.endpoint.receive_data(
        publish(b"t", b"1", b"amq.topic") + publish(b"t", b"2", b"amq.topic"), world.now_ns
    )
    assert 0 < reached(lines) <= PER_SLICE
    assert peer.link.waits_for_turn
    assert peer.take() == []
    world.settle_down()
    acks = [answer for answer in peer.take() if isinstance(answer, BasicAck)]
    assert acks[-1].delivery_tag == 2
    assert [payloads(line) for line in lines] == [[b"1", b"2"]] * MANY
