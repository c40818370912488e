"""Frames: kind, channel, size, payload, end. Content written in one go, and a whole publish found in one look.

Invariants
- Nothing is read behind `end`, and a frame is looked at only when all of it is there.
- What goes out never exceeds the size that was agreed on; a body is cut where it must be.
- PublishScan accepts only what the slow way (frame by frame) accepts, with the same result; on any doubt it says no
  and the slow way names the fault.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from millstream.model.outbox import LARGE, Outbox
from millstream.protocols.amqp091.wire.codes import (
    BASIC,
    BODY,
    FRAME_END,
    FRAME_ERROR,
    HEADER,
    HEARTBEAT,
    METHOD,
    UNEXPECTED_FRAME,
)
from millstream.protocols.amqp091.wire.methods import BasicAck, Method, encode_method
from millstream.protocols.amqp091.wire.violation import Violation

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
FRAME_OVERHEAD: Final[i64] = 8
HEADER_SIZE: Final[i64] = 12  # of a header frame's payload, before the properties
BODY_SIZE_HUGE: Final[i64] = 0x7FFFFFFFFFFFFFFF

_HEAD: Final[i64] = 7  # of a frame, before its payload
_PUBLISH: Final[i64] = (BASIC << 16) | 40
_DELIVER: Final[i64] = (BASIC << 16) | 60
_ACK: Final[i64] = (BASIC << 16) | 80


# ------------------------------------------------------------- reading


def find_frame_end(buffer: bytes, position: i64, end: i64, frame_max: i64) -> i64:
    """The position after the frame at `position`, 0 while it is incomplete.

    Kind, size and end are checked as soon as they are there. The payload is
    `buffer[position + 7 : found - 1]`.
    """
    if position + _HEAD > end:
        if position < end:
            _check_kind(buffer, position)
        return 0
    _check_kind(buffer, position)
    size: i64 = i64(read_i32_be(buffer, position + 3)) & 0xFFFFFFFF
    if frame_max and size + FRAME_OVERHEAD > frame_max:
        raise Violation(
            FRAME_ERROR,
            f"a frame of {int(size + FRAME_OVERHEAD)} bytes is over the limit of {int(frame_max)}",
        )
    if size and buffer[position] == HEARTBEAT:
        raise Violation(FRAME_ERROR, "a heartbeat carries nothing")
    after: i64 = position + size + FRAME_OVERHEAD
    if after > end:
        return 0
    if buffer[after - 1] != FRAME_END:
        raise Violation(FRAME_ERROR, "a frame does not end with 0xCE")
    return after


def _check_kind(buffer: bytes, position: i64) -> None:
    kind: i64 = buffer[position]
    if kind != METHOD and kind != HEADER and kind != BODY and kind != HEARTBEAT:
        raise Violation(FRAME_ERROR, f"there is no frame of type {int(kind)}")


def decode_header(buffer: bytes, position: i64, end: i64) -> tuple[i64, i64]:
    """(class, body size) of a header frame's payload; the properties begin HEADER_SIZE behind `position`.

    A size that fits into no i64 is given as BODY_SIZE_HUGE, over every limit.
    """
    if position + HEADER_SIZE + 2 > end:
        raise Violation(FRAME_ERROR, "a header frame is too short")
    if read_i16_be(buffer, position + 2) != 0:
        raise Violation(UNEXPECTED_FRAME, "the weight of a header frame must be 0")
    class_id: i64 = i64(read_i16_be(buffer, position)) & 0xFFFF
    body_size: i64 = read_i64_be(buffer, position + 4)
    return class_id, body_size if body_size >= 0 else BODY_SIZE_HUGE


@final
class PublishScan:
    """A basic.publish with its header and its body, if it has one, as offsets into the buffer that was scanned.

    One is made per connection and used again. The properties are not checked, beyond their size.
    """

    __slots__ = (
        "body_end",
        "body_start",
        "channel",
        "end",
        "exchange",
        "immediate",
        "mandatory",
        "properties_end",
        "properties_start",
        "routing_key",
    )

    def __init__(self) -> None:
        self.channel: i64 = 0
        self.exchange = b""
        self.routing_key = b""
        self.mandatory = False
        self.immediate = False
        self.properties_start: i64 = 0
        self.properties_end: i64 = 0
        self.body_start: i64 = 0
        self.body_end: i64 = 0
        self.end: i64 = 0

    def scan(self, buffer: bytes, position: i64, end: i64, frame_max: i64) -> bool:
        """Whether a whole and faultless one lies at `position`; otherwise the fields have no meaning."""
        payload: i64 = position + _HEAD
        if payload + 10 > end or buffer[position] != METHOD:
            return False
        if i64(read_i32_be(buffer, payload)) != _PUBLISH:
            return False
        header: i64 = _after_frame(buffer, position, end, frame_max)
        if header == 0 or not self._read_arguments(buffer, payload + 4, header - 1):
            return False
        channel: i64 = i64(read_i16_be(buffer, position + 1)) & 0xFFFF
        if channel == 0 or header + _HEAD + HEADER_SIZE + 2 > end or buffer[header] != HEADER:
            return False
        body: i64 = _after_frame(buffer, header, end, frame_max)
        self.properties_start = header + _HEAD + HEADER_SIZE
        self.properties_end = body - 1
        if body == 0 or self.properties_start + 2 > self.properties_end:
            return False
        if i64(read_i16_be(buffer, header + 1)) & 0xFFFF != channel:
            return False
        if i64(read_i32_be(buffer, header + _HEAD)) != BASIC << 16:  # the weight is 0
            return False
        body_size: i64 = read_i64_be(buffer, header + _HEAD + 4)
        self.channel = channel
        if body_size == 0:
            self.body_start = self.body_end = self.end = body
            return True
        if body + _HEAD > end or buffer[body] != BODY:
            return False
        after: i64 = _after_frame(buffer, body, end, frame_max)
        if after == 0 or after - body - FRAME_OVERHEAD != body_size:
            return False
        self.body_start = body + _HEAD
        self.body_end = after - 1
        self.end = after
        return i64(read_i16_be(buffer, body + 1)) & 0xFFFF == channel

    def _read_arguments(self, buffer: bytes, at: i64, end: i64) -> bool:
        """Ticket, exchange, routing key, bits. Names that come again keep their object: nothing is checked twice."""
        if at + 5 > end:
            return False
        key_at: i64 = at + 3 + i64(buffer[at + 2])
        if key_at >= end:
            return False
        bits_at: i64 = key_at + 1 + i64(buffer[key_at])
        if bits_at + 1 != end:
            return False
        exchange = buffer[at + 3 : key_at]
        if exchange != self.exchange:
            if not exchange.isascii():
                return False
            self.exchange = exchange
        routing_key = buffer[key_at + 1 : bits_at]
        if routing_key != self.routing_key:
            self.routing_key = routing_key
        bits: i64 = buffer[bits_at]
        self.mandatory = bits & 1 != 0
        self.immediate = bits & 2 != 0
        return True


def _after_frame(buffer: bytes, position: i64, end: i64, frame_max: i64) -> i64:
    """The position after the frame whose first seven bytes are there; 0 when it is not whole or not right."""
    size: i64 = i64(read_i32_be(buffer, position + 3)) & 0xFFFFFFFF
    after: i64 = position + size + FRAME_OVERHEAD
    if after > end or (frame_max and size + FRAME_OVERHEAD > frame_max) or buffer[after - 1] != FRAME_END:
        return 0
    return after


# ------------------------------------------------------------- writing


def write_frame(writer: BytesWriter, kind: i64, channel: i64, payload: bytes) -> None:
    _write_head(writer, kind, channel, len(payload))
    writer.write(payload)
    writer.append(u8(FRAME_END))


def _write_head(writer: BytesWriter, kind: i64, channel: i64, size: i64) -> None:
    writer.append(u8(kind))
    write_i16_be(writer, _as_i16(channel))
    write_i32_be(writer, i32(size))


def _as_i16(value: i64) -> i16:
    return i16(value - 0x10000 if value > 0x7FFF else value)


def write_method(writer: BytesWriter, channel: i64, method: Method) -> None:
    if isinstance(method, BasicAck):
        write_ack(writer, channel, method.delivery_tag, method.multiple)
    else:
        write_frame(writer, METHOD, channel, encode_method(method))


def write_ack(writer: BytesWriter, channel: i64, delivery_tag: i64, multiple: bool) -> None:
    """basic.ack without an object: a confirm for each publish, or for many."""
    _write_head(writer, METHOD, channel, 13)
    write_i32_be(writer, i32(_ACK))
    write_i64_be(writer, delivery_tag)
    writer.append(u8(1 if multiple else 0))
    writer.append(u8(FRAME_END))


def write_deliver(
    outbox: Outbox,
    channel: i64,
    consumer_tag: bytes,
    delivery_tag: i64,
    redelivered: bool,
    exchange: bytes,
    routing_key: bytes,
    properties: bytes,
    body: bytes,
    frame_max: i64,
) -> None:
    """basic.deliver and its content, without objects."""
    writer = outbox.open()
    size: i64 = 16 + len(consumer_tag) + len(exchange) + len(routing_key)
    _write_head(writer, METHOD, channel, size)
    write_i32_be(writer, i32(_DELIVER))
    _write_short_string(writer, consumer_tag)
    write_i64_be(writer, delivery_tag)
    writer.append(u8(1 if redelivered else 0))
    _write_short_string(writer, exchange)
    _write_short_string(writer, routing_key)
    writer.append(u8(FRAME_END))
    write_content(outbox, channel, BASIC, properties, body, frame_max)


def _write_short_string(writer: BytesWriter, text: bytes) -> None:
    assert len(text) <= 255, "a short string has at most 255 bytes"
    writer.append(u8(len(text)))
    writer.write(text)


def write_content(
    outbox: Outbox, channel: i64, class_id: i64, properties: bytes, body: bytes, frame_max: i64
) -> None:
    """A header frame and as many body frames as it takes; frame_max 0: no limit. Large bodies are not copied."""
    writer = outbox.open()
    body_size: i64 = len(body)
    _write_head(writer, HEADER, channel, HEADER_SIZE + len(properties))
    write_i16_be(writer, i16(class_id))
    write_i16_be(writer, i16(0))
    write_i64_be(writer, body_size)
    writer.write(properties)
    writer.append(u8(FRAME_END))
    room: i64 = frame_max - FRAME_OVERHEAD if frame_max > FRAME_OVERHEAD else body_size
    if body_size <= room:
        if body_size:
            _write_head(writer, BODY, channel, body_size)
            if body_size >= LARGE:
                outbox.write(body)
            else:
                writer.write(body)
            writer.append(u8(FRAME_END))
        return
    _write_pieces(outbox, channel, body, room)


def _write_pieces(outbox: Outbox, channel: i64, body: bytes, room: i64) -> None:
    writer = outbox.open()
    view = memoryview(body)
    at: i64 = 0
    size: i64 = len(body)
    while at < size:
        piece: i64 = min(room, size - at)
        _write_head(writer, BODY, channel, piece)
        outbox.write(view[at : at + piece])
        writer.append(u8(FRAME_END))
        at += piece
