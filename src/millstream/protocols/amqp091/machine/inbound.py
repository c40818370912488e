"""From bytes to events: frames found in what was read, messages and their acknowledgements taken apart on the spot.

This is the hot path of the broker. A publish whose three frames lie together becomes one event without a look at its
frames one by one, and so does basic.ack; everything else goes through the codec.

Invariants
- Bytes are looked at once; an incomplete frame is kept and joined when the rest has come.
- A length is compared with its limit before anything is kept for it.
- Nothing is parsed before the peer may send it: `is_waiting` stops the scan after a frame.
- The short way gives what the long way gives, wherever the input is cut.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from millstream.model.outbox import Outbox
from millstream.protocols.amqp091.machine.channel import IDLE, NO_CHANNEL, Channel
from millstream.protocols.amqp091.machine.events import AckReceived, Event, PublishReceived
from millstream.protocols.amqp091.machine.outbound import Outbound
from millstream.protocols.amqp091.machine.states import ChannelState
from millstream.protocols.amqp091.machine.terms import Terms
from millstream.protocols.amqp091.wire.codes import (
    BASIC,
    FRAME_END,
    FRAME_ERROR,
    HEADER,
    HEARTBEAT,
    METHOD,
    RESOURCE_ERROR,
    UNEXPECTED_FRAME,
)
from millstream.protocols.amqp091.wire.frames import FRAME_OVERHEAD, PROTOCOL_HEADER, find_frame_end
from millstream.protocols.amqp091.wire.properties import check_properties
from millstream.protocols.amqp091.wire.violation import Violation

OPEN: Final = ChannelState.OPEN
ABSENT: Final = ChannelState.ABSENT

HEAD_SIZE: Final[i64] = 7  # of a frame: kind, channel, size
ACK_FRAME_SIZE: Final[i64] = 21
ACK_SIZE: Final[i64] = 13
ACK: Final[i64] = (BASIC << 16) | 80
PUBLISH: Final[i64] = (BASIC << 16) | 40
WAITING_MAX: Final[i64] = 1 << 20  # what a peer that is known may send before its virtual host is decided on


class Inbound(Outbound):
    """State of the scan over one connection's input."""

    def __init__(self, terms: Terms, outbox: Outbox) -> None:
        super().__init__(terms, outbox)
        self.is_waiting = False  # an answer from outside is awaited: nothing is parsed
        self._awaits_header = True
        self._is_known = False  # the peer is authenticated
        self._size_max: i64 = terms.start_bytes_max
        self._kept: list[bytes] | None = None
        self._kept_size: i64 = 0
        self._needed: i64 = 0
        self._gathered: i64 = 0  # bytes of unfinished bodies, on all channels
        self._receiver = NO_CHANNEL  # the channel that something came on last
        self._properties = b"\x00\x00"  # the last that were checked

    @abstractmethod
    def _on_header(self, is_right: bool, events: list[Event]) -> None: ...

    @abstractmethod
    def _on_connection_method(
        self, data: bytes, start: i64, end: i64, now_ns: i64, events: list[Event]
    ) -> None: ...

    @abstractmethod
    def _on_channel_method(
        self, channel: i64, data: bytes, start: i64, end: i64, events: list[Event]
    ) -> None: ...

    @abstractmethod
    def _is_ending(self) -> bool:
        """Whether what comes on any channel is dropped."""

    @abstractmethod
    def is_closed(self) -> bool: ...

    @abstractmethod
    def _on_violation(self, violation: Violation, events: list[Event]) -> None: ...

    @abstractmethod
    def _on_channel_violation(self, channel: i64, violation: Violation, events: list[Event]) -> None: ...

    def kept_bytes(self) -> i64:
        """Of a frame that has not come whole, and of unfinished bodies."""
        return self._gathered + (0 if self._kept is None else self._kept_size)

    def _receive(self, data: bytes, now_ns: i64, events: list[Event]) -> None:
        position: i64 = 0
        kept = self._kept
        if kept is not None or self.is_waiting:
            if kept is None:
                kept = self._kept = []
                self._kept_size = 0
            missing: i64 = self._needed - self._kept_size
            kept.append(data)
            self._kept_size += len(data)
            if self.is_waiting:
                self._check_waiting()
                return
            if self._kept_size < self._needed:
                return
            self._kept = None
            if 0 < missing < len(data) and self.is_open:
                # complete the one frame that was cut; the rest of a large read is not copied for it
                kept[len(kept) - 1] = data[:missing]
                self._scan(b"".join(kept), 0, now_ns, events)
                position = missing
            else:
                data = b"".join(kept)
        position = self._scan(data, position, now_ns, events)
        if position < len(data) and not self.is_closed():
            self._kept = [data if position == 0 else data[position:]]
            self._kept_size = len(data) - position

    def _check_waiting(self) -> None:
        bound: i64 = WAITING_MAX if self._is_known else self.terms.start_bytes_max
        if self._kept_size > bound:
            raise Violation(RESOURCE_ERROR, "too much was sent before the answer to what came first")

    def _scan(self, data: bytes, position: i64, now_ns: i64, events: list[Event]) -> i64:
        """Handle every complete frame from `position` on; gives where the first incomplete one begins."""
        available: i64 = len(data)
        self._needed = 0
        if self._awaits_header:
            position = self._scan_header(data, available, events)
        while position + FRAME_OVERHEAD <= available and not self.is_waiting:
            if self.is_open and data[position] == METHOD:
                after: i64 = self._scan_frequent(data, position, available, events)
                if after:
                    position = after
                    continue
            end: i64 = find_frame_end(data, position, available, self._size_max)
            if end == 0:
                self._needed = FRAME_OVERHEAD + (i64(read_i32_be(data, position + 3)) & 0xFFFFFFFF)
                break
            try:
                self._on_frame(data, position, end, now_ns, events)
            except Violation as violation:  # the peer's fault; what comes behind it is still frames
                self._on_violation(violation, events)
            position = end
        return position

    def _scan_header(self, data: bytes, available: i64, events: list[Event]) -> i64:
        """The eight bytes every connection begins with; wrong ones are known as soon as they differ."""
        size: i64 = len(PROTOCOL_HEADER)
        if available >= size:
            self._awaits_header = False
            self._on_header(data[:size] == PROTOCOL_HEADER, events)
            return size
        if not PROTOCOL_HEADER.startswith(data):
            self._awaits_header = False
            self._on_header(False, events)
        return 0

    def _scan_frequent(self, data: bytes, position: i64, available: i64, events: list[Event]) -> i64:
        """Where a whole message or a basic.ack at `position` ends; 0: it is something else, or not all there."""
        if position + ACK_FRAME_SIZE > available:
            return 0
        number: i64 = i64(read_i32_be(data, position + HEAD_SIZE))
        if number == PUBLISH:
            return self._scan_publish(data, position, available, events)
        if number != ACK:
            return 0
        end: i64 = position + ACK_FRAME_SIZE
        channel = self._find_idle(i64(read_i16_be(data, position + 1)) & 0xFFFF)
        if channel is None or i64(read_i32_be(data, position + 3)) != ACK_SIZE or data[end - 1] != FRAME_END:
            return 0
        tag: i64 = read_i64_be(data, position + HEAD_SIZE + 4)
        if tag < 0:
            return 0
        events.append(AckReceived(channel.number, tag, data[end - 2] & 1 != 0))
        return end

    def _scan_publish(self, data: bytes, position: i64, available: i64, events: list[Event]) -> i64:
        scan = self.terms.scan
        if not scan.scan(data, position, available, self._size_max):
            return 0
        channel = self._find_idle(scan.channel)
        start: i64 = scan.properties_start
        end: i64 = scan.properties_end
        if (
            channel is None
            or scan.body_end - scan.body_start > self.terms.body_size_max
            or end - start > self.terms.properties_size_max
        ):
            return 0
        properties = data[start:end]
        if properties == self._properties:
            properties = self._properties
        else:
            try:
                check_properties(properties)
            except Violation:
                return 0  # the long way says it
            self._properties = properties
        events.append(
            PublishReceived(
                channel.number,
                scan.exchange,
                scan.routing_key,
                scan.mandatory,
                scan.immediate,
                properties,
                data[scan.body_start : scan.body_end],
            )
        )
        return scan.end

    def _find_idle(self, number: i64) -> Channel | None:
        """An open channel that awaits a method."""
        channel = self._receiver
        if channel.number != number:
            found = self._channels.get(int(number))
            if found is None:
                return None
            self._receiver = channel = found
        if channel.state is not OPEN or channel.awaits != IDLE:
            return None
        return channel

    def _on_frame(self, data: bytes, position: i64, end: i64, now_ns: i64, events: list[Event]) -> None:
        kind: i64 = data[position]
        number: i64 = i64(read_i16_be(data, position + 1)) & 0xFFFF
        start: i64 = position + HEAD_SIZE
        if kind == HEARTBEAT:
            if end - 1 > start:
                raise Violation(FRAME_ERROR, "a heartbeat carries nothing")
            if number:
                raise Violation(UNEXPECTED_FRAME, "a heartbeat belongs to channel 0")
        elif kind == METHOD and end - 1 < start + 4:
            raise Violation(FRAME_ERROR, "a method frame is too short to say which method it is")
        elif number == 0:
            if kind != METHOD:
                raise Violation(UNEXPECTED_FRAME, "channel 0 carries no content")
            self._on_connection_method(data, start, end - 1, now_ns, events)
        elif self.is_open:
            try:
                if kind == METHOD:
                    self._on_channel_method(number, data, start, end - 1, events)
                else:
                    self._on_content(number, kind == HEADER, data, start, end - 1, events)
            except Violation as violation:
                if violation.is_hard:
                    raise
                self._on_channel_violation(number, violation, events)
        elif not self._is_ending():
            raise Violation(UNEXPECTED_FRAME, "only channel 0 is there before the connection is open")

    def _on_content(
        self, number: i64, is_header: bool, data: bytes, start: i64, end: i64, events: list[Event]
    ) -> None:
        channel = self._channels.get(int(number), NO_CHANNEL)
        if channel.state is not OPEN and channel.state is not ABSENT:
            return
        before: i64 = channel.gathered()
        if is_header:
            terms = self.terms
            event = channel.on_header(data, start, end, terms.body_size_max, terms.properties_size_max)
        else:
            event = channel.on_body(data, start, end)
        self._gathered += channel.gathered() - before
        if event is not None:
            events.append(event)
        elif self._gathered > self.terms.gathered_max:
            raise Violation(RESOURCE_ERROR, "too many unfinished messages on the channels of this connection")
