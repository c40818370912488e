"""What a publisher asks of a queue, in user properties of the message: producer and sequence, priority, delay."""

from __future__ import annotations

import hashlib
from typing import Final, final

from mypy_extensions import i64

USER_PROPERTY: Final = 0x26
PRODUCER: Final = b"producer-id"
SEQUENCE: Final = b"sequence"
PRIORITY: Final = b"priority"
DELAY: Final = b"delay-ms"
DELAY_MS_MAX: Final[i64] = 366 * 86_400_000


@final
class Directions:
    def __init__(self) -> None:
        self.producer = b""
        self.sequence: i64 = 0
        self.priority: i64 = 0
        self.delay_ms: i64 = 0


def read_directions(properties: bytes) -> Directions | None:
    """None when there are none, which costs next to nothing."""
    if not properties:
        return None
    found: Directions | None = None
    sequence: i64 = -1
    for name, value in read_user_properties(properties):
        if name not in (PRODUCER, SEQUENCE, PRIORITY, DELAY):
            continue
        if found is None:
            found = Directions()
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
        at += 1
        if identifier == USER_PROPERTY:
            size: i64 = (properties[at] << 8) | properties[at + 1]
            name = properties[at + 2 : at + 2 + size]
            at += 2 + size
            size = (properties[at] << 8) | properties[at + 1]
            value = properties[at + 2 : at + 2 + size]
            at += 2 + size
            found.append((name, value, int(start), int(at)))
        elif identifier == 0x01:  # payload format indicator
            at += 1
        elif identifier == 0x02:  # message expiry interval
            at += 4
        else:  # content type, response topic, correlation data: a length and as many bytes
            size = (properties[at] << 8) | properties[at + 1]
            at += 2 + size
    return found


def encode_user_property(name: bytes, value: bytes) -> bytes:
    return b"".join([b"\x26", len(name).to_bytes(2, "big"), name, len(value).to_bytes(2, "big"), value])
