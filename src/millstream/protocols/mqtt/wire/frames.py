"""PUBLISH as frames: a message encoded once for all its receivers, and runs passed on as they came.

A numbered delivery is one copy of the frame with the packet id patched in. A run is a piece of a
read buffer that holds whole QoS 0 PUBLISH packets; only receivers of another version make it be rewritten.
"""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, read_i64_le
from mypy_extensions import i64, mypyc_attr, u8

from millstream.model.message import NANOSECONDS, Encoding, Message
from millstream.model.native_properties import canonical_part
from millstream.model.outbox import LARGE
from millstream.model.outlet import Run


def same(buffer: bytes, one: i64, other: i64, count: i64) -> bool:
    """buffer[one:one+count] == buffer[other:other+count], without objects; both lie inside.

    The end is looked at first: topics of one client mostly differ there.
    """
    if count >= 8 and read_i64_le(buffer, one + count - 8) != read_i64_le(buffer, other + count - 8):
        return False
    at: i64 = 0
    while at + 32 <= count:
        difference: i64 = read_i64_le(buffer, one + at) ^ read_i64_le(buffer, other + at)
        difference |= read_i64_le(buffer, one + at + 8) ^ read_i64_le(buffer, other + at + 8)
        difference |= read_i64_le(buffer, one + at + 16) ^ read_i64_le(buffer, other + at + 16)
        difference |= read_i64_le(buffer, one + at + 24) ^ read_i64_le(buffer, other + at + 24)
        if difference != 0:
            return False
        at += 32
    while at + 8 <= count:
        if read_i64_le(buffer, one + at) != read_i64_le(buffer, other + at):
            return False
        at += 8
    if count >= 8:
        return True  # the last eight were compared first
    while at < count:
        if buffer[one + at] != buffer[other + at]:
            return False
        at += 1
    return True


def stands_at(buffer: bytes, position: i64, text: bytes) -> bool:
    """buffer[position:position+len(text)] == text; it lies inside."""
    count: i64 = len(text)
    at: i64 = 0
    while at + 8 <= count:
        if read_i64_le(buffer, position + at) != read_i64_le(text, at):
            return False
        at += 8
    while at < count:
        if buffer[position + at] != text[at]:
            return False
        at += 1
    return True


def append_length(writer: BytesWriter, value: i64) -> None:
    while value >= 0x80:
        writer.append(u8((value & 0x7F) | 0x80))
        value >>= 7
    writer.append(u8(value))


def append_head(writer: BytesWriter, first: i64, topic: bytes, rest: i64) -> None:
    """Fixed header and topic of a PUBLISH whose other parts take `rest` bytes."""
    length: i64 = len(topic)
    writer.append(u8(first))
    append_length(writer, 2 + length + rest)
    writer.append(u8(length >> 8))
    writer.append(u8(length & 0xFF))
    writer.write(topic)


@final
@mypyc_attr(acyclic=True)
class PublishFrames(Encoding):
    """Whole frames by QoS, packet id still open, and where the id goes. `prefix` is the part of the
    MQTT 5 properties that differs by receiver and time; the MQTT 5 frames were made for the last one.
    `own` is the frame as it came from an MQTT 5 publisher: good as it is while its expiry still says the truth."""

    def __init__(self) -> None:
        self.four_0: bytes | None = None
        self.four_1: bytes | None = None
        self.four_2: bytes | None = None
        self.five_0: bytes | None = None
        self.five_1: bytes | None = None
        self.five_2: bytes | None = None
        self.four_id_at: i64 = 0
        self.five_id_at: i64 = 0
        self.prefix = b""
        self.own: bytes | None = None
        self.own_qos: i64 = 0
        self.own_id_at: i64 = 0
        self.own_expiry_s: i64 = -1

    def get_four(self, message: Message, qos: i64) -> bytes:
        if qos == 1:
            frame = self.four_1
        elif qos == 2:
            frame = self.four_2
        else:
            frame = self.four_0
        return frame if frame is not None else self._make_four(message, qos)

    def find_own(self, message: Message, qos: i64, identifiers: tuple[int, ...], now_ns: i64) -> bytes | None:
        if self.own is None or self.own_qos != qos or identifiers:
            return None
        if message.expires_ns and message.remaining_s(now_ns) != self.own_expiry_s:
            return None
        return self.own

    def get_five(self, message: Message, qos: i64, prefix: bytes) -> bytes:
        if prefix != self.prefix:
            self.prefix = prefix
            self.five_0 = self.five_1 = self.five_2 = None
        if qos == 1:
            frame = self.five_1
        elif qos == 2:
            frame = self.five_2
        else:
            frame = self.five_0
        return frame if frame is not None else self._make_five(message, qos, prefix)

    def _make_four(self, message: Message, qos: i64) -> bytes:
        writer = BytesWriter()
        id_at: i64 = append_start(writer, 4, message.topic, qos, b"", b"", len(message.payload))
        if qos:  # QoS 0 has no id; its shorter frame must not move that of the others
            self.four_id_at = id_at
        writer.write(message.payload)
        frame = writer.getvalue()
        if qos == 1:
            self.four_1 = frame
        elif qos == 2:
            self.four_2 = frame
        else:
            self.four_0 = frame
        return frame

    def _make_five(self, message: Message, qos: i64, prefix: bytes) -> bytes:
        writer = BytesWriter()
        size: i64 = len(message.payload)
        block = canonical_part(message.properties)
        id_at: i64 = append_start(writer, 5, message.topic, qos, prefix, block, size)
        if qos:
            self.five_id_at = id_at
        writer.write(message.payload)
        frame = writer.getvalue()
        if qos == 1:
            self.five_1 = frame
        elif qos == 2:
            self.five_2 = frame
        else:
            self.five_0 = frame
        return frame


def append_start(
    writer: BytesWriter, version: i64, topic: bytes, qos: i64, prefix: bytes, block: bytes, payload_size: i64
) -> i64:
    """Everything of a PUBLISH before its payload, with packet id 0; gives where the id stands."""
    rest: i64 = payload_size
    if qos:
        rest += 2
    properties_size: i64 = 0
    if version == 5:
        properties_size = len(prefix) + len(block)
        rest += properties_size + size_of_length(properties_size)
    append_head(writer, 0x30 | (qos << 1), topic, rest)
    id_at: i64 = len(writer)
    if qos:
        writer.write(b"\x00\x00")
    if version == 5:
        append_length(writer, properties_size)
        writer.write(prefix)
        writer.write(block)
    return id_at


def size_of_length(value: i64) -> i64:
    if value < 0x80:
        return 1
    if value < 0x4000:
        return 2
    return 3 if value < 0x200000 else 4


def get_frames(message: Message) -> PublishFrames:
    encoding = message.encoding
    if isinstance(encoding, PublishFrames):
        return encoding
    frames = PublishFrames()
    frames.other = encoding
    message.encoding = frames
    return frames


def make_prefix(message: Message, identifiers: tuple[int, ...], now_ns: i64) -> bytes:
    """Message expiry as it is now, and subscription identifiers [MQTT-3.3.2-6, MQTT-3.3.4-3]."""
    if message.expires_ns == 0 and not identifiers:
        return b""
    writer = BytesWriter()
    if message.expires_ns:
        writer.append(u8(0x02))
        writer.write(int(message.remaining_s(now_ns)).to_bytes(4, "big"))
    for identifier in identifiers:
        writer.append(u8(0x0B))
        append_length(writer, identifier)
    return writer.getvalue()


@final
class FrameRun(Run):
    """Whole QoS 0 PUBLISH packets in buffer[start:end], all to the same targets."""

    def __init__(self, buffer: bytes, start: i64, end: i64, count: i64, version: i64, now_ns: i64) -> None:
        super().__init__(count, end - start)
        self._buffer = buffer
        self._start: i64 = start
        self._end: i64 = end
        self._version: i64 = version
        self._now_ns: i64 = now_ns
        self._four: bytes | memoryview | None = None
        self._five: bytes | memoryview | None = None
        self.publisher = ""

    def frames(self, version: i64) -> bytes | memoryview:
        if version == 5:
            five = self._five
            if five is None:
                five = self._own() if self._version == 5 else self._rewrite(5)
                self._five = five
            return five
        four = self._four
        if four is None:
            four = self._rewrite(4) if self._version == 5 else self._own()
            self._four = four
        return four

    def messages(self) -> list[Message]:
        found: list[Message] = []
        at: i64 = self._start
        while at < self._end:
            at = self._next(at, found, None, 0)
        return found

    def _own(self) -> bytes | memoryview:
        if self._start == 0 and self._end == len(self._buffer):
            return self._buffer
        if self._end - self._start >= LARGE:
            return memoryview(self._buffer)[self._start : self._end]  # a large read is not copied again
        return self._buffer[self._start : self._end]

    def _rewrite(self, version: i64) -> bytes:
        writer = BytesWriter()
        at: i64 = self._start
        while at < self._end:
            at = self._next(at, None, writer, version)
        return writer.getvalue()

    def _next(self, at: i64, found: list[Message] | None, writer: BytesWriter | None, version: i64) -> i64:
        """Take the packet at `at` apart; it was checked when it came in."""
        buffer = self._buffer
        size: i64 = 0
        shift: i64 = 0
        body: i64 = at + 1
        while True:
            byte: i64 = buffer[body]
            body += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        end: i64 = body + size
        payload_at: i64 = body + 2 + ((i64(buffer[body]) << 8) | i64(buffer[body + 1]))
        topic = buffer[body + 2 : payload_at]
        block_at: i64 = payload_at
        if self._version == 5:
            length: i64 = 0
            shift = 0
            while True:
                byte = buffer[block_at]
                block_at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            payload_at = block_at + length
        payload = buffer[payload_at:end]
        if writer is not None:
            append_start(writer, version, topic, 0, b"", buffer[block_at:payload_at], end - payload_at)
            writer.write(payload)
        if found is not None:
            block = buffer[block_at:payload_at]
            found.append(self._message(topic, payload, block))
        return end

    def _message(self, topic: bytes, payload: bytes, block: bytes) -> Message:
        expiry_s, block = split_expiry(block)
        expires_ns: i64 = 0
        if expiry_s >= 0:
            expires_ns = self._now_ns + expiry_s * NANOSECONDS
        return Message(topic, payload, 0, False, block, expires_ns, self.publisher)


def split_expiry(block: bytes) -> tuple[i64, bytes]:
    """(message expiry or -1, the other properties) of a checked block of PUBLISH properties."""
    at: i64 = 0
    size: i64 = len(block)
    while at < size:
        identifier: i64 = block[at]
        if identifier == 0x02:
            expiry = int.from_bytes(block[at + 1 : at + 5], "big")
            return expiry, block[:at] + block[at + 5 :]
        if identifier == 0x01:
            at += 2
        elif identifier == 0x26:
            at = _after_string(block, _after_string(block, at + 1))
        else:
            at = _after_string(block, at + 1)
    return -1, block


def _after_string(block: bytes, at: i64) -> i64:
    return at + 2 + ((i64(block[at]) << 8) | i64(block[at + 1]))
