"""What a publisher asks of a queue, in user properties of the message: producer and sequence, priority, delay."""

from __future__ import annotations

import hashlib
from typing import Final, final

from mypy_extensions import i64

from millstream.model.native_properties import carried_end

USER_PROPERTY: Final[i64] = 0x26
PRODUCER: Final = b"producer-id"
SEQUENCE: Final = b"sequence"
PRIORITY: Final = b"priority"
DELAY: Final = b"delay-ms"
SIZE_OF_PRODUCER: Final[i64] = 11
SIZE_OF_MOST: Final[i64] = 8  # of the other three names
DELAY_MS_MAX: Final[i64] = 366 * 86_400_000


@final
class PublishOptions:
    def __init__(self) -> None:
        self.producer = b""
        self.sequence: i64 = 0
        self.priority: i64 = 0
        self.delay_ms: i64 = 0


def read_publish_options(properties: bytes) -> PublishOptions | None:
    """None when there are none, which costs next to nothing."""
    at: i64 = carried_end(properties)
    end: i64 = len(properties)
    found: PublishOptions | None = None
    sequence: i64 = -1
    while at < end:
        identifier: i64 = properties[at]
        name_at: i64 = at + 3
        at = _after(properties, at, identifier)
        if identifier != USER_PROPERTY:
            continue
        name_end: i64 = name_at + ((i64(properties[name_at - 2]) << 8) | i64(properties[name_at - 1]))
        if name_end - name_at != SIZE_OF_MOST and name_end - name_at != SIZE_OF_PRODUCER:
            continue  # none of ours is that long
        name = properties[name_at:name_end]
        if name not in (PRODUCER, SEQUENCE, PRIORITY, DELAY):
            continue
        value = properties[name_end + 2 : at]
        if found is None:
            found = PublishOptions()
        if name == PRODUCER:
            # a long name stands for itself by its digest: cut, two of them could be taken for one
            found.producer = value if len(value) <= 255 else hashlib.sha256(value).hexdigest().encode()
            continue
        number = read_number(value)
        if number < 0:
            continue  # not a number: nothing we could follow
        if name == SEQUENCE:
            sequence = number
        elif name == PRIORITY:
            found.priority = number if number < 255 else 255
        else:
            found.delay_ms = number if number < DELAY_MS_MAX else DELAY_MS_MAX
    if found is not None and sequence >= 0:
        found.sequence = sequence
    elif found is not None:
        found.producer = b""  # without a sequence nothing can be told apart
    return found


def read_number(value: bytes) -> i64:
    """-1 when it is none that could be meant."""
    if not value.isdigit() or len(value) > 18:
        return -1
    return int(value)


def read_user_properties(properties: bytes) -> list[tuple[bytes, bytes]]:
    """Pairs in order."""
    return [(name, value) for name, value, _, _ in find_user_properties(properties)]


def find_user_properties(properties: bytes) -> list[tuple[bytes, bytes, int, int]]:
    """(name, value, where it begins, where it ends). The block is canonical: it was checked when it came in."""
    found: list[tuple[bytes, bytes, int, int]] = []
    at: i64 = 0
    end: i64 = len(properties)
    while at < end:
        start: i64 = at
        identifier: i64 = properties[at]
        at = _after(properties, at, identifier)
        if identifier == USER_PROPERTY:
            value_at: i64 = _after_text(properties, start + 1)
            name = properties[start + 3 : value_at]
            found.append((name, properties[value_at + 2 : at], int(start), int(at)))
    return found


def _after(properties: bytes, at: i64, identifier: i64) -> i64:
    """Behind the property that begins at `at`."""
    if identifier == USER_PROPERTY:
        return _after_text(properties, _after_text(properties, at + 1))
    if identifier == 0x01:  # payload format indicator
        return at + 2
    if identifier == 0x02:  # message expiry interval
        return at + 5
    # content type, response topic, correlation data, what is carried: a length and as many bytes
    return _after_text(properties, at + 1)


def _after_text(properties: bytes, at: i64) -> i64:
    return at + 2 + ((i64(properties[at]) << 8) | i64(properties[at + 1]))


def drop_user_properties(properties: bytes, names: tuple[bytes, ...]) -> bytes:
    """The block without these."""
    parts: list[bytes] = []
    kept = 0
    for name, _, start, end in find_user_properties(properties):
        if name in names:
            parts.append(properties[kept:start])
            kept = end
    return b"".join(parts) + properties[kept:] if parts else properties


def encode_user_property(name: bytes, value: bytes) -> bytes:
    return b"".join([b"\x26", len(name).to_bytes(2, "big"), name, len(value).to_bytes(2, "big"), value])
