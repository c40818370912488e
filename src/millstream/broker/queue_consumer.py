"""A session as a consumer of a queue: deliveries with the words of the queue about them, credit from its window."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.session import Session
from millstream.model.delivery import SENT, Delivery
from millstream.model.message import Message
from millstream.model.native_properties import canonical_part
from millstream.queues.consumers import Consumer
from millstream.queues.forged_words import without_queue_words
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.queues.publish_options import encode_user_property

# how a consumer settles, as bits of what is stored with its subscription
EXPLICIT: Final = 1
EPHEMERAL_QUEUE: Final = 2
REDELIVERED: Final = encode_user_property(b"redelivered", b"true")


@final
class SessionConsumer(Consumer):
    def __init__(
        self,
        session: Session,
        group: Group,
        guarantee: i64,
        identifier: i64,
        is_explicit: bool,
        filter: bytes,
    ) -> None:
        super().__init__(session.key.client_id, is_explicit)
        self.accepts_at_once = guarantee == 0  # at most once: nobody will answer
        self.session = session
        self.group = group
        self.filter = filter  # what the right to receive is asked for
        self.is_allowed = True
        self._guarantee: i64 = guarantee
        self._identifiers: tuple[int, ...] = (int(identifier),) if identifier else ()
        queue = group.queue
        self._prefix = queue.name.encode() + b":"
        self._block = b""  # of the message before, and what was left of it: neighbours are mostly alike
        self._cleared = b""
        self._constant = encode_user_property(b"group-id", group.title().encode()) + encode_user_property(
            b"queue", queue.name.encode()
        )

    def has_credit(self) -> bool:
        line = self.session.line
        if line is None or line.is_blocked or not self.is_allowed:
            return False
        if self.open >= self.group.queue.definition.prefetch:
            return False
        return self._guarantee == 0 or self.session.has_room()

    def could_take_more(self) -> bool:
        if self.session.line is None or not self.is_allowed:
            return False
        return self._guarantee == 0 or self.has_credit()

    def belongs_to(self, source: object) -> bool:
        return self.session is source

    def is_present(self) -> bool:
        return self.session.line is not None and self.is_allowed

    def deliver(self, pending: Pending) -> None:
        session = self.session
        line = session.line
        assert line is not None
        message = self._describe(pending) if line.carries_properties else self._name(pending)
        if self._guarantee == 0:
            line.transmit_plain(message, False, self._identifiers)
            return
        delivery = Delivery(message, 1, False, self._identifiers, b"")
        delivery.receipt = pending
        session.window.add(delivery)
        delivery.phase = SENT
        session.window.open += 1
        session.transmit(line, delivery, False)

    def _name(self, pending: Pending) -> Message:
        """For a receiver that is told nothing but the topic."""
        source = pending.message
        topic = self.group.queue.delivery_topic(source.topic)
        if topic is source.topic:
            return source
        return Message(topic, source.payload, 1, False, b"", source.expires_ns, source.publisher)

    def _describe(self, pending: Pending) -> Message:
        """The message as this consumer sees it: where it stands in the queue, and how to answer."""
        source = pending.message
        queue = self.group.queue
        topic = queue.delivery_topic(source.topic)
        offset = str(pending.offset).encode()
        properties = (
            self._clear(source.properties)
            + encode_user_property(b"message-id", self._prefix + offset)
            + self._constant
            + encode_user_property(b"offset", offset)
        )
        if topic is not source.topic:
            properties += encode_user_property(b"x-source-topic", source.topic)
        if queue.is_stream:
            time_ms = str(pending.time_wall_ns // 1_000_000).encode()
            properties += encode_user_property(b"x-stream-offset", offset)
            properties += encode_user_property(b"x-stream-timestamp", time_ms)
        if pending.attempts > 1:
            properties += encode_user_property(b"delivery-count", str(pending.attempts).encode())
        if pending.is_repeated():
            properties += REDELIVERED
        return Message(topic, source.payload, 1, False, properties, source.expires_ns, source.publisher)

    def _clear(self, block: bytes) -> bytes:
        """What other protocols can read, without the words that follow here."""
        if not block:
            return block
        if block != self._block:
            self._block = block
            self._cleared = without_queue_words(canonical_part(block))
        return self._cleared

    def on_rights_changed(self) -> None:
        if self.group.queue.is_removed:
            return
        session = self.session
        authorizer = session.account.authorizer
        self.is_allowed = authorizer.can_subscribe(session.principal, session.key.client_id, self.filter)
        if not self.is_allowed:
            self.group.take_back(self)

    def on_removed(self) -> None:
        """The queue is gone; the subscription stays as it was made, and gets nothing."""
        self.is_allowed = False
