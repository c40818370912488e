"""What goes to the peer: packets into the outbox, within the peer's limits, with topic aliases if it takes them."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64, u8

from millstream.model.message import Message
from millstream.model.native_properties import canonical_part
from millstream.model.outbox import LARGE, Outbox
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.frames import append_start, get_frames, make_prefix
from millstream.protocols.mqtt.wire.packets import ConnAck, Disconnect, Packet
from millstream.protocols.mqtt.wire.properties import Properties

DUP: Final[i64] = 0x08
RETAIN: Final[i64] = 0x01


@final
class Outbound:
    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.version: i64 = 4
        self.packet_size_max: i64 = 0  # the peer's; 0: it named none
        self.with_problem_information = True
        self._alias_max: i64 = 0
        self._aliases: dict[bytes, int] | None = None

    def allow_aliases(self, count: i64) -> None:
        self._alias_max = count
        self._aliases = {} if count else None

    def send_packet(self, packet: Packet) -> None:
        data = self.encode(packet)
        if data:
            self.outbox.write(data)

    def encode(self, packet: Packet) -> bytes:
        """Within what the peer takes; empty when it cannot be sent at all [MQTT-3.1.2-24]."""
        data = encode_packet(packet, int(self.version))
        if self.packet_size_max and len(data) > self.packet_size_max:
            if not isinstance(packet, (ConnAck, Disconnect)):
                return b""
            packet.properties = None  # the reason alone mostly fits [MQTT-3.14.2-3, MQTT-3.2.2-19]
            data = encode_packet(packet, int(self.version))
            if len(data) > self.packet_size_max:
                return b""
        return data

    def explain(self, text: str) -> Properties:
        """Properties that say why, for a peer that wants to know [MQTT-3.1.2-29]."""
        properties = Properties()
        if self.with_problem_information:
            properties.reason_string = text.encode()
        return properties

    def send_bytes(self, data: bytes) -> None:
        self.outbox.write(data)

    def send_word(self, word: i64) -> None:
        """A four-byte packet: PUBACK, PUBREC, PUBREL or PUBCOMP with nothing to add."""
        write_i32_be(self.outbox.open(), i32(word))

    def send_frames(self, frames: bytes | memoryview) -> None:
        """A run, already in this peer's version."""
        self.outbox.write(frames)

    def can_take_runs(self) -> bool:
        """Whether runs may pass as they are: no size to check, no alias to use."""
        return self.packet_size_max == 0 and self._alias_max == 0

    def send_publish(
        self,
        message: Message,
        qos: i64,
        packet_id: i64,
        flags: i64,
        identifiers: tuple[int, ...],
        now_ns: i64,
    ) -> bool:
        """False when the packet is larger than the peer takes [MQTT-3.1.2-24]."""
        if len(message.payload) >= LARGE or self._alias_max:
            return self._send_in_parts(
                message, qos, packet_id, flags, make_prefix(message, identifiers, now_ns)
            )
        frames = get_frames(message)
        if self.version == 5:
            own = frames.find_own(message, qos, identifiers, now_ns)
            if own is not None:
                frame = own
                id_at: i64 = frames.own_id_at
            else:
                frame = frames.get_five(message, qos, make_prefix(message, identifiers, now_ns))
                id_at = frames.five_id_at
        else:
            frame = frames.get_four(message, qos)
            id_at = frames.four_id_at
        if self.packet_size_max and len(frame) > self.packet_size_max:
            return False
        writer = self.outbox.open()
        at: i64 = len(writer)
        writer.write(frame)
        if flags:
            writer[at] = u8(0x30 | (qos << 1) | flags)
        if qos:
            writer[at + id_at] = u8(packet_id >> 8)
            writer[at + id_at + 1] = u8(packet_id & 0xFF)
        return True

    def _send_in_parts(self, message: Message, qos: i64, packet_id: i64, flags: i64, prefix: bytes) -> bool:
        """A large payload goes by reference; only what stands before it is made anew."""
        topic = message.topic
        if self._alias_max:
            topic, prefix = self._use_alias(topic, prefix)
        size: i64 = len(message.payload)
        start = BytesWriter()
        block = canonical_part(message.properties)
        id_at: i64 = append_start(start, self.version, topic, qos, prefix, block, size)
        if self.packet_size_max and len(start) + size > self.packet_size_max:
            if topic and self._aliases is not None:
                self._aliases.pop(topic, None)  # the peer never learned this alias
            return False
        if flags:
            start[0] = u8(0x30 | (qos << 1) | flags)
        if qos:
            start[id_at] = u8(packet_id >> 8)
            start[id_at + 1] = u8(packet_id & 0xFF)
        self.outbox.write(start.getvalue())
        self.outbox.write(message.payload)
        return True

    def _use_alias(self, topic: bytes, prefix: bytes) -> tuple[bytes, bytes]:
        """The first topics of a connection get an alias; later ones travel in full."""
        aliases = self._aliases
        assert aliases is not None
        alias = aliases.get(topic)
        if alias is not None:
            return b"", prefix + b"\x23" + alias.to_bytes(2, "big")
        if len(aliases) >= self._alias_max:
            return topic, prefix
        alias = len(aliases) + 1
        aliases[topic] = alias
        return topic, prefix + b"\x23" + alias.to_bytes(2, "big")
