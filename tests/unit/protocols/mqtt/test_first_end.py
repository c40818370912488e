"""Several reasons to end a connection in one read: the first of them counts, and nothing behind it happens."""

from __future__ import annotations

import pytest
from fakes import MqttWorld

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    Publish,
    Subscribe,
    SubscribeEntry,
    Will,
)

MALFORMED = b"\x36\x05\x00\x01a\x00\x01"  # QoS 3
ILLEGAL = b"\x30\x04\x00\x01+\x00"
ENDINGS = [MALFORMED, encode_packet(Disconnect(0), 5)]


def make_publish(payload: bytes, packet_id: int) -> bytes:
    return encode_packet(Publish(b"$queue/q", payload, 1, packet_id=packet_id), 5)


@pytest.mark.parametrize("behind", ENDINGS, ids=["malformed", "disconnect"])
def test_what_came_behind_the_first_reason_is_not_carried_out_whatever_ends_the_read(behind: bytes) -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    answers = peer.send_bytes(make_publish(b"before", 1) + ILLEGAL + make_publish(b"after", 2) + behind)
    queue = world.broker.accounts["default"].queues.catalog.get("q")
    assert queue.next == 1
    assert isinstance(answers[-1], Disconnect)
    assert answers[-1].reason == code.TOPIC_NAME_INVALID
    assert peer.link.is_closed


def test_beyond_the_receive_maximum_the_reason_is_told_although_the_read_ends_in_a_violation() -> None:
    world = MqttWorld(Limits(receive_maximum=3))
    peer = world.client(Connect(5, "c"))
    data = b"".join(make_publish(b"%d" % number, number) for number in range(1, 9))
    answers = peer.send_bytes(data + MALFORMED)
    assert isinstance(answers[-1], Disconnect)
    assert answers[-1].reason == code.RECEIVE_MAXIMUM_EXCEEDED
    assert world.broker.accounts["default"].queues.catalog.get("q").next == 3


def test_a_client_that_goes_in_the_read_of_its_mistake_leaves_its_will() -> None:
    world = MqttWorld()
    watcher = world.client(Connect(5, "watcher"))
    watcher.send(Subscribe(1, [SubscribeEntry(b"last/words", 0)]))
    peer = world.client(Connect(5, "c", will=Will(b"last/words", b"w", 0, False)))
    peer.send_bytes(ILLEGAL + encode_packet(Disconnect(0), 5))
    assert [packet.payload for packet in watcher.take() if isinstance(packet, Publish)] == [b"w"]
