"""Takes out of a message what only the broker may say of it (see `reserved_words`)."""

from __future__ import annotations

from millstream.model.message import Message
from millstream.model.native_properties import AMQP_091, has_carried
from millstream.model.reserved_words import DEATH_WORDS, QUEUE_WORDS, is_reserved, may_hold_reserved
from millstream.queues.publish_options import drop_user_properties, find_user_properties


def has_forged(block: bytes) -> bool:
    """Whether a queue has to look at it. What AMQP publishers send was looked at where it came in."""
    if not block or (has_carried(block) and block[3] == AMQP_091):
        return False
    return may_hold_reserved(block)


def without_forged(message: Message) -> Message:
    """As a queue takes it: the same message if there is nothing in it that only the broker may say."""
    block = message.properties
    if not has_forged(block):
        return message
    names = [
        name for name, _, _, _ in find_user_properties(block) if is_reserved(name) or name in DEATH_WORDS
    ]
    if not names:
        return message
    return Message(
        message.topic,
        message.payload,
        message.guarantee,
        message.retain,
        drop_user_properties(block, tuple(names)),
        message.expires_ns,
        message.publisher,
    )


def without_queue_words(block: bytes) -> bytes:
    """As a consumer of a queue gets it, before the queue says the same about it."""
    return drop_user_properties(block, QUEUE_WORDS)
