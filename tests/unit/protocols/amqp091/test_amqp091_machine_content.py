"""Messages put together from frames: in one look, in pieces, on several channels at once, within their limits."""

from __future__ import annotations

import pytest
from amqp091_peer import BODY_MAX, FRAME_MAX, PROPERTIES_MAX, make_terms, message, on, open_peer
from vectors.amqp091_vector import frame, header, long, publish, short

from millstream.protocols.amqp091.machine.events import PublishReceived
from millstream.protocols.amqp091.wire import methods as m

PUBLISH = frame(1, 1, publish(b"e", b"k"))
ACK = on(1, m.BasicAck(7, False))
TX = on(1, m.TxSelect())


def test_a_message_arrives_with_all_it_carries() -> None:
    peer = open_peer(1)
    properties = b"\x90\x00" + short(b"text/plain") + b"\x02"
    data = frame(1, 1, publish(b"logs", b"a.b", 3)) + frame(2, 1, header(2, properties)) + frame(3, 1, b"hi")
    for events in (peer.receive(data), peer.receive(data[:30]) + peer.receive(data[30:])):
        [event] = events
        assert isinstance(event, PublishReceived)
        assert (event.channel, event.exchange, event.routing_key) == (1, b"logs", b"a.b")
        assert (event.mandatory, event.immediate) == (True, True)
        assert (event.properties, event.body) == (properties, b"hi")


def test_many_messages_in_one_read_keep_their_order() -> None:
    peer = open_peer(1, 2)
    data = b"".join([message(1 + at % 2, b"%d" % at) for at in range(5)])
    assert peer.give(data) == "1 publish 0, 2 publish 1, 1 publish 2, 2 publish 3, 1 publish 4"


def test_names_are_whatever_bytes_the_client_chose() -> None:
    data = message(1, b"x", exchange="ä".encode(), key=b"\xff")
    for reads in ([data], [data[:20], data[20:]]):
        peer = open_peer(1)
        [event] = [event for read in reads for event in peer.receive(read)]
        assert isinstance(event, PublishReceived)
        assert (event.exchange, event.routing_key) == ("ä".encode(), b"\xff")


@pytest.mark.parametrize("pieces", [(), (1,), (3, 3), (0, 5), (9, 0), (10,), (1,) * 9])
def test_a_body_may_come_in_any_pieces(pieces: tuple[int, ...]) -> None:
    peer = open_peer(1)
    assert peer.give(message(1, b"0123456789", pieces=pieces)) == "1 publish 0123456789"


def test_a_message_may_have_no_body() -> None:
    peer = open_peer(1)
    assert peer.give(message(1, b""), message(1, b"x")) == "1 publish , 1 publish x"


def test_a_body_of_tiny_frames_arrives_whole() -> None:
    peer = open_peer(1)
    body = bytes(range(256)) * 20
    [event] = peer.receive(message(1, body, pieces=[2] * 2559))
    assert isinstance(event, PublishReceived)
    assert event.body == body


def test_a_body_as_large_as_allowed_arrives_whole() -> None:
    peer = open_peer(1)
    body = b"0123456789" * (BODY_MAX // 10)
    data = message(1, body, pieces=[FRAME_MAX - 8] * (BODY_MAX // (FRAME_MAX - 8)))
    [event] = peer.receive(data)
    assert isinstance(event, PublishReceived)
    assert event.body == body


def test_contents_of_several_channels_may_interleave() -> None:
    peer = open_peer(1, 2, 3)
    streams = [
        [frame(1, at, publish(b"e", b"k")), frame(2, at, header(4, b"\x00\x00")), frame(3, at, b"ab"), frame(3, at, b"c%d" % at)]
        for at in (1, 2, 3)
    ]  # fmt: skip
    data = b"".join([part for parts in zip(*streams, strict=True) for part in parts])
    assert peer.give(data) == "1 publish abc1, 2 publish abc2, 3 publish abc3"


def test_other_channels_go_on_while_a_content_is_under_way() -> None:
    peer = open_peer(1, 2)
    begun = PUBLISH + frame(2, 1, header(2, b"\x00\x00")) + frame(3, 1, b"a")
    assert peer.give(begun) == ""
    other = [message(2, b"x"), on(2, m.BasicAck(1, False)), on(2, m.TxSelect()), frame(8, 0)]
    assert peer.give(*other) == "2 publish x, 2 ack 1, 2 TxSelect"
    assert peer.give(on(3, m.ChannelOpen())) == "ChannelOpened 3"
    assert peer.give(frame(3, 1, b"b")) == "1 publish ab"


# ------------------------------------------------------------ out of order

UNEXPECTED = [
    ("a body without a publish", frame(3, 1, b"x"), 505),
    ("a header without a publish", frame(2, 1, header(1, b"\x00\x00")), 505),
    ("a method instead of the header", PUBLISH + TX, 505),
    ("basic.ack instead of the header", PUBLISH + ACK, 505),
    ("a publish instead of the header", PUBLISH + message(1, b"x"), 505),
    ("a close instead of the header", PUBLISH + on(1, m.ChannelClose(200, b"", 0, 0)), 505),
    ("a body instead of the header", PUBLISH + frame(3, 1, b"x"), 505),
    ("a method instead of the body", PUBLISH + frame(2, 1, header(1, b"\x00\x00")) + TX, 505),
    ("basic.ack instead of the body", PUBLISH + frame(2, 1, header(1, b"\x00\x00")) + ACK, 505),
    ("a header instead of the body", PUBLISH + frame(2, 1, header(1, b"\x00\x00")) * 2, 505),
    (
        "a body behind a message without one",
        PUBLISH + frame(2, 1, header(0, b"\x00\x00")) + frame(3, 1, b"x"),
        505,
    ),
    ("a header of another class", PUBLISH + frame(2, 1, header(1, b"\x00\x00", 50)), 505),
    ("a header with a weight", PUBLISH + frame(2, 1, b"\x00\x3c\x00\x01" + b"\x00" * 10), 505),
    ("a body above its size", PUBLISH + frame(2, 1, header(1, b"\x00\x00")) + frame(3, 1, b"xy"), 501),
    ("a second body frame above it", message(1, b"abc", pieces=[1])[:-11] + frame(3, 1, b"bcd"), 501),
    ("a header that is too short", PUBLISH + frame(2, 1, b"\x00\x3c\x00\x00"), 501),
    ("properties that are cut short", message(1, b"x", b"\x80\x00\xff"), 502),
    ("properties with something behind them", message(1, b"x", b"\x00\x00\xff"), 502),
    ("no such property", message(1, b"x", b"\x00\x02"), 502),
]


@pytest.mark.parametrize(
    ("data", "code"), [row[1:] for row in UNEXPECTED], ids=[row[0] for row in UNEXPECTED]
)
def test_content_out_of_order_ends_the_connection(data: bytes, code: int) -> None:
    for reads in ([data], [data[:40], data[40:]], [bytes([byte]) for byte in data]):
        peer = open_peer(1, 2)
        shown = "".join([peer.give(read) for read in reads])
        assert shown.removeprefix("1 publish ").removeprefix(", ") == "ChannelClosed 1, ChannelClosed 2"
        assert peer.take() == f"0 ConnectionClose {code}"


def test_who_broke_the_order_is_named_as_rabbitmq_names_it() -> None:
    peer = open_peer(1)
    peer.give(PUBLISH + TX)
    data = peer.take_bytes()
    text = b"UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
    assert m.decode_method(data, 7, len(data) - 1) == m.ConnectionClose(505, text, 60, 40)


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize("size", [BODY_MAX + 1, 1 << 62, (1 << 64) - 1])
def test_a_body_above_the_limit_ends_its_channel_at_the_header(size: int) -> None:
    peer = open_peer(1, 2)
    large = PUBLISH + frame(2, 1, header(size, b"\x00\x00"))
    behind = frame(3, 1, b"x" * 100) + TX + ACK + message(1, b"y") + message(2, b"z")
    assert peer.give(large + behind) == "ChannelClosed 1 406, 2 publish z"
    assert peer.take_bytes() == b""  # what came before it is answered first
    peer.machine.send(1, m.TxSelectOk())
    peer.machine.end_channel(1)
    peer.machine.send(1, m.TxSelectOk())
    assert peer.take() == "1 TxSelectOk, 1 ChannelClose 406"
    assert peer.give(frame(3, 1, b"x") + on(1, m.ChannelCloseOk())) == ""
    assert peer.give(on(1, m.ChannelOpen())) == "ChannelOpened 1"


def test_the_limit_on_a_body_is_named_in_the_words_of_rabbitmq_and_with_its_key() -> None:
    peer = open_peer(1)
    peer.give(PUBLISH + frame(2, 1, header(BODY_MAX + 1, b"\x00\x00")))
    peer.machine.end_channel(1)
    data = peer.take_bytes()
    text = (
        b"PRECONDITION_FAILED - message size 100001 is larger than configured max size 100000"
        b" (amqp.max_message_size)"
    )
    assert m.decode_method(data, 7, len(data) - 1) == m.ChannelClose(406, text, 60, 40)


def test_a_small_limit_holds_for_messages_found_in_one_look() -> None:
    peer = open_peer(1, terms=make_terms(body_size_max=3))
    assert peer.give(message(1, b"abc"), message(1, b"abcd")) == "1 publish abc, ChannelClosed 1 406"


def test_properties_above_the_limit_end_their_channel() -> None:
    table = long(short(b"h"), b"S", long(b"x" * PROPERTIES_MAX))
    peer = open_peer(1)
    assert peer.give(message(1, b"x", b"\x20\x00" + table)) == "ChannelClosed 1 406"


def test_a_delivery_tag_that_was_never_given_ends_its_channel() -> None:
    peer = open_peer(1)
    assert peer.give(frame(1, 1, b"\x00\x3c\x00\x50" + b"\xff" * 8 + b"\x00")) == "ChannelClosed 1 406"
    peer.machine.end_channel(1)
    assert peer.take() == "1 ChannelClose 406"


def test_unfinished_messages_on_many_channels_have_a_limit_together() -> None:
    terms = make_terms()
    terms.gathered_max = 100
    peer = open_peer(1, 2, 3, terms=terms)
    head = [frame(1, at, publish(b"", b"q")) + frame(2, at, header(90, b"\x00\x00")) for at in (1, 2, 3)]
    assert peer.give(*head) == ""  # what is only announced does not count
    assert peer.give(frame(3, 1, bytes(30)), frame(3, 2, bytes(60))) == ""
    assert (
        peer.give(frame(3, 1, bytes(60)), frame(3, 2, bytes(20))) == "1 publish 90 bytes"
    )  # nor what is whole
    peer.machine.close_channel(2, 404, "no", 60, 40)  # nor what is dropped
    assert peer.give(head[0] + frame(3, 1, bytes(50)), frame(3, 3, bytes(50))) == ""
    peer.take_bytes()
    assert peer.give(frame(3, 3, b"x")) == "ChannelClosed 1, ChannelClosed 2, ChannelClosed 3"
    assert peer.take() == "0 ConnectionClose 506"
