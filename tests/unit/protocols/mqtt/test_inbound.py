"""The scan of what was read: runs, aliases, limits. Where bytes are cut is told in properties/test_runs."""

from __future__ import annotations

import pytest
from fakes import START_NS, FakeLine, ManualWakeup

from millstream.model.limits import Limits
from millstream.model.outbox import LARGE, Outbox, OutboxPool
from millstream.protocols.mqtt.machine.connection import Connection
from millstream.protocols.mqtt.machine.events import (
    AnswerReceived,
    Closed,
    Event,
    PingReceived,
    PublishReceived,
    RunReceived,
)
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.frames import FrameRun
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Packet, PingReq, PubAck, Publish
from millstream.protocols.mqtt.wire.properties import Properties


class Server:
    def __init__(self, version: int = 5, limits: Limits | None = None) -> None:
        pool = OutboxPool(ManualWakeup())
        self.version = version
        self.machine = Connection(Terms(limits or Limits(), pool), Outbox(pool, FakeLine()), START_NS)
        self.machine.receive_data(encode_packet(Connect(version, "c"), version), START_NS)
        self.machine.accept(ConnAck(False, 0), 0, False, START_NS)

    def receive(self, *packets: Packet) -> list[Event]:
        return self.receive_bytes(b"".join([encode_packet(packet, self.version) for packet in packets]))

    def receive_bytes(self, data: bytes) -> list[Event]:
        return self.machine.receive_data(data, START_NS)


def with_alias(alias: int, topic: bytes = b"") -> Publish:
    properties = Properties()
    properties.topic_alias = alias
    return Publish(topic, b"p", properties=properties)


def counts(events: list[Event]) -> list[tuple[bytes, int]]:
    return [(event.topic, int(event.count)) for event in events if isinstance(event, RunReceived)]


def reason_of(events: list[Event]) -> int:
    assert isinstance(events[-1], Closed)
    return events[-1].reason


@pytest.mark.parametrize("version", [4, 5])
def test_publishes_to_one_topic_that_follow_each_other_are_one_run(version: int) -> None:
    events = Server(version).receive(
        Publish(b"a", b"1"),
        Publish(b"a", b"22" * 100),
        Publish(b"a", b""),
        Publish(b"ab", b"3"),
        Publish(b"a", b"4"),
        PingReq(),
        Publish(b"a", b"5"),
    )
    assert counts(events) == [(b"a", 3), (b"ab", 1), (b"a", 1), (b"a", 1)]
    assert isinstance(events[3], PingReceived)


def test_only_publishes_with_equal_properties_share_a_run() -> None:
    other = Properties()
    other.content_type = b"x"
    events = Server().receive(
        Publish(b"a", b"1"),
        Publish(b"a", b"2", properties=other),
        Publish(b"a", b"3", properties=other),
        Publish(b"a", b"4"),
    )
    assert counts(events) == [(b"a", 1), (b"a", 2), (b"a", 1)]


def test_retained_and_numbered_publishes_are_events_of_their_own() -> None:
    events = Server().receive(Publish(b"a", b"1", retain=True), Publish(b"a", b"2", 1, packet_id=9))
    assert isinstance(events[0], PublishReceived)
    assert isinstance(events[1], PublishReceived)
    assert (events[0].retain, events[0].frame) == (True, None)
    assert events[1].frame == encode_packet(Publish(b"a", b"2", 1, packet_id=9), 5)
    assert events[1].frame[int(events[1].frame_id_at) :][:2] == b"\x00\x09"


def test_a_frame_that_another_receiver_could_not_be_sent_is_not_kept() -> None:
    server = Server()
    for packet in (
        Publish(b"a", b"1", 1, dup=True, packet_id=1),
        Publish(b"a", b"1", 1, True, packet_id=1),
        Publish(b"a", bytes(LARGE), 1, packet_id=1),
        with_alias(1, b"a"),
    ):
        (event,) = server.receive(packet)
        assert isinstance(event, PublishReceived)
        assert event.frame is None


def test_an_alias_stands_for_its_last_topic() -> None:
    events = Server().receive(
        with_alias(1, b"a"),
        with_alias(2, b"b"),
        with_alias(1),
        with_alias(2),
        with_alias(1, b"c"),
        with_alias(1),
    )
    topics = [event.topic for event in events if isinstance(event, PublishReceived)]
    assert topics == [b"a", b"b", b"a", b"b", b"c", b"c"]


def test_topics_that_aliases_stand_for_count_as_held() -> None:
    server = Server()
    server.receive(*[with_alias(number, b"%02d" % number * 1000) for number in range(1, 51)])
    assert int(server.machine.kept_bytes()) == 50 * 2000
    server.receive(with_alias(1, b"short"), with_alias(1))
    assert int(server.machine.kept_bytes()) == 49 * 2000 + 5
    server.receive_bytes(b"\x30\x10\x00")
    assert int(server.machine.kept_bytes()) == 49 * 2000 + 5 + 3


def test_aliases_out_of_bounds_unknown_or_missing_end_the_connection() -> None:
    limits = Limits(topic_alias_maximum=2)
    assert reason_of(Server(5, limits).receive(with_alias(3, b"a"))) == code.TOPIC_ALIAS_INVALID
    assert reason_of(Server(5, limits).receive(with_alias(2))) == code.PROTOCOL_ERROR
    assert reason_of(Server(5, limits).receive(Publish(b"", b"x"))) == code.PROTOCOL_ERROR
    assert reason_of(Server(4, limits).receive(Publish(b"", b"x"))) == code.PROTOCOL_ERROR
    assert reason_of(Server(4, limits).receive(Publish(b"", b"x", 1, packet_id=1))) == code.PROTOCOL_ERROR


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_over_the_limit_ends_the_connection_and_what_came_before_is_kept(qos: int) -> None:
    server = Server(4, Limits(message_size_max=10))
    events = server.receive(
        Publish(b"a", bytes(10), qos, packet_id=qos), Publish(b"a", bytes(11), qos, packet_id=qos)
    )
    assert len(events) == 2
    assert reason_of(events) == code.PACKET_TOO_LARGE


def test_a_length_over_the_limit_is_refused_before_its_bytes_are_kept() -> None:
    server = Server(4, Limits(packet_size_max=1000))
    assert reason_of(server.receive_bytes(b"\x32\xff\xff\x7f")) == code.PACKET_TOO_LARGE
    assert server.receive_bytes(bytes(10)) == []


def test_before_connect_is_accepted_packets_are_smaller_and_nothing_else_may_come() -> None:
    pool = OutboxPool(ManualWakeup())
    for data, reason in (
        (b"\x30\x03\x00\x01a", code.PROTOCOL_ERROR),
        (b"\xc0\x00", code.PROTOCOL_ERROR),
        (b"\x10\xff\xff\x7f", code.PACKET_TOO_LARGE),
    ):
        machine = Connection(Terms(Limits(), pool), Outbox(pool, FakeLine()), START_NS)
        assert reason_of(machine.receive_data(data, START_NS)) == reason


def test_nothing_behind_connect_is_looked_at_before_it_is_answered() -> None:
    pool = OutboxPool(ManualWakeup())
    machine = Connection(Terms(Limits(), pool), Outbox(pool, FakeLine()), START_NS)
    data = encode_packet(Connect(4, "c"), 4) + b"\xc0\x00"
    assert len(machine.receive_data(data, START_NS)) == 1
    assert machine.receive_data(b"\xc0\x00\xf0", START_NS) == []
    machine.accept(ConnAck(False, 0), 0, False, START_NS)
    assert len(machine.receive_data(b"", START_NS)) == 2
    assert reason_of(machine.receive_data(b"\x00", START_NS)) == code.MALFORMED_PACKET


def test_answers_are_told_with_their_reason() -> None:
    events = Server().receive(PubAck(7), PubAck(8, 0x87))
    assert [
        (int(event.kind), int(event.packet_id), int(event.reason))
        for event in events
        if isinstance(event, AnswerReceived)
    ] == [(4, 7, 0), (4, 8, 0x87)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x36\x05\x00\x01a\x00\x01",
        b"\x38\x03\x00\x01a",
        b"\x30\x01\x00",
        b"\x30\x02\x00\x05",
        b"\x32\x04\x00\x01a\x00",
    ],
)
def test_a_publish_that_is_not_one_is_malformed(data: bytes) -> None:
    assert reason_of(Server(4).receive_bytes(data)) == code.MALFORMED_PACKET


def test_packet_id_zero_is_an_error() -> None:
    assert reason_of(Server(4).receive_bytes(b"\x32\x05\x00\x01a\x00\x00")) == code.PROTOCOL_ERROR
    assert reason_of(Server(4).receive_bytes(b"\x40\x02\x00\x00")) == code.PROTOCOL_ERROR


def test_too_many_user_properties_are_an_error() -> None:
    properties = Properties()
    properties.user_properties = [(b"k", b"v")] * 3
    server = Server(5, Limits(user_properties_max=2))
    assert reason_of(server.receive(Publish(b"a", b"", properties=properties))) == code.PROTOCOL_ERROR


@pytest.mark.parametrize("qos", [0, 1])
def test_what_one_read_has_shown_is_not_believed_of_the_next(qos: int) -> None:
    """Topic and properties lie at equal places of two buffers, but are not equal."""
    server = Server()
    seen = []
    for topic, kind in ((b"a", b"one"), (b"a", b"two"), (b"b", b"two")):
        properties = Properties()
        properties.content_type = kind
        (event,) = server.receive(Publish(topic, b"p", qos, packet_id=qos, properties=properties))
        if isinstance(event, RunReceived):
            (message,) = FrameRun(event.buffer, event.start, event.end, 1, 5, START_NS).messages()
            seen.append((event.topic, message.properties))
        else:
            assert isinstance(event, PublishReceived)
            seen.append((event.topic, event.properties))
    assert seen == [(b"a", b"\x03\x00\x03one"), (b"a", b"\x03\x00\x03two"), (b"b", b"\x03\x00\x03two")]
