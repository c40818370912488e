"""Runs and scans: what passes on as bytes is what the codec would have made, wherever the input is cut."""

from __future__ import annotations

import itertools

from fakes import ManualWakeup
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_mqtt_codec import answers, property_sets, subscribes

from millstream.model.limits import Limits
from millstream.model.message import NANOSECONDS
from millstream.model.outbox import Flushable, Outbox, OutboxPool
from millstream.protocols.mqtt.machine.connection import Connection
from millstream.protocols.mqtt.machine.events import (
    AnswerReceived,
    AuthReceived,
    Closed,
    ConnectReceived,
    DisconnectReceived,
    Event,
    PingReceived,
    PublishReceived,
    RunReceived,
    SubscribeReceived,
    UnsubscribeReceived,
)
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.mapping import encode_block
from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.frames import FrameRun
from millstream.protocols.mqtt.wire.packets import (
    Answer,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    Publish,
    Subscribe,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties

NOW_NS = 5_000 * NANOSECONDS
SIZE_MAX = 1 << 24
Fact = tuple[object, ...]

versions = st.sampled_from([4, 5])
run_topics = st.sampled_from([b"a/b", b"a/c", b"a", b"t" * 130])
payloads = st.binary(max_size=6) | st.sampled_from([110, 121, 122, 123, 125, 126, 127, 300]).map(bytes)


@st.composite
def plain_publishes(draw: st.DrawFn, version: int, with_alias: bool) -> Publish:
    """What a client may send: no subscription identifiers; often equal to the one before, so that runs form."""
    qos = draw(st.sampled_from([0, 0, 0, 1, 2]))
    properties = draw(property_sets(kinds.PUBLISH)) if version == 5 and draw(st.booleans()) else None
    topic = draw(run_topics)
    if properties is not None:
        properties.subscription_identifiers = []
        if properties.topic_alias is not None:
            properties.topic_alias = draw(st.integers(1, 3)) if with_alias else None
        if not properties.present():
            properties = None
    return Publish(
        topic,
        draw(payloads),
        qos,
        draw(st.sampled_from([False, False, False, True])),
        qos > 0 and draw(st.booleans()),
        draw(st.integers(1, 65535)) if qos else 0,
        properties,
    )


@st.composite
def conversations(draw: st.DrawFn) -> tuple[int, list[Packet]]:
    version = draw(versions)
    unsubscribes = st.builds(Unsubscribe, st.integers(1, 65535), st.lists(run_topics, min_size=1, max_size=3))
    others = [plain_publishes(version, True)] * 4
    anything: st.SearchStrategy[Packet] = st.one_of(
        *others, answers(version), subscribes(version), unsubscribes, st.builds(PingReq)
    )
    if version == 5:
        anything = anything | st.just(Auth(0x19, None))
    packets = draw(st.lists(anything, max_size=12))
    repeated: list[Packet] = []
    for packet in packets:
        repeated.extend([packet] * draw(st.sampled_from([1, 1, 1, 2, 5])))
    if draw(st.booleans()):
        repeated.append(Disconnect(0x04 if version == 5 else 0))
    return version, repeated


class Nobody(Flushable):
    def flush(self) -> None:
        pass

    def on_flush_failed(self, error: Exception) -> None:
        raise error


class Server:
    """A machine whose questions are all answered with yes."""

    def __init__(self, limits: Limits) -> None:
        pool = OutboxPool(ManualWakeup())
        self.machine = Connection(Terms(limits, pool), Outbox(pool, Nobody()), NOW_NS)
        self.facts: list[Fact] = []

    def receive(self, data: bytes) -> None:
        events = self.machine.receive_data(data, NOW_NS)
        for event in events:
            self.facts.extend(facts_of(event, int(self.machine.version)))
        if events and isinstance(events[-1], ConnectReceived):
            self.machine.accept(ConnAck(False, 0), 0, True, NOW_NS)
            self.receive(b"")
        elif events and isinstance(events[-1], AuthReceived):
            self.machine.confirm_reauthentication(Auth(0))
            self.receive(b"")


def facts_of(event: Event, version: int) -> list[Fact]:
    if isinstance(event, RunReceived):
        found = facts_of_run(event, version)
        assert len(found) == event.count
        return found
    if isinstance(event, PublishReceived):
        return [
            (
                "publish",
                event.topic,
                event.payload,
                int(event.qos),
                int(event.packet_id),
                event.retain,
                event.dup,
                event.properties,
                int(event.expiry_s),
            )
        ]
    if isinstance(event, AnswerReceived):
        return [("answer", int(event.kind), int(event.packet_id), int(event.reason))]
    if isinstance(event, Closed):
        return [("closed", event.reason)]
    if isinstance(event, PingReceived):
        return [("ping",)]
    assert isinstance(
        event, ConnectReceived | SubscribeReceived | UnsubscribeReceived | AuthReceived | DisconnectReceived
    )
    return [("packet", repr(event.packet))]


def facts_of_run(event: RunReceived, version: int) -> list[Fact]:
    found: list[Fact] = []
    position = int(event.start)
    while position < event.end:
        packet, position = decode_frame(event.buffer, position, version, SIZE_MAX)
        assert isinstance(packet, Publish)
        assert packet.topic == event.topic
        found.append(fact_of_publish(packet, packet.topic))
    assert position == event.end
    return found


def fact_of_publish(packet: Publish, topic: bytes) -> Fact:
    block, expiry_s = b"", -1
    if packet.properties is not None:
        block = encode_block(packet.properties)
        wanted = packet.properties.message_expiry_interval
        expiry_s = -1 if wanted is None else wanted
    return (
        "publish",
        topic,
        packet.payload,
        packet.qos,
        packet.packet_id,
        packet.retain,
        packet.dup,
        block,
        expiry_s,
    )


def wanted_facts(packets: list[Packet]) -> list[Fact]:
    found: list[Fact] = []
    for packet in packets:
        if isinstance(packet, Publish):
            found.append(fact_of_publish(packet, packet.topic))
        elif isinstance(packet, Answer):
            kind = {"PubAck": 4, "PubRec": 5, "PubRel": 6, "PubComp": 7}[type(packet).__name__]
            found.append(("answer", kind, packet.packet_id, packet.reason))
        elif isinstance(packet, PingReq):
            found.append(("ping",))
        elif isinstance(packet, Subscribe | Unsubscribe | Auth):
            found.append(("packet", repr(packet)))
        elif isinstance(packet, Disconnect):
            found += [("packet", repr(packet)), ("closed", packet.reason)]
    return found


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *[cut % (len(data) + 1) for cut in cuts]})
    return [data[first:last] for first, last in itertools.pairwise(places)]


def facts_for(pieces: list[bytes], limits: Limits) -> list[Fact]:
    server = Server(limits)
    for piece in pieces:
        server.receive(piece)
    return server.facts


def first_packet(version: int) -> bytes:
    return encode_packet(Connect(version, "cut"), version)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations(), st.lists(st.integers(0, 1 << 16), max_size=8))
def test_packets_become_the_same_events_wherever_the_bytes_are_cut(
    conversation: tuple[int, list[Packet]], cuts: list[int]
) -> None:
    version, packets = conversation
    connect = first_packet(version)
    data = connect + b"".join([encode_packet(packet, version) for packet in packets])
    wanted = [("packet", repr(Connect(version, "cut"))), *wanted_facts(packets)]
    assert facts_for([data], Limits()) == wanted
    assert facts_for(pieces_of(data, cuts), Limits()) == wanted
    if len(data) < 400:
        assert facts_for([data[at : at + 1] for at in range(len(data))], Limits()) == wanted


BAD_ENDS = [
    b"\x30\x80\x00",  # a length longer than its value needs
    b"\x30\xff\xff\xff\xff",
    b"\x30\x05\x00\x03a/b",  # a legal publish without payload
    b"\x30\x02\x00\x03",
    b"\x32\x05\x00\x01a\x00\x00",
    b"\x36\x05\x00\x01a\x00\x01",
    b"\x38\x03\x00\x01a",
    b"\x40\x02\x00\x00",
    b"\xf0\x00",
    b"\x00\x00",
    b"\x10\x00",
    b"\x82\x02\x00\x01",
]
BOUNDS = {
    "default": Limits(),
    "small": Limits(packet_size_max=140, message_size_max=120),
    "small packets only": Limits(packet_size_max=100),
}


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    conversations(),
    st.sampled_from(BAD_ENDS) | st.binary(max_size=12),
    st.sampled_from(sorted(BOUNDS)),
    st.lists(st.integers(0, 1 << 16), max_size=8),
)
@example((4, [Publish(b"a/b", b"1")]), b"\x30\x80\x00", "default", [21])
@example((4, [Publish(b"a/b", b"1"), Publish(b"a/b", bytes(110))]), b"", "small packets only", [24])
def test_a_faulty_end_is_met_at_the_same_place_wherever_the_bytes_are_cut(
    conversation: tuple[int, list[Packet]], end: bytes, bounds: str, cuts: list[int]
) -> None:
    version, packets = conversation
    limits = BOUNDS[bounds]
    data = first_packet(version) + b"".join([encode_packet(packet, version) for packet in packets]) + end
    whole = facts_for([data], limits)
    assert [fact[0] for fact in whole].count("closed") <= 1
    assert facts_for(pieces_of(data, cuts), limits) == whole
    if len(data) < 200:
        assert facts_for([data[at : at + 1] for at in range(len(data))], limits) == whole


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.lists(st.integers(0, 100), max_size=6))
def test_any_bytes_at_all_close_at_most_once_and_the_same_wherever_they_are_cut(
    data: bytes, cuts: list[int]
) -> None:
    whole = facts_for([data], Limits())
    assert [fact[0] for fact in whole].count("closed") <= 1
    assert facts_for(pieces_of(data, cuts), Limits()) == whole
    behind = first_packet(5) + data
    assert facts_for(pieces_of(behind, cuts), Limits()) == facts_for([behind], Limits())


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[Publish]]:
    version = draw(versions)
    found = []
    for packet in draw(st.lists(plain_publishes(version, False), min_size=1, max_size=6)):
        found.append(Publish(packet.topic, packet.payload, properties=packet.properties))
    return version, found


def make_run(version: int, packets: list[Publish], before: bytes, after: bytes) -> FrameRun:
    frames = b"".join([encode_packet(packet, version) for packet in packets])
    buffer = before + frames + after
    return FrameRun(buffer, len(before), len(before) + len(frames), len(packets), version, NOW_NS)


def decode_all(data: bytes, version: int) -> list[Packet]:
    found: list[Packet] = []
    position = 0
    while position < len(data):
        packet, position = decode_frame(data, position, version, SIZE_MAX)
        assert packet is not None
        found.append(packet)
    return found


def without_properties(packet: Publish) -> Publish:
    return Publish(packet.topic, packet.payload)


@settings(max_examples=200, deadline=None)
@given(runs(), st.binary(max_size=5), st.binary(max_size=5))
def test_a_run_speaks_either_version_and_says_the_same(
    case: tuple[int, list[Publish]], before: bytes, after: bytes
) -> None:
    version, packets = case
    run = make_run(version, packets, before, after)
    five = run.frames(5)
    four = run.frames(4)
    assert decode_all(four, 4) == [without_properties(packet) for packet in packets]
    wanted = packets if version == 5 else [without_properties(packet) for packet in packets]
    assert decode_all(five, 5) == wanted
    assert run.frames(5) is five
    assert run.frames(4) is four
    assert run.count == len(packets)
    there = FrameRun(four, 0, len(four), len(packets), 4, NOW_NS)
    back = FrameRun(there.frames(5), 0, len(there.frames(5)), len(packets), 5, NOW_NS)
    assert back.frames(4) == four


@settings(max_examples=200, deadline=None)
@given(runs(), st.binary(max_size=5))
def test_the_messages_of_a_run_are_what_the_codec_finds_in_its_frames(
    case: tuple[int, list[Publish]], before: bytes
) -> None:
    version, packets = case
    messages = make_run(version, packets, before, b"").messages()
    assert len(messages) == len(packets)
    for message, packet in zip(messages, packets, strict=True):
        properties = packet.properties or Properties()
        expiry_s = properties.message_expiry_interval
        assert (message.topic, message.payload, message.guarantee, message.retain) == (
            packet.topic,
            packet.payload,
            0,
            False,
        )
        assert message.properties == encode_block(properties)
        assert message.expires_ns == (0 if expiry_s is None else NOW_NS + expiry_s * NANOSECONDS)
