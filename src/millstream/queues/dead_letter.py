"""Dead letters: what becomes one, with why, whence and when; counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from millstream.model.message import Message
from millstream.queues.pending import Pending
from millstream.queues.publish_options import (
    DELAY,
    PRIORITY,
    PRODUCER,
    SEQUENCE,
    drop_user_properties,
    encode_user_property,
)

if TYPE_CHECKING:
    from millstream.queues.group import Group
    from millstream.queues.queue import Queue

DELIVERIES_PER_LETTER: Final[i64] = 8  # that take as long as one dead letter


def make_dead_letter(queue: str, group: str, pending: Pending, reason: str, wall_ns: i64) -> Message:
    """Publish options for the first queue are none for this one; an expiry that has passed would end it again."""
    message = pending.message
    properties = drop_publish_options(message.properties)
    for name, value in (
        ("_dlq_reason", reason),
        ("_dlq_original_queue", queue),
        ("_dlq_original_topic", message.topic.decode()),
        ("_dlq_original_id", f"{queue}:{pending.offset}"),
        ("_dlq_original_group", group),
        ("_dlq_original_time", str(pending.time_wall_ns // 1_000_000)),
        ("_dlq_delivery_count", str(pending.attempts)),
        ("_dlq_moved_at", str(wall_ns // 1_000_000)),
    ):
        properties += encode_user_property(name.encode(), value.encode())
    return Message(message.topic, message.payload, message.guarantee, False, properties, 0, message.publisher)


def drop_publish_options(properties: bytes) -> bytes:
    """The block without what tells a queue how to treat it."""
    return drop_user_properties(properties, (PRODUCER, SEQUENCE, PRIORITY, DELAY))


def dead_letter(queue: Queue, group: Group, pending: Pending, reason: str) -> None:
    """The dead letter is in the log before the settlement of its source: in one batch or an earlier one."""
    if not queue.is_stream:
        dead_letter_alone(queue, group.title(), pending, reason)
    group.settle_dead_lettered(pending)


def dead_letter_alone(queue: Queue, group: str, pending: Pending, reason: str) -> None:
    """One that no group has to settle."""
    queue.catalog.begin_letters()
    _publish_dead_letter(queue, group, pending, reason)


def dead_letter_refused(queue: Queue, message: Message, reason: str) -> None:
    """One that the queue does not take at all: of many queues each may do so because of the same message."""
    if not queue.catalog.takes_refused:
        queue.counters.dropped += 1
        return
    pending = Pending(queue.nobody(), queue.next, message, queue.clock.wall_ns(), 0)
    _publish_dead_letter(queue, "", pending, reason)


def _publish_dead_letter(queue: Queue, group: str, pending: Pending, reason: str) -> None:
    queue.scheduler.left -= DELIVERIES_PER_LETTER
    if queue.catalog.dead_letter(queue, group, pending, reason):
        queue.counters.dead_lettered += 1
    else:
        queue.counters.dropped += 1
