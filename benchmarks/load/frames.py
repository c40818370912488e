"""MQTT packets as the load generator needs them: encoded once, then counted and answered in batches.

Invariants
- Every PUBLISH of one scenario has the same length, so packets are found by stride, not by parsing.
- A run found by stride is exact: each packet in it starts where the one before it ends, and has the same first byte.
- `PacketReader` is the opposite: slow, complete and independent of strides; it proves what the fast path counts.
"""

from __future__ import annotations

from typing import Final

CONNECT: Final = 0x10
CONNACK: Final = 0x20
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
SUBSCRIBE: Final = 0x82
SUBACK: Final = 0x90
DISCONNECT: Final = 0xE0

ANSWER_LENGTH: Final = 4  # PUBACK, PUBREC, PUBREL and PUBCOMP with nothing but a packet id
PACKET_SIZE_MAX: Final = 16 * 1024 * 1024
SEQUENCE_LENGTH: Final = 8


class FrameFault(Exception):
    """The broker sent bytes this generator did not expect; the figure would be worthless."""


class Packet:
    """One packet as read by `PacketReader`: its first byte and its body."""

    __slots__ = ("body", "first_byte")

    def __init__(self, first_byte: int, body: bytes) -> None:
        self.first_byte = first_byte
        self.body = body


def encode_length(length: int) -> bytes:
    """MQTT's variable byte integer."""
    encoded = bytearray()
    while True:
        digit = length % 128
        length //= 128
        if length == 0:
            encoded.append(digit)
            return bytes(encoded)
        encoded.append(digit | 0x80)


def encode_string(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def encode_packet(first_byte: int, body: bytes) -> bytes:
    return bytes([first_byte]) + encode_length(len(body)) + body


def encode_connect(client_id: bytes, version: int, keep_alive_s: int) -> bytes:
    """A clean session without user name; version is 4 (3.1.1) or 5."""
    properties = b"\x00" if version == 5 else b""
    head = encode_string(b"MQTT") + bytes([version, 0x02]) + keep_alive_s.to_bytes(2, "big")
    return encode_packet(CONNECT, head + properties + encode_string(client_id))


def encode_subscribe(packet_id: int, topic_filter: bytes, qos: int, version: int) -> bytes:
    properties = b"\x00" if version == 5 else b""
    body = packet_id.to_bytes(2, "big") + properties + encode_string(topic_filter) + bytes([qos])
    return encode_packet(SUBSCRIBE, body)


def encode_typical_properties(is_long: bool) -> bytes:
    """Message expiry, content type and one user property, with their length, as MQTT 5 puts them in PUBLISH.

    28 bytes as a sensor sends them, or 50 bytes with a trace identifier and a longer content type.
    """
    content_type = b"application/json" if is_long else b"text/plain"
    name, value = (b"trace", b"0123456789abcdef") if is_long else (b"unit", b"C")
    properties = (
        b"\x02"
        + (3600).to_bytes(4, "big")
        + b"\x03"
        + encode_string(content_type)
        + b"\x26"
        + encode_string(name)
        + encode_string(value)
    )
    return encode_length(len(properties)) + properties


def encode_publish(topic: bytes, payload: bytes, qos: int, packet_id: int, properties: bytes) -> bytes:
    """`properties` are empty for 3.1.1, else encoded with their length; `packet_id` is unused for QoS 0."""
    identifier = packet_id.to_bytes(2, "big") if qos > 0 else b""
    return encode_packet(PUBLISH | (qos << 1), encode_string(topic) + identifier + properties + payload)


def encode_payload(sequence: int, size: int) -> bytes:
    """A payload that starts with its sequence number, filled up with a byte no packet starts with."""
    return sequence.to_bytes(SEQUENCE_LENGTH, "big") + b"\x01" * (size - SEQUENCE_LENGTH)


def encode_cycle(
    topics: list[bytes], count: int, size: int, qos: int, properties: bytes, publisher: int
) -> bytes:
    """`count` publishes in a row, over the topics in turn, with packet ids from 1: sent again and again."""
    frames = bytearray()
    for index in range(count):
        topic = topics[index % len(topics)]
        payload = encode_payload((publisher << 32) | index, size)
        frames += encode_publish(topic, payload, qos, index + 1, properties)
    if len(frames) % count != 0:
        raise FrameFault("the publishes of one cycle differ in length")
    return bytes(frames)


def encode_answer_cycle(first_byte: int, count: int) -> bytes:
    """The answers a broker must give to one cycle of publishes, in order [MQTT-4.6.0-2]."""
    answers = bytearray()
    for index in range(count):
        answers += bytes([first_byte, 2]) + (index + 1).to_bytes(2, "big")
    return bytes(answers)


def count_run(buffer: bytearray, start: int, end: int, stride: int, first_byte: int) -> int:
    """How many whole packets of `stride` bytes that begin with `first_byte` stand in a row at `start`."""
    whole = (end - start) // stride
    if whole <= 0:
        return 0
    heads = buffer[start : start + whole * stride : stride]
    return whole - len(heads.lstrip(bytes([first_byte])))


def answer_run(
    buffer: bytearray, start: int, count: int, stride: int, id_offset: int, first_byte: int
) -> bytearray:
    """One answer per packet of a run, with the packet ids copied by stride."""
    answers = bytearray(bytes([first_byte, 2, 0, 0]) * count)
    end = start + count * stride
    answers[2::ANSWER_LENGTH] = buffer[start + id_offset : end : stride]
    answers[3::ANSWER_LENGTH] = buffer[start + id_offset + 1 : end : stride]
    return answers


class PacketReader:
    """Cuts any stream of MQTT packets, however the bytes arrive."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, chunk: bytes) -> list[Packet]:
        self._unread += chunk
        packets: list[Packet] = []
        position = 0
        while True:
            body_start, body_end = find_body(self._unread, position)
            if body_end < 0 or body_end > len(self._unread):
                break
            packets.append(Packet(self._unread[position], bytes(self._unread[body_start:body_end])))
            position = body_end
        del self._unread[:position]
        return packets

    def unread_length(self) -> int:
        return len(self._unread)


def find_body(buffer: bytearray, position: int) -> tuple[int, int]:
    """Start and end of the body of the packet at `position`; end is -1 while its length is incomplete."""
    length = 0
    shift = 0
    index = position + 1
    while index < len(buffer):
        digit = buffer[index]
        length |= (digit & 0x7F) << shift
        index += 1
        if digit < 0x80:
            if length > PACKET_SIZE_MAX:
                raise FrameFault(f"a packet of {length} bytes")
            return index, index + length
        shift += 7
        if shift > 21:
            raise FrameFault("a remaining length of more than four bytes")
    return index, -1


class Publication:
    """A PUBLISH taken apart by the complete parser."""

    __slots__ = ("packet_id", "payload", "qos", "topic")

    def __init__(self, topic: bytes, payload: bytes, qos: int, packet_id: int) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.packet_id = packet_id


def decode_publication(packet: Packet, version: int) -> Publication:
    """Topic, packet id and payload of a PUBLISH; MQTT 5 properties are skipped."""
    body = packet.body
    qos = (packet.first_byte >> 1) & 3
    position = 2 + int.from_bytes(body[:2], "big")
    topic = body[2:position]
    packet_id = 0
    if qos > 0:
        packet_id = int.from_bytes(body[position : position + 2], "big")
        position += 2
    if version == 5:
        start, end = find_body(bytearray(b"\x00" + body[position:]), 0)
        position += end - 1
        if start < 0 or end < 0:
            raise FrameFault("a PUBLISH whose properties are cut short")
    if position > len(body):
        raise FrameFault("a PUBLISH shorter than its own lengths")
    return Publication(topic, body[position:], qos, packet_id)


class Proof:
    """What the proof round must bring to each subscriber: from each publisher, messages 0 to count - 1, once."""

    def __init__(self, topics: set[bytes], qos: int, version: int, publishers: int, count: int) -> None:
        self.topics = topics
        self.qos = qos
        self.version = version
        self.publishers = publishers
        self.count = count

    def check(self, captured: bytes) -> None:
        """Parse everything one subscriber got; order must hold per publisher and topic [MQTT-4.6.0-6]."""
        reader = PacketReader()
        seen: dict[int, int] = {}
        last: dict[tuple[int, bytes], int] = {}
        for packet in reader.feed(captured):
            if packet.first_byte & 0xF0 != PUBLISH:
                continue
            if packet.first_byte & 0x08:
                raise FrameFault("a delivery marked as a duplicate on a connection that never broke")
            publication = decode_publication(packet, self.version)
            if publication.qos != self.qos or publication.topic not in self.topics:
                raise FrameFault("a delivery with another topic or QoS than published")
            sequence = int.from_bytes(publication.payload[:SEQUENCE_LENGTH], "big")
            seen[sequence] = seen.get(sequence, 0) + 1
            place = (sequence >> 32, publication.topic)
            if sequence <= last.get(place, -1):
                raise FrameFault("deliveries of one publisher and topic out of order")
            last[place] = sequence
        if reader.unread_length():
            raise FrameFault("the proof round ended inside a packet")
        expected = {
            (publisher << 32) | index: 1
            for publisher in range(self.publishers)
            for index in range(self.count)
        }
        if seen != expected:
            raise FrameFault("the proof round lost, repeated or invented messages")
