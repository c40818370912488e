"""What goes to the peer: frames into the outbox, on channels that are open, within the frame size agreed on."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from millstream.model.outbox import Outbox
from millstream.protocols.amqp091.machine.channel import NO_CHANNEL, Channel
from millstream.protocols.amqp091.machine.states import ChannelState
from millstream.protocols.amqp091.machine.terms import Terms
from millstream.protocols.amqp091.wire.codes import BASIC, name_of
from millstream.protocols.amqp091.wire.frames import (
    write_ack,
    write_content,
    write_deliver,
    write_method,
)
from millstream.protocols.amqp091.wire.methods import Method

TEXT_SIZE_MAX: Final = 255  # of a short string

OPEN: Final = ChannelState.OPEN
ENDING: Final = ChannelState.ENDING


def make_reply_text(code: int, text: str) -> bytes:
    """As RabbitMQ writes it, for those who look for its words."""
    whole = f"{name_of(code)} - {text}" if text else name_of(code)
    data = whole.encode()
    if len(data) <= TEXT_SIZE_MAX:
        return data
    return data[: TEXT_SIZE_MAX - 3].decode(errors="ignore").encode() + b"..."


class Outbound:
    """The channels of a connection, and the way out through them. What is sent on a channel that is over is dropped:
    the peer has forgotten it."""

    def __init__(self, terms: Terms, outbox: Outbox) -> None:
        self.terms = terms
        self.outbox = outbox
        self.frame_max: i64 = terms.frame_max
        self.is_open = False  # the handshake is over, the end has not begun
        self._can_answer = False  # the peer ended the connection, but what it asked before is still answered
        self._has_sent = False  # since the last look at the heartbeat
        self._channels: dict[int, Channel] = {}
        self._sender = NO_CHANNEL  # the channel that sent last

    def send(self, channel: i64, method: Method) -> None:
        if self._can_send(channel):
            self._write(channel, method)

    def send_ack(self, channel: i64, delivery_tag: i64, multiple: bool) -> None:
        """basic.ack without an object: a confirm."""
        if self._can_send(channel):
            self._has_sent = True
            write_ack(self.outbox.open(), channel, delivery_tag, multiple)

    def deliver(
        self,
        channel: i64,
        consumer_tag: bytes,
        delivery_tag: i64,
        redelivered: bool,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
    ) -> None:
        if self._can_send(channel):
            self._has_sent = True
            write_deliver(
                self.outbox,
                channel,
                consumer_tag,
                delivery_tag,
                redelivered,
                exchange,
                routing_key,
                properties,
                body,
                self.frame_max,
            )

    def send_content(self, channel: i64, method: Method, properties: bytes, body: bytes) -> None:
        """basic.return or basic.get-ok, and the message behind it."""
        if self._can_send(channel):
            self._write(channel, method)
            write_content(self.outbox, channel, BASIC, properties, body, self.frame_max)

    def _can_send(self, channel: i64) -> bool:
        sender = self._sender
        if sender.number != channel or channel == 0:
            if channel == 0:
                return self.is_open or self._can_answer
            found = self._channels.get(int(channel))
            if found is None:
                return False
            self._sender = sender = found
        return sender.state is OPEN or sender.state is ENDING

    def _write(self, channel: i64, method: Method) -> None:
        self._has_sent = True
        write_method(self.outbox.open(), channel, method)
