"""QoS 1 publishes that differ in packet id and payload alone come as one event, and can be taken apart again."""

from __future__ import annotations

import pytest
from fakes import START_NS, FakeLine, ManualWakeup

from millstream.model.limits import Limits
from millstream.model.outbox import LARGE, Outbox, OutboxPool
from millstream.protocols.mqtt.machine.connection import Connection
from millstream.protocols.mqtt.machine.events import Closed, Event, PublishBatchReceived, PublishReceived
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, PubAck, Publish
from millstream.protocols.mqtt.wire.properties import Properties

SIZES = (0, 1, 100, 127, 128, 5000, 16_300, 16_400, 3)


def make_machine(version: int, gathers: bool = True, limits: Limits | None = None) -> Connection:
    pool = OutboxPool(ManualWakeup())
    machine = Connection(Terms(limits or Limits(), pool), Outbox(pool, FakeLine()), START_NS)
    machine.receive_data(encode_packet(Connect(version, "c"), version), START_NS)
    machine.accept(ConnAck(False, 0), 0, False, START_NS)
    machine.batches_publishes = gathers
    return machine


def receive(machine: Connection, *packets: Publish | bytes) -> list[Event]:
    data = b"".join(
        packet if isinstance(packet, bytes) else encode_packet(packet, int(machine.version))
        for packet in packets
    )
    return machine.receive_data(data, START_NS)


def publish(
    packet_id: int, payload: bytes = b"p", topic: bytes = b"$queue/q", colour: bytes = b""
) -> Publish:
    properties = None
    if colour:
        properties = Properties()
        properties.user_properties = [(b"colour", colour)]
        properties.message_expiry_interval = 7
    return Publish(topic, payload, 1, packet_id=packet_id, properties=properties)


def shape(events: list[Event]) -> list[str]:
    return [
        f"{int(event.count)} alike" if isinstance(event, PublishBatchReceived) else type(event).__name__
        for event in events
    ]


def fields(event: Event) -> tuple[object, ...]:
    assert isinstance(event, PublishReceived)
    numbers = (int(event.qos), int(event.packet_id), int(event.expiry_s), int(event.frame_id_at))
    flags = (event.retain, event.dup, event.is_five)
    return (event.topic, event.payload, event.properties, event.frame, *numbers, *flags)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("colour", [b"", b"red"])
def test_what_is_taken_apart_is_what_would_have_come_alone(version: int, colour: bytes) -> None:
    packets = [
        publish(number + 1, b"%d" % number * size, colour=colour if version == 5 else b"")
        for number, size in enumerate(SIZES)
    ]
    alone = receive(make_machine(version, gathers=False), *packets)
    events = receive(make_machine(version), *packets)
    assert shape(events) == ["PublishReceived", f"{len(SIZES) - 1} alike"]
    [first, alike] = events
    assert isinstance(alike, PublishBatchReceived)
    assert [fields(event) for event in [first, *alike.take_apart()]] == [fields(event) for event in alone]
    assert any(len(packet.payload) >= LARGE for packet in packets)


def test_each_has_its_puback_in_order() -> None:
    events = receive(make_machine(4), *[publish(number) for number in (5, 65_535, 7, 256)])
    alike = events[1]
    assert isinstance(alike, PublishBatchReceived)
    assert alike.answers == b"".join(encode_packet(PubAck(number), 4) for number in (65_535, 7, 256))


@pytest.mark.parametrize(
    "other",
    [
        publish(2, topic=b"$queue/r"),
        publish(2, colour=b"blue"),
        Publish(b"$queue/q", b"p", 1, packet_id=2, dup=True),
        Publish(b"$queue/q", b"p", 1, packet_id=2, retain=True),
        Publish(b"$queue/q", b"p", 2, packet_id=2),
    ],
    ids=["topic", "properties", "dup", "retain", "qos"],
)
def test_one_that_differs_in_anything_else_ends_them(other: Publish) -> None:
    events = receive(make_machine(5), publish(1, colour=b"red"), other, publish(3, colour=b"red"))
    assert shape(events) == ["PublishReceived"] * 3


def test_a_topic_behind_an_alias_is_not_taken_for_the_same() -> None:
    packet = publish(1)
    packet.properties = Properties()
    packet.properties.topic_alias = 1
    assert shape(receive(make_machine(5), packet, packet)) == ["PublishReceived"] * 2


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\x32\x0d\x00\x08$queue/q\x00\x00p", code.PROTOCOL_ERROR),
        (b"\x32\xff\xff\xff\xff\x01", code.MALFORMED_PACKET),
        (b"\x32\x05\x00\x08$qu", code.MALFORMED_PACKET),
    ],
    ids=["packet id 0", "length without end", "topic beyond its end"],
)
def test_what_came_before_a_malformed_one_is_still_told(version: int, bad: bytes, reason: int) -> None:
    events = receive(make_machine(version), publish(1), publish(2), publish(3), bad, publish(4))
    assert shape(events) == ["PublishReceived", "2 alike", "Closed"]
    closed = events[-1]
    assert isinstance(closed, Closed)
    assert closed.reason == reason


def test_a_message_over_the_limit_ends_the_connection_behind_those_before_it() -> None:
    limits = Limits(message_size_max=100)
    events = receive(make_machine(5, limits=limits), publish(1), publish(2), publish(3, b"x" * 101))
    assert shape(events) == ["PublishReceived", "1 alike", "Closed"]
    assert isinstance(events[-1], Closed)
    assert events[-1].reason == code.PACKET_TOO_LARGE


def test_padded_lengths_are_left_to_the_scan_that_knows_them() -> None:
    padded = b"\x32\x8d\x00\x00\x08$queue/q\x00\x02p"
    events = receive(make_machine(4), publish(1), padded, publish(3))
    assert shape(events) == ["PublishReceived"] * 3


def test_one_that_is_cut_waits_for_its_rest() -> None:
    machine = make_machine(4)
    whole = encode_packet(publish(3, b"z" * 200), 4)
    for cut in (1, 2, 3, 10, len(whole) - 1):
        events = receive(machine, publish(1), publish(2), whole[:cut])
        assert shape(events) == ["PublishReceived", "1 alike"]
        events = receive(machine, whole[cut:])
        assert fields(events[0])[1] == b"z" * 200
