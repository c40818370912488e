"""The channels of one connection: they are opened, closed by either side, and their numbers used again.

Invariants
- Every ChannelOpened is followed by one ChannelClosed.
- A number is free once both sides have closed; until then all but close and close-ok is dropped.
- The answer to a close waits for `end_channel`, so that it does not overtake answers to what came before it.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be
from mypy_extensions import i64

from millstream.model.outbox import Outbox
from millstream.protocols.amqp091.machine.channel import IDLE, NO_CHANNEL, Channel
from millstream.protocols.amqp091.machine.events import (
    AckReceived,
    ChannelClosed,
    ChannelOpened,
    Event,
    MethodReceived,
)
from millstream.protocols.amqp091.machine.inbound import Inbound
from millstream.protocols.amqp091.machine.outbound import make_reply_text
from millstream.protocols.amqp091.machine.states import (
    ACCEPTED,
    IGNORED,
    ChannelState,
    judge_on_channel,
)
from millstream.protocols.amqp091.machine.terms import Terms
from millstream.protocols.amqp091.wire.codes import CHANNEL_ERROR, NOT_ALLOWED, NOT_IMPLEMENTED
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicCancelOk,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    Method,
    decode_method,
    find_method_name,
)
from millstream.protocols.amqp091.wire.violation import Violation

CHANNELS_LIMIT: Final[i64] = 0xFFFF
CLOSE_OK: Final = ChannelCloseOk()


class Channels(Inbound):
    def __init__(self, terms: Terms, outbox: Outbox) -> None:
        super().__init__(terms, outbox)
        self.channel_max: i64 = terms.channel_max or CHANNELS_LIMIT

    def close_channel(self, number: i64, code: int, text: str, class_id: int, method_id: int) -> None:
        """The server ends a channel: everything on it is dropped until close-ok has come; then ChannelClosed."""
        channel = self._channels.get(int(number))
        if channel is None or channel.state is ChannelState.CLOSING:
            return
        self._drop_content(channel)
        channel.state = ChannelState.ENDING
        channel.farewell = ChannelClose(code, make_reply_text(code, text), class_id, method_id)
        self.end_channel(number)

    def end_channel(self, number: i64) -> None:
        """Send what the end of a channel asks for, once everything that came before it has been answered."""
        channel = self._channels.get(int(number))
        if channel is None or not self.is_open:
            return
        farewell = channel.farewell
        if farewell is not None:
            channel.farewell = None
            channel.state = ChannelState.CLOSING
            self._write(number, farewell)
        if channel.owes_close_ok:
            channel.owes_close_ok = False
            if channel.state is ChannelState.ENDING:
                self._remove(channel)
            self._write(number, CLOSE_OK)

    def _remove(self, channel: Channel) -> None:
        del self._channels[int(channel.number)]
        channel.state = ChannelState.ABSENT
        self._sender = NO_CHANNEL
        self._receiver = NO_CHANNEL

    def _on_channel_violation(self, number: i64, violation: Violation, events: list[Event]) -> None:
        channel = self._channels[int(number)]
        channel.state = ChannelState.ENDING
        text = make_reply_text(violation.code, violation.text)
        channel.farewell = ChannelClose(violation.code, text, violation.class_id, violation.method_id)
        self._report_end(channel, violation.code, violation.text, events)

    def _on_channel_method(self, number: i64, data: bytes, start: i64, end: i64, events: list[Event]) -> None:
        channel = self._channels.get(int(number), NO_CHANNEL)
        if channel.awaits != IDLE:
            raise channel.refuse_method()
        kind = read_number(data, start)
        verdict = judge_on_channel(channel.state, kind)
        if verdict == IGNORED:
            return
        if verdict != ACCEPTED:
            if channel.state is ChannelState.ABSENT:
                text = "expected 'channel.open'"
            elif verdict == CHANNEL_ERROR:
                text = "second 'channel.open' seen"
            else:
                text = "unimplemented method"
            raise refuse(int(verdict), text, kind)
        method = decode_method(data, start, end)
        if isinstance(method, BasicPublish):
            channel.begin(method)
        elif isinstance(method, BasicAck):
            events.append(AckReceived(number, method.delivery_tag, method.multiple))
        elif isinstance(method, (ChannelOpen, ChannelClose, ChannelCloseOk)):
            self._on_channel_move(number, method, channel, events)
        elif not isinstance(method, BasicCancelOk):
            if isinstance(method, ChannelFlow):
                if not method.active:  # as in RabbitMQ: basic.qos and basic.cancel are for that
                    raise Violation(NOT_IMPLEMENTED, "active=false", 20, 20)
                self._write(number, ChannelFlowOk(True))
                return
            events.append(MethodReceived(int(number), method))

    def _on_channel_move(self, number: i64, method: Method, channel: Channel, events: list[Event]) -> None:
        if isinstance(method, ChannelOpen):
            # As RabbitMQ does: how many are open counts, not how high the number is.
            opened: i64 = len(self._channels)
            if opened >= self.channel_max:
                text = f"number of channels opened ({int(opened)}) has reached the negotiated channel_max"
                raise Violation(NOT_ALLOWED, f"{text} ({int(self.channel_max)})", 20, 10)
            self._channels[int(number)] = Channel(number)
            self._write(number, ChannelOpenOk())
            events.append(ChannelOpened(int(number)))
        elif isinstance(method, ChannelCloseOk):
            self._remove(channel)
            self._report_end(channel, 0, "", events)
        elif channel.state is ChannelState.CLOSING:
            self._write(number, CLOSE_OK)
        else:
            channel.state = ChannelState.ENDING
            channel.owes_close_ok = True
            self._report_end(channel, 0, "", events)

    def _end_channels(self, events: list[Event]) -> None:
        for channel in self._channels.values():
            self._report_end(channel, 0, "", events)

    def _report_end(self, channel: Channel, code: int, text: str, events: list[Event]) -> None:
        self._drop_content(channel)
        if not channel.is_reported:
            channel.is_reported = True
            events.append(ChannelClosed(int(channel.number), code, text))

    def _drop_content(self, channel: Channel) -> None:
        self._gathered -= channel.gathered()
        channel.drop_content()

    def _forget_channels(self) -> None:
        self._channels = {}
        self._sender = NO_CHANNEL
        self._receiver = NO_CHANNEL


def read_number(data: bytes, start: i64) -> int:
    """Class and method of a method frame's payload, in one number."""
    class_id: i64 = i64(read_i16_be(data, start)) & 0xFFFF
    method_id: i64 = i64(read_i16_be(data, start + 2)) & 0xFFFF
    return int((class_id << 16) | method_id)


def refuse(code: int, text: str, number: int) -> Violation:
    """What no table names; a method that nobody knows is refused as such."""
    class_id = number >> 16
    method_id = number & 0xFFFF
    if find_method_name(class_id, method_id) is None:
        text = f"there is no method {method_id} of class {class_id}"
        return Violation(NOT_IMPLEMENTED, text, class_id, method_id)
    return Violation(code, text, class_id, method_id)
