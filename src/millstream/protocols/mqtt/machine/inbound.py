"""From bytes to events: packets found in what was read, PUBLISH and its answers taken apart on the spot.

This is the hot path of the broker. QoS 0 publishes that follow each other to one topic with equal properties
become one event; everything else that is frequent costs one small event; all other packets go
through the codec.

Invariants
- Bytes are looked at once; an incomplete packet is kept and joined when the rest has come.
- A length is compared with its limit before anything is kept for it.
- Nothing is parsed before the peer may send it: `is_waiting` stops the scan after a packet.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i32_le
from mypy_extensions import i32, i64

from millstream.model.outbox import LARGE
from millstream.protocols.mqtt.machine.events import (
    AnswerReceived,
    Event,
    PingReceived,
    PublishBatchReceived,
    PublishReceived,
    RunReceived,
)
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.wire.decode import decode_packet
from millstream.protocols.mqtt.wire.frames import same, split_expiry, stands_at
from millstream.protocols.mqtt.wire.packets import Answer, Packet
from millstream.protocols.mqtt.wire.reason_codes import (
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    TOPIC_ALIAS_INVALID,
)
from millstream.protocols.mqtt.wire.violation import Violation

PUBLISH: Final[i64] = 3
ACCEPTED: Final[i64] = 0x4002_0000  # PUBACK; the packet id goes into the lower half
PING: Final = PingReceived()
ALIAS_UNKNOWN: Final = (
    "stands for no topic on this connection; for a client that keeps its aliases over a reconnect, set "
    "mqtt.topic_alias_maximum to 0"
)
PADDED: Final = "the remaining length is longer than its value needs"


class Inbound:
    """State of the scan over one connection's input."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.version: i64 = 0  # 0: CONNECT has not come
        self.is_open = False  # the client is connected: any packet may come
        self.is_waiting = False  # an answer from outside is awaited: nothing is parsed
        self.is_stalled = False  # what was parsed has not been acted on yet: nothing more is
        self.batches_publishes = False  # QoS 1 publishes that are alike come as one event
        self.pads = False  # its lengths may be padded: legal before MQTT 5, passed on to nobody
        self._size_max: i64 = terms.connect_packet_size_max
        self._kept: list[bytes] | None = None
        self._kept_size: i64 = 0
        self._needed: i64 = 0
        self._aliases: dict[int, bytes] | None = None
        # the last topic of the buffer at hand: where it stands with its length, and as an object
        self._topic_at: i64 = 0
        self._topic_size: i64 = 0
        self._topic = b""
        # the last PUBLISH properties of the buffer at hand, checked and free of an alias
        self._block_at: i64 = 0
        self._block_size: i64 = 0
        self._block = b""
        self._block_expiry_s: i64 = -1

    @abstractmethod
    def _on_control(self, packet: Packet, now_ns: i64, events: list[Event]) -> None: ...

    def kept_bytes(self) -> i64:
        """Of a packet that has not come whole, and of the topics that aliases stand for."""
        size: i64 = 0 if self._kept is None else self._kept_size
        if self._aliases is not None:
            for topic in self._aliases.values():
                size += len(topic)
        return size

    def _receive(self, data: bytes, now_ns: i64, events: list[Event]) -> None:
        position: i64 = 0
        kept = self._kept
        if kept is not None or self.is_waiting or self.is_stalled:
            if kept is None:
                kept = self._kept = []
                self._kept_size = 0
            missing: i64 = self._needed - self._kept_size
            kept.append(data)
            self._kept_size += len(data)
            if self._kept_size < self._needed or self.is_waiting or self.is_stalled:
                return
            self._kept = None
            if 0 < missing < len(data) and self.is_open:
                # complete the one packet that was cut; the rest of a large read is not copied for it
                kept[len(kept) - 1] = data[:missing]
                self._scan(b"".join(kept), 0, now_ns, events)
                position = missing
            else:
                data = b"".join(kept)
        position = self._scan(data, position, now_ns, events)
        if position < len(data):
            self._kept = [data if position == 0 else data[position:]]
            self._kept_size = len(data) - position

    def _scan(self, data: bytes, position: i64, now_ns: i64, events: list[Event]) -> i64:
        """Handle every complete packet from `position` on; gives where the first incomplete one begins."""
        available: i64 = len(data)
        self._topic_size = 0
        self._block_size = 0
        self._needed = 0
        while position + 2 <= available and not self.is_waiting:
            first: i64 = data[position]
            if not self.is_open and self.version == 0 and first >> 4 != 1:
                raise Violation(PROTOCOL_ERROR, "CONNECT must come first")  # [MQTT-3.1.0-1]
            size: i64 = data[position + 1]
            body: i64 = position + 2
            if size >= 0x80:
                body, size = self._long_size(data, position, available)
                if size < 0:
                    break
            end: i64 = body + size
            if end - position > self._size_max:  # the whole packet counts, header included [MQTT-3.2.2-15]
                raise Violation(PACKET_TOO_LARGE, "the packet is larger than the broker takes")
            if end > available:
                self._needed = end - position
                break
            if first == 0x30 and self.is_open and not self.pads:
                end = self._scan_run(data, position, body, end, now_ns, events)
            elif first >> 4 == PUBLISH and self.is_open:
                event = self._on_publish(data, first, position, body, end, events)
                if first == 0x32 and self.batches_publishes and not self.pads:
                    end = self._gather_alike(event, data, end, events)
            elif size == 2 and self.is_open and self._is_plain_answer(first):
                self._on_plain_answer(data, first, body, events)
            elif first == 0xC0 and size == 0 and self.is_open:
                events.append(PING)
            else:
                packet = decode_packet(
                    data, int(first), int(body), int(end), int(self.version), self.terms.filters_max
                )
                if isinstance(packet, Answer) and self.is_open:
                    events.append(AnswerReceived(first >> 4, packet.packet_id, packet.reason))
                else:
                    self._on_control(packet, now_ns, events)
            position = end
        return position

    def _long_size(self, data: bytes, position: i64, available: i64) -> tuple[i64, i64]:
        """(where the body begins, remaining length), the latter -1 when more bytes are needed."""
        at: i64 = position + 1
        size: i64 = 0
        shift: i64 = 0
        while at < available:
            byte: i64 = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0:
                    self._on_padded()
                return at, size
            shift += 7
            if shift > 21:
                raise Violation(MALFORMED_PACKET, "the remaining length has more than four bytes")
        return at, -1

    def _on_padded(self) -> None:
        if self.version == 5:  # [MQTT-1.5.5-1]; of a CONNECT the version is not known yet
            raise Violation(MALFORMED_PACKET, PADDED)
        self.pads = True

    def _scan_run(
        self, data: bytes, start: i64, body: i64, end: i64, now_ns: i64, events: list[Event]
    ) -> i64:
        """Take a QoS 0 publish and all that follow it with the same topic and properties; gives where they end."""
        size: i64 = end - body
        topic = self._read_topic(data, body, size)
        prefix: i64 = self._topic_size
        if self.version == 5:
            scan = self.terms.scan
            scan.scan(data, body + prefix, end)
            if scan.topic_alias or len(topic) == 0:
                self._on_publish(data, 0x30, start, body, end, events)
                return end
            prefix = scan.position - body
        elif len(topic) == 0:
            raise Violation(PROTOCOL_ERROR, "a topic must have at least one character")  # [MQTT-4.7.3-1]
        message_size_max: i64 = self.terms.message_size_max
        if size - prefix > message_size_max:
            raise Violation(PACKET_TOO_LARGE, "the message is larger than the broker takes")
        run = RunReceived(data, start, end, 1, topic)
        events.append(run)  # before the loop: what comes behind may turn out malformed
        available: i64 = len(data)
        position: i64 = end
        while position + 2 <= available and data[position] == 0x30:
            size = data[position + 1]
            following: i64 = position + 2
            if size >= 0x80:
                following, size = self._long_size(data, position, available)
                if self.pads:
                    break
            if size < prefix or following + size > available or size - prefix > message_size_max:
                break
            if following + size - position > self._size_max or not same(data, body, following, prefix):
                break
            position = following + size
            run.end = position
            run.count += 1
        return position

    def _read_topic(self, data: bytes, body: i64, size: i64) -> bytes:
        known: i64 = self._topic_size
        if known and known <= size and same(data, self._topic_at, body, known):
            return self._topic
        if size < 2:
            raise Violation(MALFORMED_PACKET, "the packet ends inside its topic")
        length: i64 = 2 + ((i64(data[body]) << 8) | i64(data[body + 1]))
        if length > size:
            raise Violation(MALFORMED_PACKET, "the packet ends inside its topic")
        self._topic_at = body
        self._topic_size = length
        # most clients publish to the topic of their last read: the same object saves looking up its route
        if known or length != len(self._topic) + 2 or not stands_at(data, body + 2, self._topic):
            self._topic = data[body + 2 : body + length]
        return self._topic

    def _on_publish(
        self, data: bytes, first: i64, start: i64, body: i64, end: i64, events: list[Event]
    ) -> PublishReceived:
        qos: i64 = (first >> 1) & 3
        if qos == 3:
            raise Violation(MALFORMED_PACKET, "QoS 3 does not exist")  # [MQTT-3.3.1-4]
        dup = first & 8 != 0
        if dup and qos == 0:
            raise Violation(MALFORMED_PACKET, "DUP must not be set at QoS 0")  # [MQTT-3.3.1-2]
        topic = self._read_topic(data, body, end - body)
        at: i64 = body + self._topic_size
        packet_id: i64 = 0
        id_at: i64 = at - start
        if qos:
            if at + 2 > end:
                raise Violation(MALFORMED_PACKET, "the packet ends inside its packet identifier")
            packet_id = (i64(data[at]) << 8) | i64(data[at + 1])
            at += 2
            if packet_id == 0:
                raise Violation(PROTOCOL_ERROR, "packet identifier 0 is not allowed")  # [MQTT-2.2.1-3]
        has_alias = False
        if self.version == 5:
            known: i64 = self._block_size
            if len(topic) != 0 and known and at + known <= end and same(data, self._block_at, at, known):
                at += known
            else:
                scan = self.terms.scan
                scan.scan(data, at, end)
                has_alias = scan.topic_alias != 0
                if has_alias or len(topic) == 0:
                    topic = self._resolve_alias(scan.topic_alias, topic)
                self._keep_block(data, at)
                at = scan.position
        elif len(topic) == 0:
            raise Violation(PROTOCOL_ERROR, "a topic must have at least one character")  # [MQTT-4.7.3-1]
        if end - at > self.terms.message_size_max:
            raise Violation(PACKET_TOO_LARGE, "the message is larger than the broker takes")
        event = PublishReceived(topic, data[at:end], qos, packet_id, first & 1 != 0, dup)
        if self.version == 5:
            event.properties = self._block
            event.expiry_s = self._block_expiry_s
            event.is_five = True
        if first & 9 == 0 and not has_alias and not self.pads and end - start < LARGE:
            event.frame = data[start:end]
            event.frame_id_at = id_at
        events.append(event)
        return event

    def _gather_alike(self, first: PublishReceived, data: bytes, position: i64, events: list[Event]) -> i64:
        """Take all that follow a QoS 1 publish with the same topic and properties; gives where they end. Whatever is
        unusual ends them: the scan looks at it by itself."""
        topic_size: i64 = self._topic_size
        block_size: i64 = 0
        if self.version == 5:
            block_size = self._block_size
            if block_size == 0:
                return position  # an alias: it may mean another topic next time
        prefix: i64 = topic_size + 2 + block_size
        size_max: i64 = prefix + self.terms.message_size_max
        available: i64 = len(data)
        start: i64 = position
        places = BytesWriter()
        answers = BytesWriter()
        while position + 4 <= available and data[position] == 0x32:
            size: i64 = data[position + 1]
            body: i64 = position + 2
            if size >= 0x80:
                more: i64 = data[body]
                size = (size & 0x7F) | ((more & 0x7F) << 7)
                body += 1
                if more >= 0x80:
                    more = data[body]
                    size |= more << 14
                    body += 1
                if more == 0 or more >= 0x80:
                    break  # padded, or very long
            end: i64 = body + size
            at: i64 = body + topic_size
            if size < prefix or end > available or size > size_max or end - position > self._size_max:
                break
            if not same(data, self._topic_at, body, topic_size):
                break
            packet_id: i64 = (i64(data[at]) << 8) | i64(data[at + 1])
            if packet_id == 0 or (block_size and not same(data, self._block_at, at + 2, block_size)):
                break
            write_i32_le(places, i32(body + prefix))
            write_i32_le(places, i32(end))
            write_i32_be(answers, i32(ACCEPTED | packet_id))
            position = end
        if position > start:
            id_before: i64 = 2 + block_size
            events.append(
                PublishBatchReceived(first, data, start, places.getvalue(), answers.getvalue(), id_before)
            )
        return position

    def _keep_block(self, data: bytes, at: i64) -> None:
        """Remember the properties just scanned: those of the message, and its expiry."""
        scan = self.terms.scan
        self._block_expiry_s = scan.expiry_s
        self._block_at = at
        self._block_size = 0 if scan.topic_alias else scan.position - at
        if not scan.has_other:
            self._block = b""
            return
        if scan.alias_at >= 0:
            block = data[scan.first : scan.alias_at - 1] + data[scan.alias_at + 2 : scan.position]
        else:
            block = data[scan.first : scan.position]
        self._block = split_expiry(block)[1] if scan.expiry_s >= 0 else block

    def _resolve_alias(self, alias: i64, topic: bytes) -> bytes:
        if alias == 0:
            raise Violation(PROTOCOL_ERROR, "a publish needs a topic or a topic alias")  # [MQTT-3.3.2-8]
        if alias > self.terms.topic_alias_maximum:
            text = f"topic alias {alias} is above mqtt.topic_alias_maximum = {self.terms.topic_alias_maximum}"
            raise Violation(TOPIC_ALIAS_INVALID, text)  # [MQTT-3.3.2-9]
        if self._aliases is None:
            self._aliases = {}
        if topic:
            self._aliases[int(alias)] = topic
            return topic
        known = self._aliases.get(int(alias))
        if known is None:
            raise Violation(PROTOCOL_ERROR, f"topic alias {alias} {ALIAS_UNKNOWN}")  # [MQTT-3.3.2-12]
        return known

    def _is_plain_answer(self, first: i64) -> bool:
        return first == 0x40 or first == 0x62 or first == 0x50 or first == 0x70

    def _on_plain_answer(self, data: bytes, first: i64, body: i64, events: list[Event]) -> None:
        packet_id: i64 = (i64(data[body]) << 8) | i64(data[body + 1])
        if packet_id == 0:
            raise Violation(PROTOCOL_ERROR, "packet identifier 0 is not allowed")
        events.append(AnswerReceived(first >> 4, packet_id, 0))
