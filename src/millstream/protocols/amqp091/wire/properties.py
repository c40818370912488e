"""The properties of a message, as they stand behind the body size in a header frame: flags, then what they announce.

Messages travel as these raw bytes; only what is asked for is read. The order of fields and flags is:

    15 content-type  14 content-encoding  13 headers  12 delivery-mode  11 priority  10 correlation-id  9 reply-to
    8 expiration  7 message-id  6 timestamp  5 type  4 user-id  3 app-id  2 cluster-id      bits 1 and 0 are always 0

Invariants
- `check_properties` decides what is well formed, and raises nothing but Violation. Readers and editors, except for
  `decode_properties`, take bytes it has let pass.
- Editors keep every byte of what they do not change.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from millstream.protocols.amqp091.wire.codes import BASIC, SYNTAX_ERROR
from millstream.protocols.amqp091.wire.field_table import (
    FieldTable,
    after_value,
    check_table,
    decode_table,
    encode_number,
    encode_table,
)
from millstream.protocols.amqp091.wire.violation import Violation

EMPTY: Final = b"\x00\x00"

_CONTENT_TYPE: Final[i64] = 0x8000
_CONTENT_ENCODING: Final[i64] = 0x4000
_HEADERS: Final[i64] = 0x2000
_DELIVERY_MODE: Final[i64] = 0x1000
_PRIORITY: Final[i64] = 0x0800
_CORRELATION_ID: Final[i64] = 0x0400
_REPLY_TO: Final[i64] = 0x0200
_EXPIRATION: Final[i64] = 0x0100
_MESSAGE_ID: Final[i64] = 0x0080
_TIMESTAMP: Final[i64] = 0x0040
_TYPE: Final[i64] = 0x0020
_USER_ID: Final[i64] = 0x0010
_APP_ID: Final[i64] = 0x0008
_CLUSTER_ID: Final[i64] = 0x0004
_UNUSED: Final[i64] = 0x0003
_OCTETS: Final[i64] = _DELIVERY_MODE | _PRIORITY


@final
class BasicProperties:
    """None: absent."""

    def __init__(
        self,
        content_type: bytes | None = None,
        content_encoding: bytes | None = None,
        headers: FieldTable | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        correlation_id: bytes | None = None,
        reply_to: bytes | None = None,
        expiration: bytes | None = None,
        message_id: bytes | None = None,
        timestamp: int | None = None,
        type: bytes | None = None,
        user_id: bytes | None = None,
        app_id: bytes | None = None,
        cluster_id: bytes | None = None,
    ) -> None:
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.headers = headers
        self.delivery_mode = delivery_mode
        self.priority = priority
        self.correlation_id = correlation_id
        self.reply_to = reply_to
        self.expiration = expiration
        self.message_id = message_id
        self.timestamp = timestamp
        self.type = type
        self.user_id = user_id
        self.app_id = app_id
        self.cluster_id = cluster_id

    def fields(self) -> dict[str, object]:
        """All of them by name, in the order of the wire."""
        return {
            "content_type": self.content_type,
            "content_encoding": self.content_encoding,
            "headers": self.headers,
            "delivery_mode": self.delivery_mode,
            "priority": self.priority,
            "correlation_id": self.correlation_id,
            "reply_to": self.reply_to,
            "expiration": self.expiration,
            "message_id": self.message_id,
            "timestamp": self.timestamp,
            "type": self.type,
            "user_id": self.user_id,
            "app_id": self.app_id,
            "cluster_id": self.cluster_id,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BasicProperties) and self.fields() == other.fields()

    def __repr__(self) -> str:
        present = [f"{name}={value!r}" for name, value in self.fields().items() if value is not None]
        return "BasicProperties(" + ", ".join(present) + ")"


# ------------------------------------------------------------- checking


def check_properties(raw: bytes) -> None:
    check_properties_at(raw, 0, len(raw))


def check_properties_at(buffer: bytes, start: i64, end: i64) -> None:
    """Walks the lengths in `buffer[start:end]` and builds nothing."""
    if start + 2 > end:
        raise Violation(SYNTAX_ERROR, "the flags of the properties are cut short", BASIC)
    flags: i64 = _flags(buffer, start)
    if flags & _UNUSED:
        raise Violation(SYNTAX_ERROR, "basic has no more than fourteen properties", BASIC)
    at: i64 = start + 2
    flag: i64 = _CONTENT_TYPE
    while flag > _UNUSED:
        if flags & flag:
            if at >= end:
                raise Violation(SYNTAX_ERROR, "the properties end before one that they announce", BASIC)
            if flag == _HEADERS:
                check_table(buffer, at, end)
            at = _after(buffer, at, flag)
            if at > end:
                raise Violation(SYNTAX_ERROR, "the properties end inside one", BASIC)
        flag >>= 1
    if at != end:
        raise Violation(SYNTAX_ERROR, "the properties have bytes behind the last one", BASIC)


def _flags(raw: bytes, start: i64) -> i64:
    return i64(read_i16_be(raw, start)) & 0xFFFF


def _after(raw: bytes, at: i64, flag: i64) -> i64:
    """The position after the property at `at`; its first byte (of headers: the first four) must be there."""
    if flag & _OCTETS:
        return at + 1
    if flag == _HEADERS:
        return at + 4 + (i64(read_i32_be(raw, at)) & 0xFFFFFFFF)
    if flag == _TIMESTAMP:
        return at + 8
    return at + 1 + i64(raw[at])


# ------------------------------------------------------------- small readers of checked properties


def _place(raw: bytes, wanted: i64) -> i64:
    """Where a property stands, or would stand if it were there."""
    flags: i64 = _flags(raw, 0)
    at: i64 = 2
    flag: i64 = _CONTENT_TYPE
    while flag > wanted:
        if flags & flag:
            at = _after(raw, at, flag)
        flag >>= 1
    return at


def delivery_mode_of(raw: bytes) -> i64:
    """0: absent."""
    if not _flags(raw, 0) & _DELIVERY_MODE:
        return 0
    return i64(raw[_place(raw, _DELIVERY_MODE)])


def priority_of(raw: bytes) -> i64:
    """-1: absent."""
    if not _flags(raw, 0) & _PRIORITY:
        return -1
    return i64(raw[_place(raw, _PRIORITY)])


def expiration_of(raw: bytes) -> bytes:
    """Empty: absent."""
    return _find_text(raw, _EXPIRATION) or b""


def find_headers(raw: bytes) -> tuple[i64, i64]:
    """Where the headers table begins and ends, its length included; (0, 0): there is none."""
    if not _flags(raw, 0) & _HEADERS:
        return 0, 0
    start: i64 = _place(raw, _HEADERS)
    return start, _after(raw, start, _HEADERS)


def _find_text(raw: bytes, flag: i64) -> bytes | None:
    if not _flags(raw, 0) & flag:
        return None
    at: i64 = _place(raw, flag)
    return raw[at + 1 : at + 1 + i64(raw[at])]


# ------------------------------------------------------------- whole


def decode_properties(raw: bytes) -> BasicProperties:
    check_properties(raw)
    properties = BasicProperties()
    flags: i64 = _flags(raw, 0)
    at: i64 = 2
    flag: i64 = _CONTENT_TYPE
    while flag > _UNUSED:
        if flags & flag:
            after: i64 = _after(raw, at, flag)
            if flag == _HEADERS:
                properties.headers = decode_table(raw, at, after)[0]
            elif flag == _DELIVERY_MODE:
                properties.delivery_mode = raw[at]
            elif flag == _PRIORITY:
                properties.priority = raw[at]
            elif flag == _TIMESTAMP:
                seconds = int(read_i64_be(raw, at))
                properties.timestamp = seconds if seconds >= 0 else seconds + (1 << 64)
            else:
                _set_text(properties, flag, raw[at + 1 : after])
            at = after
        flag >>= 1
    return properties


def _set_text(properties: BasicProperties, flag: i64, text: bytes) -> None:
    if flag == _CONTENT_TYPE:
        properties.content_type = text
    elif flag == _CONTENT_ENCODING:
        properties.content_encoding = text
    elif flag == _CORRELATION_ID:
        properties.correlation_id = text
    elif flag == _REPLY_TO:
        properties.reply_to = text
    elif flag == _EXPIRATION:
        properties.expiration = text
    elif flag == _MESSAGE_ID:
        properties.message_id = text
    elif flag == _TYPE:
        properties.type = text
    elif flag == _USER_ID:
        properties.user_id = text
    elif flag == _APP_ID:
        properties.app_id = text
    else:
        properties.cluster_id = text


def encode_properties(properties: BasicProperties) -> bytes:
    """A value that does not fit raises ValueError: that is the caller's error, not the peer's."""
    inside = BytesWriter()
    flags: i64 = 0
    flag: i64 = _CONTENT_TYPE
    for value in properties.fields().values():
        if value is not None:
            flags |= flag
            if isinstance(value, bytes):
                inside.write(encode_number(len(value), 1))
                inside.write(value)
            elif isinstance(value, dict):
                inside.write(encode_table(value))
            elif isinstance(value, int):
                inside.write(encode_number(value, 1 if flag & _OCTETS else 8))
        flag >>= 1
    return int(flags).to_bytes(2, "big") + inside.getvalue()


# ------------------------------------------------------------- editors of checked properties


def with_headers(raw: bytes, entries: bytes) -> bytes:
    """With table entries put behind those of the headers table, which is made if there is none."""
    start, end = find_headers(raw)
    if start == 0:
        at: i64 = _place(raw, _HEADERS)
        flags = _encode_flags(_flags(raw, 0) | _HEADERS)
        return b"".join([flags, raw[2:at], encode_number(len(entries), 4), entries, raw[at:]])
    length = encode_number(int(end - start) - 4 + len(entries), 4)
    return b"".join([raw[:start], length, raw[start + 4 : end], entries, raw[end:]])


def without_headers(raw: bytes, names: list[bytes]) -> bytes:
    """With the entries of these names taken out of the headers table, which stays even if it is empty then."""
    start, end = find_headers(raw)
    kept: list[bytes] = []
    from_: i64 = start + 4  # of what is kept
    at: i64 = from_
    while at < end:
        entry: i64 = at
        value_at: i64 = at + 1 + i64(raw[at])
        at = after_value(raw, value_at)
        if raw[entry + 1 : value_at] in names:
            kept.append(raw[from_:entry])
            from_ = at
    if from_ == start + 4:
        return raw
    kept.append(raw[from_:end])
    inside = b"".join(kept)
    return b"".join([raw[:start], encode_number(len(inside), 4), inside, raw[end:]])


def without_expiration(raw: bytes) -> bytes:
    flags: i64 = _flags(raw, 0)
    if not flags & _EXPIRATION:
        return raw
    at: i64 = _place(raw, _EXPIRATION)
    return b"".join([_encode_flags(flags & ~_EXPIRATION), raw[2:at], raw[_after(raw, at, _EXPIRATION) :]])


def _encode_flags(flags: i64) -> bytes:
    return int(flags).to_bytes(2, "big")
