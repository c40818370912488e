"""Names of queues inside topics: one level, in which the characters that mean something in a topic are written as %XX."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from millstream.queues.definition import DEAD_LETTER_PREFIX

AMQP_GROUP: Final = "amqp"  # the group all AMQP consumers of a work queue share, unless they ask for another

_HEX: Final = b"0123456789abcdefABCDEF"


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
    return prefix + unquote_name(name), key


def queue_prefix(name: str) -> bytes:
    """The topic that stands for a queue: `$queue/<name>` or `$dlq/<name>`."""
    if name.startswith(DEAD_LETTER_PREFIX):
        return DEAD_LETTER_PREFIX.encode() + quote_name(name[len(DEAD_LETTER_PREFIX) :])
    return b"$queue/" + quote_name(name)


def quote_name(name: str) -> bytes:
    """A name as one level of a topic."""
    level = name.encode()
    if b"%" in level or b"/" in level or b"+" in level or b"#" in level:
        level = level.replace(b"%", b"%25").replace(b"/", b"%2F").replace(b"+", b"%2B").replace(b"#", b"%23")
    return level


def unquote_name(level: bytes) -> str:
    """The name a level stands for; a percent sign that quotes nothing stands for itself."""
    if b"%" not in level:
        return level.decode(errors="replace")
    parts: list[bytes] = []
    kept: i64 = 0
    at: i64 = level.find(b"%")
    while at >= 0:
        code = level[at + 1 : at + 3]
        if len(code) == 2 and code[:1] in _HEX and code[1:] in _HEX:
            parts.append(level[kept:at])
            parts.append(bytes([int(code, 16)]))
            kept = at + 3
            at += 2
        at = level.find(b"%", at + 1)
    parts.append(level[kept:])
    return b"".join(parts).decode(errors="replace")
