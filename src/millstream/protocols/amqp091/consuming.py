"""Consumers of queues on one channel, and the one-off reader behind basic.get.

Invariants
- A consumer never has more deliveries open than its prefetch, nor its channel more than the one set for all of it.
- A delivery stays open after its consumer was cancelled: only an answer or the end of the channel closes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.protocols.amqp091.from_message import Native
from millstream.protocols.amqp091.wire.field_table import Timestamp
from millstream.protocols.amqp091.wire.methods import BasicCancel, BasicGetEmpty, BasicGetOk
from millstream.protocols.amqp091.wire.properties import with_headers
from millstream.queues.consumers import Consumer
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.security.quota import SUBSCRIPTIONS, Usage

if TYPE_CHECKING:
    from millstream.protocols.amqp091.channel import Channel

# A turn of the loop hands out no more than this to one connection: others are served before it goes on.
OUTBOX_MAX: Final[i64] = 1024 * 1024
UNSETTLED_BYTES_MAX: Final[i64] = (
    512 * 1024 * 1024
)  # of a connection: who never settles does not get all there is
DELIVERY_COUNT: Final = b"\x10x-delivery-count" + b"l"
STREAM_OFFSET: Final = b"\x0fx-stream-offset" + b"l"


def describe(native: Native, pending: Pending, group: Group, counts_deliveries: bool) -> bytes:
    """The properties as this queue's consumers see them: streams tell the offset, quorum queues how often it was tried
    before: basic.deliver when it was, basic.get always (as RabbitMQ)."""
    properties = native.properties
    if group.queue.is_stream:
        return with_headers(properties, STREAM_OFFSET + int(pending.offset).to_bytes(8, "big"))
    if counts_deliveries:
        return with_headers(properties, DELIVERY_COUNT + int(pending.attempts - 1).to_bytes(8, "big"))
    return properties


@final
class AmqpConsumer(Consumer):
    def __init__(
        self,
        channel: Channel,
        group: Group,
        tag: bytes,
        no_ack: bool,
        priority: i64,
        owns_group: bool,
        usage: Usage,
    ) -> None:
        super().__init__(channel.endpoint.connection_id, True)
        self._usage = usage
        usage.add(SUBSCRIPTIONS, 1)
        self.channel = channel
        self.group = group
        self.tag = tag
        self.no_ack = no_ack
        self.priority = priority
        self.hold_ms = -1  # the channel has its own time-out
        self.accepts_at_once = no_ack
        self.prefetch: i64 = 0 if no_ack else channel.prefetch
        self.owns_group = owns_group  # nobody else reads by it: it goes with this consumer
        self.filter = b""  # what the right to receive is asked for
        self.is_here = True
        arguments = group.queue.definition.arguments
        self._is_described = group.queue.is_stream or arguments.get("x-queue-type") == "quorum"

    def has_credit(self) -> bool:
        channel = self.channel
        endpoint = channel.endpoint
        if endpoint.is_blocked or not self.is_here or not endpoint.machine.is_open:
            return False
        if self.prefetch and self.open >= self.prefetch:
            return False
        # As RabbitMQ does: what needs no answer is not counted, but waits too when the channel is full.
        if channel.is_full() or (not self.no_ack and endpoint.unsettled_bytes >= UNSETTLED_BYTES_MAX):
            channel.is_prefetch_exhausted = True
            return False
        if endpoint.outbox.size_bytes() >= OUTBOX_MAX:
            endpoint.is_outbox_full = True
            return False
        return True

    def could_take_more(self) -> bool:
        if not self.is_here or (self.prefetch and self.open >= self.prefetch):
            return False
        channel = self.channel
        return not channel.is_full() and (
            self.no_ack or channel.endpoint.unsettled_bytes < UNSETTLED_BYTES_MAX
        )

    def belongs_to(self, source: object) -> bool:
        return self.channel.endpoint is source

    def is_present(self) -> bool:
        return self.is_here

    def deliver(self, pending: Pending) -> None:
        try:
            self._send(pending)
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, and the queue goes on
            self.channel.endpoint.link.on_fault(fault)

    def _send(self, pending: Pending) -> None:
        channel = self.channel
        tag: i64 = channel.take_tag()
        if not self.no_ack:
            channel.keep(tag, pending)
        message = pending.message
        native = channel.read_native(message)
        properties = native.properties
        if self._is_described:
            properties = describe(native, pending, self.group, pending.attempts > 1)
        channel.endpoint.machine.deliver(
            channel.number,
            self.tag,
            tag,
            pending.is_repeated(),
            native.exchange,
            native.routing_key,
            properties,
            message.payload,
        )
        channel.endpoint.count_sent()

    def on_empty(self) -> None:
        """It waits for the next one."""

    def on_removed(self) -> None:
        """The queue is gone: the client is told, if it can take that [RabbitMQ consumer cancellation notify]."""
        channel = self.channel
        self._go()
        channel.consumers.pop(self.tag, None)
        if channel.endpoint.takes_cancel:
            channel.endpoint.answers.notify(channel, BasicCancel(self.tag, True))

    def _go(self) -> None:
        if self.is_here:
            self.is_here = False
            self._usage.add(SUBSCRIPTIONS, -1)

    def leave(self) -> None:
        """Cancelled: nothing new comes; what is open stays so until it is answered."""
        if not self.is_here:
            return
        self._go()
        self.group.withdraw(self)
        queue = self.group.queue
        if self.owns_group:
            # of a stream: what is still open there only counts for a reader that goes on
            queue.catalog.remove_group(queue, self.group)
        else:
            queue.catalog.on_consumer_left(queue)


@final
class Getter(Consumer):
    """Takes one record for basic.get."""

    def __init__(self, channel: Channel, group: Group, no_ack: bool) -> None:
        super().__init__(channel.endpoint.connection_id, True)
        self.channel = channel
        self.group = group
        self.no_ack = no_ack
        self.hold_ms = -1
        self.accepts_at_once = no_ack

    def has_credit(self) -> bool:
        return not self.channel.endpoint.is_send_buffer_full()

    def is_present(self) -> bool:
        return not self.channel.is_ended and self.channel.endpoint.machine.is_open

    def deliver(self, pending: Pending) -> None:
        try:
            self._send(pending)
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, and the queue goes on
            self.channel.endpoint.link.on_fault(fault)

    def _send(self, pending: Pending) -> None:
        channel = self.channel
        tag: i64 = channel.take_tag()
        if not self.no_ack:
            channel.keep_got(tag, pending)
        native = channel.read_native(pending.message)
        arguments = self.group.queue.definition.arguments
        properties = describe(native, pending, self.group, arguments.get("x-queue-type") == "quorum")
        method = BasicGetOk(
            int(tag),
            pending.is_repeated(),
            native.exchange,
            native.routing_key,
            max(0, int(self.group.queue.ready()) - (1 if self.no_ack else 0)),  # it is settled after this
        )
        channel.endpoint.machine.send_content(channel.number, method, properties, pending.message.payload)
        channel.endpoint.count_sent()
        channel.asking -= 1
        channel.endpoint.on_answered()

    def on_empty(self) -> None:
        channel = self.channel
        if not channel.is_ended:
            channel.endpoint.machine.send(channel.number, BasicGetEmpty())
            channel.asking -= 1
            channel.endpoint.on_answered()

    def on_removed(self) -> None:
        self.on_empty()


def read_start(value: object) -> bytes:
    """`x-stream-offset` as the queue core reads it; without one only what comes from now on."""
    if value is None:
        return b"next"
    if isinstance(value, Timestamp):
        return f"timestamp={value.seconds}".encode()
    if isinstance(value, bool):
        raise Refused(
            Reason.PRECONDITION_FAILED, "x-stream-offset must be an offset, a time, first, last or next"
        )
    if isinstance(value, int):
        return str(max(0, value)).encode()
    if isinstance(value, bytes):
        return value
    raise Refused(
        Reason.PRECONDITION_FAILED, "x-stream-offset must be an offset, a time, first, last or next"
    )
