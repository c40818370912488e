"""Topics that stand for queues, and the one spelling that each of them has.

    $queue/<name>[/<routing key>]      a queue
    $dlq/<name>[/<routing key>]        the dead letters of a queue

The name is one level. The characters that mean something in a topic are written as %XX in it, with capital letters, and no
others are. Any other spelling of a name is refused where it comes in, so rights, routing and storage see only this one.

Invariants
- `queue_prefix` and `split_queue_topic` are each other's inverse for every topic in which `find_spelling_fault` finds nothing:
  a name has one topic, and a topic one name.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

QUEUE_PREFIX: Final = b"$queue/"
DEAD_LETTER_TOPICS: Final = b"$dlq/"
DEAD_LETTER_PREFIX: Final = "$dlq/"
TOPIC_LENGTH_MAX: Final = 0xFFFF  # all that MQTT can carry

SETTLING: Final = (
    b"/$ack",
    b"/$nack",
    b"/$reject",
    b"/$commit",
)  # words for answers, behind the topic of a queue

_PREFIXES: Final = (b"$queue/", b"$dlq/")
_HEX: Final = b"0123456789abcdefABCDEF"


def is_queue_topic(topic: bytes) -> bool:
    return topic.startswith(_PREFIXES)


def split_queue_topic(topic: bytes) -> tuple[str, bytes] | None:
    """(queue, rest) of `$queue/<name>[/rest]` or `$dlq/<name>[/rest]`; None: it is an ordinary topic."""
    if topic.startswith(QUEUE_PREFIX):
        name, _, key = topic[7:].partition(b"/")
        return unquote_name(name), key
    if topic.startswith(DEAD_LETTER_TOPICS):
        name, _, key = topic[5:].partition(b"/")
        return DEAD_LETTER_PREFIX + unquote_name(name), key
    return None


def queue_prefix(name: str) -> bytes:
    """The topic that stands for a queue: `$queue/<name>` or `$dlq/<name>`."""
    if name.startswith(DEAD_LETTER_PREFIX):
        return DEAD_LETTER_TOPICS + quote_name(name[len(DEAD_LETTER_PREFIX) :])
    return QUEUE_PREFIX + quote_name(name)


def queue_topic(name: str, key: bytes) -> bytes:
    """The topic of a place in a queue; without a key that of the queue itself."""
    head = queue_prefix(name)
    return head + b"/" + key if key else head


def place_under(prefix: bytes, topic: bytes) -> bytes:
    """What an ordinary topic is called behind a queue's; with one that leaves no room for both, the queue's stands alone."""
    return prefix + topic if len(prefix) + len(topic) <= TOPIC_LENGTH_MAX else prefix[:-1]


def find_spelling_fault(topic: bytes) -> str | None:
    """Why this is not how the topic or filter of a queue is written; None if it is, or if it is about no queue."""
    if not topic.startswith(_PREFIXES):
        return None
    prefix = QUEUE_PREFIX if topic.startswith(QUEUE_PREFIX) else DEAD_LETTER_TOPICS
    level, slash, rest = topic[len(prefix) :].partition(b"/")
    if prefix is QUEUE_PREFIX and level == b"$dlq":
        return _write(DEAD_LETTER_TOPICS + rest)
    if b"%" not in level:
        return None
    name = unquote_name(level)
    if prefix is QUEUE_PREFIX and name.startswith(DEAD_LETTER_PREFIX):
        return _write(queue_prefix(name) + slash + rest)
    canonical = quote_name(name)
    return None if canonical == level else _write(prefix + canonical + slash + rest)


def filter_of_records(filter: bytes) -> bytes:
    """Everything that comes to a consumer by the filter of a queue: without a filter over routing keys, all of it."""
    name = filter.partition(b"/")[2]
    return filter if b"/" in name else filter + b"/#"


def make_canonical(topic: bytes) -> bytes:
    """The one spelling of a topic that an earlier release took in another."""
    if topic.startswith(b"$queue/$dlq/"):
        topic = topic[7:]
    place = split_queue_topic(topic)
    if place is None or find_spelling_fault(topic) is None:
        return topic
    return queue_prefix(place[0]) + b"/" + place[1] if place[1] else queue_prefix(place[0])


def _write(canonical: bytes) -> str:
    return f"the queue's name is spelled otherwise; write {canonical.decode(errors='replace')}"


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
