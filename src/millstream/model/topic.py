"""Topics and filters: what is a legal one, and which filter matches which topic.

Both are UTF-8 bytes everywhere in the core; levels are split by `/`.
Every function is linear in its input; nothing here recurses or uses a regular expression.
"""

from __future__ import annotations

from typing import Final

SHARE_PREFIX: Final = b"$share/"


def find_utf8_fault(text: bytes) -> str | None:
    """Why `text` may not stand in an MQTT string, or None [MQTT-1.5.4-1, MQTT-1.5.4-2]."""
    if 0 in text:
        return "a NUL character is not allowed"
    try:
        text.decode("utf-8")  # Python refuses surrogates too, as the specification asks
    except UnicodeDecodeError:
        return "not well-formed UTF-8"
    return None


def find_topic_fault(topic: bytes, length_max: int, levels_max: int) -> str | None:
    """Why `topic` cannot be published to, or None if it can."""
    if not topic:
        return "a topic must have at least one character"  # [MQTT-4.7.3-1]
    if len(topic) > length_max:
        return "the topic is longer than the broker allows"
    if b"+" in topic or b"#" in topic:
        return "a topic must not contain wildcards"  # [MQTT-3.3.2-2]
    if topic.count(b"/") >= levels_max:
        return "the topic has more levels than the broker allows"
    return find_utf8_fault(topic)


def find_filter_fault(filter: bytes, length_max: int, levels_max: int) -> str | None:
    """Why `filter` cannot be subscribed to, or None if it can. Share prefixes are taken off before."""
    if not filter:
        return "a filter must have at least one character"  # [MQTT-4.7.3-1]
    if len(filter) > length_max:
        return "the filter is longer than the broker allows"
    fault = find_utf8_fault(filter)
    if fault is not None:
        return fault
    levels = filter.split(b"/")
    if len(levels) > levels_max:
        return "the filter has more levels than the broker allows"
    last = len(levels) - 1
    for index, level in enumerate(levels):
        if b"#" in level and (level != b"#" or index != last):
            return "# must be a whole level and the last one"  # [MQTT-4.7.1-1]
        if b"+" in level and level != b"+":
            return "+ must be a whole level"  # [MQTT-4.7.1-2]
    return None


def is_for_broker_only(topic: bytes) -> bool:
    """`$SYS` is the broker's to write, but for the state that bridges of other brokers leave there."""
    return topic.startswith(b"$SYS/") and not topic.startswith(b"$SYS/broker/connection/")


def split_share(filter: bytes) -> tuple[bytes, bytes] | None:
    """(group, filter) of `$share/<group>/<filter>`, None if it is an ordinary filter.

    An ill-formed share gives an empty group: the caller refuses it.
    """
    if not filter.startswith(SHARE_PREFIX):
        return None
    group, slash, rest = filter[len(SHARE_PREFIX) :].partition(b"/")
    if not slash or not rest or b"+" in group or b"#" in group:  # [MQTT-4.8.2-1, MQTT-4.8.2-2]
        return b"", b""
    if rest.startswith(SHARE_PREFIX):
        return (
            b"",
            b"",
        )  # a share of a share: its rights would be asked for another filter than it subscribes to
    return group, rest


def has_wildcard(filter: bytes) -> bool:
    return b"+" in filter or b"#" in filter


def matches(filter: bytes, topic: bytes) -> bool:
    """Whether `topic` falls under `filter`, including the rule that leading wildcards miss `$` topics."""
    if topic.startswith(b"$") and filter[:1] in (b"+", b"#"):
        return False  # [MQTT-4.7.2-1]
    wanted = filter.split(b"/")
    levels = topic.split(b"/")
    for index, level in enumerate(wanted):
        if level == b"#":
            return True  # also matches the parent level [MQTT-4.7.1-2 example]
        if index >= len(levels):
            return False
        if level != b"+" and level != levels[index]:
            return False
    return len(wanted) == len(levels)


def covers(wide: bytes, narrow: bytes) -> bool:
    """Whether every topic that `narrow` matches is also matched by `wide`."""
    if narrow.startswith(b"$") and wide[:1] in (b"+", b"#"):
        return False
    if wide[:1] not in (b"+", b"#") and narrow[:1] in (b"+", b"#"):
        return False
    big = wide.split(b"/")
    small = narrow.split(b"/")
    for index, level in enumerate(big):
        if level == b"#":
            return True
        if index >= len(small):
            return False
        if small[index] == b"#":  # only `+/#` is as wide as `#` itself
            return index == 0 and big == [b"+", b"#"]
        if level != b"+" and level != small[index]:
            return False
    return len(big) == len(small)


def overlaps(one: bytes, other: bytes) -> bool:
    """Whether some topic is matched by both filters."""
    if (one.startswith(b"$") and other[:1] in (b"+", b"#")) or (
        other.startswith(b"$") and one[:1] in (b"+", b"#")
    ):
        return False
    left = one.split(b"/")
    right = other.split(b"/")
    index = 0
    while True:
        left_ends = index >= len(left)
        right_ends = index >= len(right)
        if left_ends and right_ends:
            return True
        if (not left_ends and left[index] == b"#") or (not right_ends and right[index] == b"#"):
            return True
        if left_ends or right_ends:
            return False
        if left[index] != right[index] and left[index] != b"+" and right[index] != b"+":
            return False
        index += 1
