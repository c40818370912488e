"""AMQP routing keys and binding keys in the one topic space, whose names are MQTT's.

    key `.`  topic `/`        binding key `*`  filter `+`        `#` is `#` in both
    key `/`  topic `.`        so words and levels are the same, and a dot in a topic comes back as it was

An AMQP key may hold characters that no topic can: `+`, `#`, NUL, bytes that are not UTF-8, and a `$` at its head, where
only the broker may put one. They are written as %XX. That is not undone on the way back: messages of AMQP publishers carry
their key (see `native_properties`).

Invariants
- What comes out is a legal topic, and none of the broker's own.
- A key that a binding key matches has a topic that its filter matches: a right to the filter covers the binding.
"""

from __future__ import annotations

from typing import Final

from millstream.model.queue_topic import QUEUE_PREFIX
from millstream.model.topic import find_utf8_fault

TOPIC_EXCHANGE: Final = b"amq.topic"
EMPTY: Final = b"%"  # the topic of the empty key: a topic has at least one character
_SWAP: Final = bytes.maketrans(b"./", b"/.")


def topic_of_key(key: bytes) -> bytes:
    """The topic a routing key of `amq.topic` stands for."""
    if not key:
        return EMPTY
    topic = escape(key).translate(_SWAP)
    return b"%24" + topic[1:] if topic.startswith(b"$") else topic


def topic_of_name(name: bytes) -> bytes:
    """The topic that a name of the default exchange means, when no queue is called so.

    There a name with slashes is a topic already: no binding reads it word by word.
    """
    if b"/" not in name:
        return topic_of_key(name)
    topic = escape(name)
    return b"%24" + topic[1:] if topic.startswith(b"$") else topic


def topic_of_publish(exchange: bytes, key: bytes) -> bytes:
    """The topic under which MQTT clients, rules and Spark know what was published to an exchange."""
    if exchange == TOPIC_EXCHANGE:
        return topic_of_key(key)
    if not exchange:
        return escape(key) if key.startswith((b"$queue/", b"$dlq/")) else QUEUE_PREFIX + quote_level(key)
    level = quote_level(exchange)
    if level.startswith(b"$"):
        level = b"%24" + level[1:]
    return level + b"/" + topic_of_key(key)


def filter_of_binding(key: bytes) -> bytes | None:
    """The filter that matches what a binding key of a topic exchange matches; None when no filter can say it."""
    if not key:
        return EMPTY
    words = key.split(b".")
    levels: list[bytes] = []
    for at, word in enumerate(words):
        if word == b"*":
            levels.append(b"+")
        elif word == b"#":
            if at != len(words) - 1:
                return None
            levels.append(b"#")
        else:
            levels.append(escape(word).replace(b"/", b"."))
    if levels[0].startswith(b"$"):
        levels[0] = b"%24" + levels[0][1:]
    return b"/".join(levels)


def key_of_topic(topic: bytes) -> bytes:
    """The routing key under which AMQP clients see what was published to a topic."""
    return b"" if topic == EMPTY else topic.translate(_SWAP)


def quote_level(name: bytes) -> bytes:
    """A name as one level of a topic, from which it can be read back."""
    return escape(name.replace(b"%", b"%25")).replace(b"/", b"%2F")


def escape(text: bytes) -> bytes:
    """Without what no topic may hold."""
    if b"+" in text or b"#" in text or b"\x00" in text:
        text = text.replace(b"+", b"%2B").replace(b"#", b"%23").replace(b"\x00", b"%00")
    if text.isascii() or find_utf8_fault(text) is None:
        return text
    return b".".join([_escape_word(word) for word in text.split(b".")])


def _escape_word(word: bytes) -> bytes:
    """Word by word, so that a binding key and the keys it matches come to the same."""
    if find_utf8_fault(word) is None:
        return word
    return b"".join([bytes([byte]) if byte < 0x80 else b"%%%02X" % byte for byte in word])
