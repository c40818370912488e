"""Frames: found, refused, written; and a whole publish seen in one look."""

from __future__ import annotations

import pytest
from vectors.amqp091_contents import EVERYTHING, PUBLISHES
from vectors.amqp091_vector import FRAME, FRAME_MAX, frame, header, method, publish, short

from millstream.model.outbox import LARGE, Flushable, Outbox, OutboxPool, Wakeup
from millstream.protocols.amqp091.wire.codes import BASIC, METHOD
from millstream.protocols.amqp091.wire.frames import (
    BODY_SIZE_HUGE,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    PublishScan,
    decode_header,
    find_frame_end,
    write_ack,
    write_content,
    write_deliver,
    write_frame,
    write_method,
)
from millstream.protocols.amqp091.wire.methods import BasicAck, QueueBindOk
from millstream.protocols.amqp091.wire.violation import Violation


class NoWakeup(Wakeup):
    def request(self) -> None:
        pass


class NoTransport(Flushable):
    def flush(self) -> None:
        pass

    def on_flush_failed(self, error: Exception) -> None:
        raise error


@pytest.fixture
def outbox() -> Outbox:
    return Outbox(OutboxPool(NoWakeup()), NoTransport())


# ------------------------------------------------------------- reading


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_the_end_of_a_frame_is_found_when_all_of_it_is_there(kind: int) -> None:
    data = frame(kind, 7, b"payload")
    for length in range(len(data)):
        assert find_frame_end(b"xx" + data, 2, 2 + length, FRAME_MAX) == 0
    assert find_frame_end(b"xx" + data + b"y", 2, len(data) + 3, FRAME_MAX) == 2 + len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\x04\x00\x00\x00\x00\x00\x00",
        b"A",  # a second protocol header
        frame(1, 0, b"x")[:-1] + b"\xcd",
        frame(8, 0, b"x"),
        frame(1, 0, b"x" * (FRAME_MAX - 7)),
        b"\x01\x00\x00\xff\xff\xff\xff",
        b"\x03\x00\x01\x00\x00\x0f\xf9",  # one byte over, refused before the rest has come
    ],
)
def test_a_bad_frame_is_refused(data: bytes) -> None:
    with pytest.raises(Violation) as caught:
        find_frame_end(data, 0, len(data), FRAME_MAX)
    assert (caught.value.code, caught.value.is_hard) == (FRAME, True)


def test_a_frame_may_have_the_largest_size_and_any_when_there_is_none() -> None:
    data = frame(3, 1, b"x" * (FRAME_MAX - 8))
    assert find_frame_end(data, 0, len(data), FRAME_MAX) == FRAME_MAX
    data = frame(3, 1, b"x" * FRAME_MAX)
    assert find_frame_end(data, 0, len(data), 0) == len(data)


def test_a_heartbeat_is_a_frame_and_the_protocol_has_a_header() -> None:
    assert frame(8, 0) == HEARTBEAT_FRAME
    assert b"AMQP" + bytes([0, 0, 9, 1]) == PROTOCOL_HEADER


def test_a_header_frame_tells_class_and_body_size() -> None:
    data = b"xx" + header(5, b"\x00\x00", 85)
    assert decode_header(data, 2, len(data)) == (85, 5)
    data = header((1 << 64) - 1, b"\x00\x00")
    assert decode_header(data, 0, len(data)) == (60, BODY_SIZE_HUGE)


@pytest.mark.parametrize(
    ("data", "code"),
    [(header(5, b"\x00"), FRAME), (b"\x00\x3c\x00\x01" + b"\x00" * 10, 505)],
    ids=["short", "weight"],
)
def test_a_header_frame_without_flags_or_with_a_weight_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(Violation) as caught:
        decode_header(data, 0, len(data))
    assert caught.value.code == code


# ------------------------------------------------------------- a whole publish


def scan(data: bytes, frame_max: int = FRAME_MAX) -> PublishScan | None:
    found = PublishScan()
    return found if found.scan(data, 0, len(data), frame_max) else None


def test_a_publish_with_a_body_is_found_in_one_look() -> None:
    buffer = b"before" + PUBLISHES[1] + b"after"
    found = PublishScan()
    assert found.scan(buffer, 6, len(buffer), FRAME_MAX)
    assert (found.channel, found.exchange, found.routing_key) == (1, b"e", b"a.b")
    assert (found.mandatory, found.immediate) == (True, False)
    assert buffer[found.properties_start : found.properties_end] == EVERYTHING
    assert buffer[found.body_start : found.body_end] == b"body"
    assert found.end == 6 + len(PUBLISHES[1])


def test_a_publish_without_a_body_ends_with_its_header() -> None:
    found = scan(PUBLISHES[0] + frame(3, 1, b"of another"))
    assert found is not None
    assert found.body_start == found.body_end == found.end == len(PUBLISHES[0])


def test_a_scan_is_used_again_and_keeps_names_that_come_again() -> None:
    found = PublishScan()
    assert found.scan(PUBLISHES[1], 0, len(PUBLISHES[1]), FRAME_MAX)
    exchange, key = found.exchange, found.routing_key
    assert found.scan(PUBLISHES[2], 0, len(PUBLISHES[2]), FRAME_MAX)
    assert (found.mandatory, found.immediate) == (True, True)
    assert found.exchange is exchange
    assert (key, found.routing_key) == (b"a.b", b"k")


def test_a_key_may_be_any_bytes() -> None:
    found = scan(frame(1, 1, publish(b"e", b"\xff\x00")) + frame(2, 1, header(0, b"\x00\x00")))
    assert found is not None
    assert found.routing_key == b"\xff\x00"


def test_a_publish_cut_anywhere_is_not_found() -> None:
    for data in PUBLISHES[:3]:
        for length in range(len(data)):
            assert not PublishScan().scan(data, 0, length, FRAME_MAX)


START = frame(1, 1, publish(b"e", b"k"))
HEAD = frame(2, 1, header(2, b"\x00\x00"))
BODY = frame(3, 1, b"ab")


@pytest.mark.parametrize(
    "data",
    [
        PUBLISHES[3],  # an exchange that is not ASCII
        PUBLISHES[4],  # a body in pieces
        frame(1, 0, publish(b"e", b"k")) + frame(2, 0, header(0, b"\x00\x00")),
        frame(1, 1, method(60, 41, b"\x00" * 8)) + HEAD + BODY,
        frame(2, 1, publish(b"e", b"k")) + HEAD + BODY,
        frame(1, 1, publish(b"e", b"k"), b"\x00") + HEAD + BODY,
        frame(1, 1, method(60, 40, b"\x00\x00", short(b"e"), b"\xffk\x00")) + HEAD + BODY,
        frame(1, 1, method(60, 40, b"\x00\x00", b"\xff", b"\x00" * 4)) + HEAD + BODY,
        START[:-1] + b"\x00" + HEAD + BODY,
        START + HEAD[:-1] + b"\x00" + BODY,
        START + HEAD + BODY[:-1] + b"\x00",
        START + frame(2, 2, header(2, b"\x00\x00")) + BODY,
        START + frame(2, 1, header(2, b"\x00\x00", 10)) + BODY,
        START + frame(2, 1, header(2, b"\x00")) + BODY,
        START + frame(2, 1, b"\x00\x3c\x00\x01", header(2, b"\x00\x00")[4:]) + BODY,
        START + frame(2, 1, header(3, b"\x00\x00")) + BODY,
        START + frame(2, 1, header((1 << 64) - 2, b"\x00\x00")) + BODY,
        START + frame(1, 1, header(2, b"\x00\x00")) + BODY,
        START + HEAD + frame(3, 2, b"ab"),
        START + HEAD + frame(2, 1, b"ab"),
        START + HEAD + START,
        START + frame(3, 1, b"ab") + HEAD,
        START + frame(2, 1, header(0xFFA, b"\x00\x00")) + frame(3, 1, b"x" * 0xFFA),
    ],
)
def test_whatever_is_unusual_goes_the_slow_way(data: bytes) -> None:
    assert scan(data) is None


def test_without_a_limit_large_frames_are_found() -> None:
    data = START + frame(2, 1, header(9000, b"\x00\x00")) + frame(3, 1, b"x" * 9000)
    found = scan(data, 0)
    assert found is not None
    assert found.body_end - found.body_start == 9000


# ------------------------------------------------------------- writing


@pytest.mark.parametrize("channel", [0, 1, 32767, 32768, 65535])
def test_a_method_is_written_as_a_frame(outbox: Outbox, channel: int) -> None:
    write_method(outbox.open(), channel, QueueBindOk())
    write_frame(outbox.open(), METHOD, channel, b"payload")
    assert outbox.take_all() == frame(1, channel, method(50, 21)) + frame(1, channel, b"payload")


def test_an_ack_is_written_without_an_object_in_the_same_bytes(outbox: Outbox) -> None:
    for multiple in (False, True):
        write_method(outbox.open(), 1, BasicAck(258, multiple))
        write_ack(outbox.open(), 1, 258, multiple)
        expected = frame(1, 1, method(60, 80, (258).to_bytes(8, "big"), bytes([multiple])))
        assert outbox.take_all() == expected * 2


def test_a_delivery_is_written_in_one_go(outbox: Outbox) -> None:
    write_deliver(outbox, 2, b"t", 258, True, b"e", b"k", EVERYTHING, b"body", FRAME_MAX)
    tag = (258).to_bytes(8, "big")
    assert outbox.take_all() == (
        frame(1, 2, method(60, 60, short(b"t"), tag, b"\x01", short(b"e"), short(b"k")))
        + frame(2, 2, header(4, EVERYTHING))
        + frame(3, 2, b"body")
    )


def test_an_empty_body_has_no_frame(outbox: Outbox) -> None:
    write_content(outbox, 1, BASIC, b"\x00\x00", b"", FRAME_MAX)
    assert outbox.take_all() == frame(2, 1, header(0, b"\x00\x00"))


@pytest.mark.parametrize("size", [1, LARGE - 9, LARGE - 8, LARGE - 7, 2 * (LARGE - 8), 2 * LARGE, 20_000])
def test_a_body_is_cut_at_the_frame_size(outbox: Outbox, size: int) -> None:
    body = bytes(range(256)) * 80
    body = body[:size]
    write_content(outbox, 1, BASIC, b"\x00\x00", body, FRAME_MAX)
    room = FRAME_MAX - 8
    pieces = [frame(3, 1, body[at : at + room]) for at in range(0, size, room)]
    assert bytes(outbox.take_all()) == frame(2, 1, header(size, b"\x00\x00")) + b"".join(pieces)


@pytest.mark.parametrize("frame_max", [0, 1 << 17])
def test_contents_behind_one_another_keep_their_order(outbox: Outbox, frame_max: int) -> None:
    expected = b""
    for size in (10, 5000, 4096, 1, 50_000):
        body = b"%d" % (size % 10) * size
        write_content(outbox, 1, BASIC, b"\x00\x00", body, frame_max)
        expected += frame(2, 1, header(size, b"\x00\x00")) + frame(3, 1, body)
    assert outbox.take_all() == expected
