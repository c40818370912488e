"""Names of user properties and headers that the broker writes about a message, and that say nothing when somebody else wrote them.

What a queue tells its consumers over MQTT (`QUEUE_WORDS`) is taken out of a message when it is delivered from a queue: in other
messages a publisher may use these names as it likes. All others are taken out when a message comes in to a queue.

`x-death` and its relatives are taken out as well, except those of AMQP publishers, who may send them as with RabbitMQ: a
consumer that publishes a message again keeps its history, and the broker counts on. What the broker adds stands
before all of it, so nobody can hide from it that a message goes round.
"""

from __future__ import annotations

from typing import Final

DEAD_LETTER_WORDS: Final = b"_dlq_"  # all names that begin so
QUEUE_WORDS: Final = (
    b"message-id",
    b"group-id",
    b"queue",
    b"offset",
    b"redelivered",
    b"delivery-count",
    b"x-source-topic",
    b"x-stream-offset",
    b"x-stream-timestamp",
)
STORED_WORDS: Final = (b"x-delivery-count", b"x-source-topic", b"x-stream-offset", b"x-stream-timestamp")
DEATH_WORDS: Final = (
    b"x-death",
    b"x-first-death-queue",
    b"x-first-death-reason",
    b"x-first-death-exchange",
)


def may_hold_reserved(block: bytes) -> bool:
    """Whether it is worth looking for one of them: none of those that are never taken from a publisher is without this."""
    return b"_dlq_" in block or b"x-" in block


def is_reserved(name: bytes) -> bool:
    """Whether no publisher may write it, of whatever protocol."""
    return name.startswith(DEAD_LETTER_WORDS) or name in STORED_WORDS
