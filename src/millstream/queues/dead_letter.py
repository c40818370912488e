"""Dead letters: the message with why, whence and when it came to this."""

from __future__ import annotations

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


def make_dead_letter(queue: str, group: str, pending: Pending, reason: str, wall_ns: i64) -> Message:
    """Directions to the first queue are not directions to this one; an expiry that has passed would end it again."""
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
