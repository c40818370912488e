"""Names of queues inside topics."""

from __future__ import annotations

from millstream.queues.definition import DEAD_LETTER_PREFIX


def split_queue_topic(topic: bytes) -> tuple[str, bytes] | None:
    """(queue, rest) of `$queue/<name>[/rest]` or `$dlq/<name>[/rest]`; None: it is an ordinary topic."""
    if topic.startswith(b"$queue/"):
        prefix = ""
        rest = topic[7:]
        if rest.startswith(b"$dlq/"):
            prefix = DEAD_LETTER_PREFIX
            rest = rest[5:]
    elif topic.startswith(b"$dlq/"):
        prefix = DEAD_LETTER_PREFIX
        rest = topic[5:]
    else:
        return None
    name, _, key = rest.partition(b"/")
    return prefix + name.decode(errors="replace"), key
