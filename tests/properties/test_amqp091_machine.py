"""The AMQP 0-9-1 machine: where its input is cut makes no difference, and neither does what comes in it."""

from __future__ import annotations

from amqp091_peer import NO_PROPERTIES, Peer, message, on, open_peer, show_frames
from hypothesis import given, settings
from hypothesis import strategies as st
from test_amqp091_codec import methods, property_sets
from vectors.amqp091_vector import frame, header, publish

from millstream.protocols.amqp091.machine.events import (
    ChannelClosed,
    ChannelOpened,
    Closed,
    Event,
    MethodReceived,
)
from millstream.protocols.amqp091.wire import methods as m
from millstream.protocols.amqp091.wire.properties import encode_properties

channels = st.sampled_from([1, 1, 1, 2, 2, 3])
bodies = st.binary(max_size=30)
raw_properties = st.just(NO_PROPERTIES) | property_sets.map(encode_properties)


@st.composite
def message_frames(draw: st.DrawFn) -> list[bytes]:
    """The frames of one message on one channel."""
    channel, body = draw(channels), draw(bodies)
    frames = [
        frame(1, channel, publish(draw(st.sampled_from([b"", b"e"])), b"k", draw(st.integers(0, 3)))),
        frame(2, channel, header(len(body), draw(raw_properties))),
    ]
    at = 0
    while at < len(body):
        size = draw(st.sampled_from([0, 1, 5, len(body), len(body)]))
        frames.append(frame(3, channel, body[at : at + size]))
        at += size
    return frames


acks = st.builds(
    lambda channel, tag, multiple: on(channel, m.BasicAck(tag, multiple)),
    channels,
    st.integers(0, 2**63 - 1),
    st.booleans(),
)
others = st.builds(on, st.integers(0, 4), methods)
moves = st.builds(
    on, channels, st.sampled_from([m.ChannelOpen(), m.ChannelClose(200, b"", 0, 0), m.ChannelCloseOk()])
)
ordered = st.lists(message_frames().map(b"".join) | acks, max_size=8).map(b"".join)
few = st.lists(message_frames().map(b"".join) | acks, max_size=4).map(b"".join)
disordered = st.lists(message_frames().map(b"".join) | acks | moves | others, max_size=8).map(b"".join)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[bytes, dict[int, list[bytes]]]:
    """Messages on three channels whose frames are mixed; and the bodies by channel."""
    waiting: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    sent: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    for body in draw(st.lists(bodies, max_size=6)):
        channel = draw(channels)
        cut = draw(st.integers(0, len(body)))
        sent[channel].append(body)
        waiting[channel] += split(message(channel, body, pieces=[cut] if body else []))
    data = b""
    while any(waiting.values()):
        channel = draw(st.sampled_from([number for number, frames in waiting.items() if frames]))
        data += waiting[channel].pop(0)
    return data, sent


def split(data: bytes) -> list[bytes]:
    frames = []
    while data:
        size = 8 + int.from_bytes(data[3:7], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def fields_of(event: Event) -> tuple[object, ...]:
    values = [
        repr(getattr(event, name))
        for name in (
            "channel", "code", "text", "exchange", "routing_key", "mandatory", "immediate", "properties", "body",
            "delivery_tag", "multiple", "method",
        )
        if hasattr(event, name)
    ]  # fmt: skip
    return (type(event).__name__, *values)


def run(peer: Peer, reads: list[bytes]) -> tuple[list[tuple[object, ...]], bytes]:
    """What comes of some reads when the endpoint does its part after each."""
    events: list[Event] = []
    for read in reads:
        events += peer.receive(read)
    for event in events:
        if isinstance(event, ChannelClosed):
            peer.machine.end_channel(event.channel)
    peer.machine.send_farewell()
    return [fields_of(event) for event in events], peer.take_bytes()


def check_events(events: list[tuple[object, ...]], opened: int) -> None:
    """Every channel ends at most once more than it begins, and the connection once, at last."""
    names = [event[0] for event in events]
    assert names.count("Closed") <= 1
    if "Closed" in names:
        assert names[-1] == "Closed"
        assert names.count("ChannelClosed") == opened + names.count("ChannelOpened")


@settings(deadline=None)
@given(ordered | disordered, st.lists(st.integers(0, 400), max_size=6))
def test_where_the_input_is_cut_makes_no_difference(data: bytes, places: list[int]) -> None:
    cuts = sorted({min(place, len(data)) for place in places})
    reads = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    whole = run(open_peer(1, 2, 3), [data])
    assert run(open_peer(1, 2, 3), reads) == whole
    check_events(whole[0], 3)
    show_frames(whole[1])


@settings(deadline=None, max_examples=40)
@given(few)
def test_one_cut_at_every_byte_makes_no_difference(data: bytes) -> None:
    peer = open_peer(1, 2, 3)  # it serves for all: nothing is left over behind a whole message

    def shown(reads: list[bytes]) -> list[tuple[object, ...]]:
        return [fields_of(event) for read in reads for event in peer.receive(read)]

    whole = shown([data])
    assert all(event[0] in ("PublishReceived", "AckReceived") for event in whole)
    for place in range(len(data) + 1):
        assert shown([data[:place], data[place:]]) == whole
    assert shown([data[at : at + 1] for at in range(len(data))]) == whole
    assert peer.take_bytes() == b""


@given(interleaved())
def test_messages_of_a_channel_arrive_whole_and_in_order_however_they_interleave(
    case: tuple[bytes, dict[int, list[bytes]]],
) -> None:
    data, sent = case
    found: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    for event in open_peer(1, 2, 3).receive(data):
        found[int(getattr(event, "channel"))].append(getattr(event, "body"))  # noqa: B009 any event
    assert found == sent


@given(st.lists(moves | others | acks, max_size=12))
def test_a_channel_never_opens_twice_nor_ends_twice(frames: list[bytes]) -> None:
    peer = open_peer()
    is_open: dict[int, bool] = {}
    for data in frames:
        for event in peer.receive(data):
            if isinstance(event, ChannelOpened):
                assert not is_open.get(event.channel)
                is_open[event.channel] = True
            elif isinstance(event, ChannelClosed):
                assert is_open.pop(event.channel)
                peer.machine.end_channel(event.channel)
            elif isinstance(event, MethodReceived):
                assert event.channel == 0 or is_open[event.channel]
            elif isinstance(event, Closed):
                assert not is_open
    peer.machine.send_farewell()
    show_frames(peer.take_bytes())


@given(st.binary(max_size=60), st.integers(0, 8))
def test_bytes_nobody_sent_raise_nothing(data: bytes, known: int) -> None:
    peer = Peer()
    steps = sorted(type(peer.machine.state))
    peer.lead_to(steps[known])
    run(peer, [data])
    run(open_peer(1), [frame(data[0] if data else 1, 1, data), data])
