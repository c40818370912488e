"""Frames made once for all receivers: versions, guarantees, identifiers and time do not get mixed up."""

from __future__ import annotations

from itertools import product

import pytest
from fakes import SIZE_MAX, START_NS
from librt.strings import BytesWriter

from millstream.model.message import NANOSECONDS, Message
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.frames import (
    PublishFrames,
    append_length,
    get_frames,
    make_prefix,
    same,
    size_of_length,
    split_expiry,
    stands_at,
)
from millstream.protocols.mqtt.wire.packets import Publish
from millstream.protocols.mqtt.wire.primitives import encode_varint
from millstream.protocols.mqtt.wire.properties import Properties


def make_message(payload: bytes = b"p", expiry_s: int = 0) -> Message:
    expires_ns = START_NS + expiry_s * NANOSECONDS if expiry_s else 0
    return Message(b"a/b", payload, 2, False, b"\x01\x01", expires_ns, "")


def decode(frame: bytes, version: int) -> Publish:
    packet, end = decode_frame(with_id(frame, version), 0, version, SIZE_MAX)
    assert isinstance(packet, Publish)
    assert end == len(frame)
    return packet


def with_id(frame: bytes, version: int) -> bytes:
    """Patch id 1 in where the frame has its open id: behind the topic."""
    if frame[0] & 6 == 0:
        return frame
    at = 1
    while frame[at] >= 0x80:
        at += 1
    at += 1 + 2 + 3
    assert frame[at : at + 2] == b"\x00\x00"
    return frame[:at] + b"\x00\x01" + frame[at + 2 :]


def has_id_at(frame: bytes, at: int) -> bool:
    return frame[at - 3 : at] == b"a/b" and frame[at : at + 2] == b"\x00\x00"


@pytest.mark.parametrize(
    "size", [0, 1, 117, 118, 119, 120, 121, 122, 123, 16374, 16375, 16376, 16377, 16378, 16379]
)
def test_the_place_of_the_id_is_right_for_every_order_in_which_frames_are_made(size: int) -> None:
    for order in product([0, 1, 2], repeat=3):
        message = make_message(bytes(size))
        frames = get_frames(message)
        for qos in order:
            frames.get_four(message, qos)
            frames.get_five(message, qos, b"")
        for qos in order:
            if qos:
                assert has_id_at(frames.get_four(message, qos), int(frames.four_id_at))
                assert has_id_at(frames.get_five(message, qos, b""), int(frames.five_id_at))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_frame_says_what_the_message_says(qos: int) -> None:
    message = make_message()
    properties = Properties()
    properties.payload_format_indicator = 1
    wanted = Publish(b"a/b", b"p", qos, packet_id=1 if qos else 0)
    assert decode(get_frames(message).get_four(message, qos), 4) == wanted
    wanted.properties = properties
    assert decode(get_frames(message).get_five(message, qos, b""), 5) == wanted


def test_frames_are_made_once_and_again_only_for_another_prefix() -> None:
    message = make_message()
    frames = get_frames(message)
    assert get_frames(message) is frames
    assert frames.get_four(message, 1) is frames.get_four(message, 1)
    first = frames.get_five(message, 1, b"")
    assert frames.get_five(message, 1, b"") is first
    other = frames.get_five(message, 1, make_prefix(message, (3,), START_NS))
    assert decode(other, 5).properties != decode(first, 5).properties
    assert frames.get_five(message, 1, b"") == first


def test_the_prefix_tells_the_time_that_is_left_and_every_identifier() -> None:
    message = make_message(expiry_s=10)
    later_ns = START_NS + 3 * NANOSECONDS + 1
    frame = get_frames(message).get_five(message, 0, make_prefix(message, (1, 200, 268_435_455), later_ns))
    properties = decode(frame, 5).properties
    assert properties is not None
    assert properties.message_expiry_interval == 7
    assert properties.subscription_identifiers == [1, 200, 268_435_455]


def test_the_publishers_own_frame_is_used_while_it_tells_the_truth() -> None:
    message = make_message(expiry_s=10)
    frames = PublishFrames()
    frames.own, frames.own_qos, frames.own_expiry_s = b"frame", 1, 10
    assert frames.find_own(message, 1, (), START_NS) == b"frame"
    assert frames.find_own(message, 2, (), START_NS) is None
    assert frames.find_own(message, 1, (4,), START_NS) is None
    assert frames.find_own(message, 1, (), START_NS + NANOSECONDS) is None


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455])
def test_lengths_are_written_as_the_codec_writes_them(value: int) -> None:
    writer = BytesWriter()
    append_length(writer, value)
    assert writer.getvalue() == encode_varint(value)
    assert size_of_length(value) == len(encode_varint(value))


def test_pieces_of_a_buffer_are_compared_to_the_last_byte() -> None:
    for size in range(1, 40):
        text = bytes(range(1, size + 1))
        assert same(text + text, 0, size, size)
        for at in range(size):
            changed = bytearray(text)
            changed[at] ^= 0x80
            assert not same(text + bytes(changed), 0, size, size)
    assert same(b"ab", 0, 1, 0)


def test_a_text_is_recognised_where_it_stands() -> None:
    for size in range(40):
        text = bytes(range(1, size + 1))
        assert stands_at(b"xy" + text, 2, text)
        for at in range(size):
            changed = bytearray(text)
            changed[at] ^= 0x80
            assert not stands_at(b"xy" + bytes(changed), 2, text)


@pytest.mark.parametrize(
    ("block", "expiry_s", "rest"),
    [
        (b"", -1, b""),
        (b"\x02\x00\x00\x00\x09", 9, b""),
        (b"\x01\x01\x02\x00\x00\x01\x00", 256, b"\x01\x01"),
        (
            b"\x26\x00\x01\x02\x00\x01\x02\x02\x00\x00\x00\x05\x03\x00\x01x",
            5,
            b"\x26\x00\x01\x02\x00\x01\x02\x03\x00\x01x",
        ),
        (b"\x09\x00\x02\x02\x02\x08\x00\x01r", -1, b"\x09\x00\x02\x02\x02\x08\x00\x01r"),
    ],
)
def test_the_expiry_is_taken_out_of_a_block_wherever_it_stands(
    block: bytes, expiry_s: int, rest: bytes
) -> None:
    assert split_expiry(block) == (expiry_s, rest)
