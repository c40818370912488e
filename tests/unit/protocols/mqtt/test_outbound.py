"""What goes to the peer: within its size, with its aliases, in its version."""

from __future__ import annotations

import pytest
from fakes import SIZE_MAX, START_NS, FakeLine, ManualWakeup

from millstream.model.message import NANOSECONDS, Message
from millstream.model.outbox import LARGE, Outbox, OutboxPool
from millstream.protocols.mqtt.machine.outbound import DUP, RETAIN, Outbound
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.packets import Publish


class Peer:
    def __init__(self, version: int) -> None:
        self.outbox = Outbox(OutboxPool(ManualWakeup()), FakeLine())
        self.outbound = Outbound(self.outbox)
        self.outbound.version = version
        self.version = version

    def send(
        self,
        message: Message,
        qos: int = 0,
        packet_id: int = 0,
        flags: int = 0,
        identifiers: tuple[int, ...] = (),
    ) -> bool:
        return self.outbound.send_publish(message, qos, packet_id, flags, identifiers, START_NS)

    def take(self) -> list[Publish]:
        data = self.outbox.take_all()
        found = []
        position = 0
        while position < len(data):
            packet, position = decode_frame(data, position, self.version, SIZE_MAX)
            assert isinstance(packet, Publish)
            found.append(packet)
        return found


def make_message(topic: bytes = b"a/b", payload: bytes = b"p", expiry_s: int = 0) -> Message:
    expires_ns = START_NS + expiry_s * NANOSECONDS if expiry_s else 0
    return Message(topic, payload, 2, False, b"", expires_ns, "")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("size", [1, 200, LARGE - 1, LARGE, 100_000])
def test_ids_and_flags_are_patched_into_copies_of_one_frame(version: int, size: int) -> None:
    peer = Peer(version)
    payload = bytes(size)
    message = make_message(payload=payload)
    assert peer.send(message, 1, 0x1234)
    assert peer.send(message, 2, 65_535, DUP)
    assert peer.send(message, 1, 7, DUP | RETAIN)
    assert peer.send(message, 0, 0, RETAIN)
    assert peer.send(message)
    assert peer.take() == [
        Publish(b"a/b", payload, 1, packet_id=0x1234),
        Publish(b"a/b", payload, 2, dup=True, packet_id=65_535),
        Publish(b"a/b", payload, 1, True, True, 7),
        Publish(b"a/b", payload, 0, True),
        Publish(b"a/b", payload),
    ]


def test_identifiers_and_expiry_are_told_to_each_receiver_apart() -> None:
    peer = Peer(5)
    message = make_message(expiry_s=9)
    peer.send(message, identifiers=(1, 2))
    peer.send(message)
    first, second = [packet.properties for packet in peer.take()]
    assert first is not None
    assert second is not None
    assert (first.subscription_identifiers, first.message_expiry_interval) == ([1, 2], 9)
    assert (second.subscription_identifiers, second.message_expiry_interval) == ([], 9)


@pytest.mark.parametrize("payload_size", [20, LARGE])
def test_a_packet_larger_than_the_peer_takes_is_not_sent_and_one_as_large_is(payload_size: int) -> None:
    peer = Peer(5)
    message = make_message(payload=bytes(payload_size))
    assert peer.send(message, 1, 1)
    size = len(peer.outbox.take_all())
    peer.outbound.packet_size_max = size
    assert peer.send(message, 1, 1)
    peer.outbox.take_all()
    peer.outbound.packet_size_max = size - 1
    assert not peer.send(message, 1, 1)
    assert peer.outbox.take_all() == b""


def test_the_first_topics_get_an_alias_and_are_named_once() -> None:
    peer = Peer(5)
    peer.outbound.allow_aliases(2)
    for topic in (b"a", b"b", b"c", b"a", b"b", b"c"):
        peer.send(make_message(topic))
    seen = [
        (packet.topic, packet.properties.topic_alias if packet.properties else None) for packet in peer.take()
    ]
    assert seen == [(b"a", 1), (b"b", 2), (b"c", None), (b"", 1), (b"", 2), (b"c", None)]


def test_an_alias_the_peer_never_learned_is_given_to_the_next() -> None:
    peer = Peer(5)
    peer.outbound.allow_aliases(2)
    peer.outbound.packet_size_max = 50
    assert not peer.send(make_message(b"a", bytes(60)))
    assert peer.send(make_message(b"b"))
    assert peer.send(make_message(b"a"))
    seen = [
        (packet.topic, packet.properties.topic_alias if packet.properties else None) for packet in peer.take()
    ]
    assert seen == [(b"b", 1), (b"a", 2)]


def test_runs_pass_as_they_are_only_to_peers_without_size_or_aliases() -> None:
    peer = Peer(5)
    assert peer.outbound.can_take_runs()
    peer.outbound.packet_size_max = 10
    assert not peer.outbound.can_take_runs()
    peer.outbound.packet_size_max = 0
    peer.outbound.allow_aliases(1)
    assert not peer.outbound.can_take_runs()
    peer.outbound.allow_aliases(0)
    assert peer.outbound.can_take_runs()
