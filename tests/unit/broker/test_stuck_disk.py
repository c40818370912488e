"""Nobody waits in the dark for a disk that takes nothing."""

from __future__ import annotations

from fakes import HeldStore, MqttWorld

from millstream.model.errors import Reason
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.properties import Properties


class StuckStore(HeldStore):
    """A store whose disk takes nothing while `stuck` says so, or is only behind while `behind` does."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = False
        self.behind = False

    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE if self.stuck or self.behind else Reason.SUCCESS

    def is_stuck(self) -> bool:
        return self.stuck


def lasting(name: str) -> Connect:
    properties = Properties()
    properties.session_expiry_interval = 100
    return Connect(5, name, properties=properties)


def make_world() -> tuple[MqttWorld, StuckStore]:
    store = StuckStore()
    return MqttWorld(store=store), store


def test_who_waits_for_a_confirm_is_sent_away_within_a_second() -> None:
    world, store = make_world()
    peer = world.client(lasting("publisher"))
    store.hold()
    assert peer.send(Publish(b"$queue/q", b"x", 1, packet_id=1)) == []
    store.stuck = True
    world.move(0.05)
    assert peer.take() == []
    world.move(0.25)
    [farewell] = peer.take()
    assert isinstance(farewell, Disconnect)
    assert farewell.reason == code.SERVER_BUSY
    assert peer.link.is_closed


def test_a_disk_that_is_only_behind_sends_nobody_away() -> None:
    world, store = make_world()
    peer = world.client(lasting("publisher"))
    store.hold()
    peer.send(Publish(b"$queue/q", b"x", 1, packet_id=1))
    store.behind = True
    for _ in range(3):  # the first tick only notices
        world.move(5)
    assert peer.take() == []
    store.release()
    world.broker.on_durable()
    assert [type(packet) for packet in peer.take()] == [PubAck]


def test_a_refusal_does_not_wait_for_the_disk_it_tells_about() -> None:
    world, store = make_world()
    other = world.client(lasting("other"))
    peer = world.client(lasting("publisher"))
    store.hold()
    other.send(Publish(b"$queue/q", b"x", 1, packet_id=1))
    store.stuck = True
    [answer] = peer.send(Publish(b"$queue/q", b"y", 1, packet_id=7))
    assert isinstance(answer, PubAck)
    assert (answer.packet_id, answer.reason) == (7, code.QUOTA_EXCEEDED)


def test_a_reader_whose_session_does_not_last_can_come_while_the_disk_is_stuck() -> None:
    world, store = make_world()
    other = world.client(lasting("other"))
    store.hold()
    other.send(Publish(b"$queue/q", b"x", 1, packet_id=1))
    store.stuck = True
    reader = world.client(Connect(5, "reader"))
    [answer] = reader.send(Subscribe(1, [SubscribeEntry(b"news/#", 0)]))
    assert isinstance(answer, SubAck)
    other_reader = world.client(lasting("reader that lasts"))
    assert other_reader.send(Subscribe(1, [SubscribeEntry(b"news/#", 0)])) == []
