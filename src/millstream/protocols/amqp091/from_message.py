"""A message as AMQP clients get it: exchange, routing key and the property list of basic.

A message of an AMQP publisher carries its own, which is passed on byte for byte; only a dead letter is changed: it says what
became of it, and has no expiration any more. For one of another protocol it is made from the canonical block:

    content type, response topic, correlation data        content-type, reply-to, correlation-id
    user properties message-id, timestamp, type, app-id,
      content-encoding, cluster-id, priority              the property of that name
    other user properties                                 headers; a name that comes more than once is an array
    guarantee, expiry                                     delivery-mode, expiration

What does not fit (a text of more than 255 bytes, a number that is none) stays a header. So does `user-id`: RabbitMQ promises
that it was proven, and an MQTT client can write anything there.
"""

from __future__ import annotations

import json
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.message import Encoding, Message
from millstream.model.native_properties import (
    AMQP_091,
    canonical_part,
    carried_end,
    find_address,
    has_carried,
    native_part,
)
from millstream.model.queue_topic import split_queue_topic
from millstream.model.routing_key import TOPIC_EXCHANGE, key_of_topic
from millstream.model.topic import find_utf8_fault
from millstream.protocols.amqp091.json_values import text_of_value
from millstream.protocols.amqp091.to_message import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    CORRELATION_HEADER,
    FORMAT_HEADER,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    USER_PROPERTY,
)
from millstream.protocols.amqp091.wire.field_table import (
    ByteArray,
    FieldTable,
    Long,
    Timestamp,
    encode_entries,
)
from millstream.protocols.amqp091.wire.properties import (
    BasicProperties,
    decode_properties,
    encode_properties,
    with_headers,
    without_expiration,
    without_headers,
)
from millstream.queues.publish_options import PRIORITY, read_number, read_user_properties

SHORT_MAX: Final = 255
PRIORITY_MAX: Final = 255
TIMESTAMP_MAX: Final = 253_402_300_799  # the end of the year 9999: clients make a date of it
COUNT_MAX: Final = 1 << 53
MILLISECOND: Final[i64] = 1_000_000
SOURCE_TOPIC: Final = b"x-source-topic"
LONG_NAMES: Final = b"x-user-properties"  # pairs whose names no table can hold
COPIES: Final = b"CC"
DEATH: Final = b"x-death"
DEATH_WORDS: Final = (b"x-death", b"x-first-death-exchange", b"x-first-death-queue", b"x-first-death-reason")
_DEATH_MARK: Final = b"\x26\x00\x07x-death"
_PLAIN: Final = (b"\x10\x00\x01", b"\x10\x00\x02")  # nothing but delivery-mode


@final
@mypyc_attr(acyclic=True)
class Native(Encoding):
    """Messages of one publisher that are equal in this share it."""

    def __init__(self, exchange: bytes, routing_key: bytes, properties: bytes) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties


def read_native(message: Message, now_ns: i64 = 0) -> Native:
    """Made once for all receivers. Without the time a message of another protocol has no expiration."""
    encoding = message.encoding
    if isinstance(encoding, Native):
        return encoding
    if encoding is None:
        native = make_native(message, now_ns)
        message.encoding = native
        return native
    other = encoding.other
    if isinstance(other, Native):
        return other
    native = make_native(message, now_ns)
    encoding.other = native
    return native


@final
class NativeCache:
    """For messages that come from records one by one: neighbours are mostly equal in all but their payload."""

    def __init__(self) -> None:
        self._block = b""
        self._native: Native | None = None

    def read(self, message: Message, now_ns: i64) -> Native:
        block = message.properties
        if message.encoding is not None or not has_carried(block) or i64(block[3]) != AMQP_091:
            return read_native(message, now_ns)
        native = self._native
        if native is None or block != self._block:
            native = make_native(message, now_ns)
            self._native = native
            self._block = block
        message.encoding = native
        return native


def make_native(message: Message, now_ns: i64) -> Native:
    block = message.properties
    if has_carried(block) and i64(block[3]) == AMQP_091:
        return _carried_native(block)
    address = find_address(block)
    if address is None:
        address = _address_of(message.topic)
    exchange, key = address
    if not block and (message.expires_ns == 0 or now_ns == 0):
        properties = _PLAIN[1] if message.guarantee else _PLAIN[0]
    else:
        properties = _made_properties(message, canonical_part(block), now_ns)
    if len(key) > SHORT_MAX or (not exchange and message.topic.count(b"/") > 1):
        # more than a short string can hold, or than the name of the queue says
        properties = with_headers(properties, encode_entries({SOURCE_TOPIC: message.topic}))
        key = key[:SHORT_MAX].decode(errors="ignore").encode()
    return Native(exchange, key, properties)


def _address_of(topic: bytes) -> tuple[bytes, bytes]:
    place = split_queue_topic(topic)
    if place is not None:
        return b"", place[0].encode()
    return TOPIC_EXCHANGE, key_of_topic(topic)


# ------------------------------------------------------------------ carried


def _carried_native(block: bytes) -> Native:
    """Slices of what the publisher sent, unless it is a dead letter."""
    end: i64 = carried_end(block)
    data = block
    base: i64 = 3
    if 3 + ((i64(block[1]) << 8) | i64(block[2])) != end:
        data = native_part(block)  # in several pieces
        base = 0
        behind: i64 = len(data)
    else:
        behind = end
    key_at: i64 = base + 2 + i64(data[base + 1])
    properties_at: i64 = key_at + 1 + i64(data[key_at])
    properties = data[properties_at:behind]
    if block.find(_DEATH_MARK, end) >= 0:
        properties = _with_deaths(properties, block[end:])
    return Native(data[base + 2 : key_at], data[key_at + 1 : properties_at], properties)


def _with_deaths(properties: bytes, view: bytes) -> bytes:
    words: FieldTable = {}
    has_copies = False
    headers = decode_properties(properties).headers
    for name, value in read_user_properties(view):
        if name == DEATH:
            if headers is not None and DEATH in headers and text_of_value(headers[DEATH]) == value:
                return properties  # it was published with this history, and has not died since
            words[name] = _deaths_of(value)
        elif name in DEATH_WORDS:
            words[name] = value
        elif name == COPIES:
            has_copies = True
    if DEATH not in words:
        return properties  # the mark stood inside of something else
    dropped = list(words)
    if not has_copies:
        dropped.append(COPIES)  # it was given a key of its own instead
    kept = without_headers(without_expiration(properties), dropped)
    return with_headers(kept, encode_entries(words))


def _deaths_of(text: bytes) -> object:
    """What queues write of a message's ends, as RabbitMQ's clients know it; a text of anybody else as it is."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(told, list):
        return text
    deaths: list[object] = []
    for entry in told:
        death = _death_of(entry) if isinstance(entry, dict) else None
        if death is None:
            return text
        deaths.append(death)
    return deaths


def _death_of(entry: dict[str, object]) -> FieldTable | None:
    death: FieldTable = {}
    for name in ("count", "reason", "queue", "time", "exchange", "routing-keys", "original-expiration"):
        value = entry.get(name)
        if value is None:
            continue
        key = name.encode()
        if isinstance(value, str):
            death[key] = value.encode(errors="replace")
        elif isinstance(value, int) and 0 <= value <= (TIMESTAMP_MAX if name == "time" else COUNT_MAX):
            death[key] = Timestamp(value) if name == "time" else Long(value)
        elif isinstance(value, list):
            death[key] = [str(item).encode(errors="replace") for item in value]
        else:
            return None
    return death


# --------------------------------------------------------------------- made


@final
class _View:
    """The canonical block, taken apart."""

    def __init__(self, block: bytes) -> None:
        self.payload_format: i64 = 0
        self.content_type: bytes | None = None
        self.response_topic: bytes | None = None
        self.correlation: bytes | None = None
        self.pairs = read_user_properties(block)
        at: i64 = 0
        while at < len(block):
            identifier: i64 = block[at]
            at += 1
            if identifier == PAYLOAD_FORMAT:
                self.payload_format = i64(block[at])
                at += 1
                continue
            end: i64 = _after(block, at)
            text = block[at + 2 : end]
            if identifier == USER_PROPERTY:
                end = _after(block, end)
            elif identifier == CONTENT_TYPE:
                self.content_type = text
            elif identifier == RESPONSE_TOPIC:
                self.response_topic = text
            elif identifier == CORRELATION_DATA:
                self.correlation = text
            at = end


def _after(block: bytes, at: i64) -> i64:
    return at + 2 + ((i64(block[at]) << 8) | i64(block[at + 1]))


def _made_properties(message: Message, block: bytes, now_ns: i64) -> bytes:
    view = _View(block)
    made = BasicProperties()
    headers: FieldTable = {}
    made.delivery_mode = 2 if message.guarantee else 1
    if message.expires_ns and now_ns:
        left: i64 = (message.expires_ns - now_ns) // MILLISECOND
        made.expiration = b"%d" % int(left if left > 0 else 0)
    _put_own(view, made, headers)
    _put_pairs(view.pairs, made, headers)
    if headers:
        made.headers = headers
    return encode_properties(made)


def _put_own(view: _View, made: BasicProperties, headers: FieldTable) -> None:
    """What MQTT 5 has names of its own for."""
    content_type = view.content_type
    if content_type is not None:
        if len(content_type) <= SHORT_MAX:
            made.content_type = content_type
        else:
            headers[b"content-type"] = content_type
    if view.response_topic is not None:
        reply_to = reply_to_of(view.response_topic)
        if len(reply_to) <= SHORT_MAX:
            made.reply_to = reply_to
        else:
            headers[b"reply-to"] = reply_to
    correlation = view.correlation
    if correlation is not None:
        if len(correlation) <= SHORT_MAX and find_utf8_fault(correlation) is None:
            made.correlation_id = correlation
        else:  # clients fail on a short string that is no text
            headers[CORRELATION_HEADER] = ByteArray(correlation)
    if view.payload_format == 1:
        headers[FORMAT_HEADER] = 1


def reply_to_of(topic: bytes) -> bytes:
    """What an AMQP client publishes to, through the default exchange, so that it arrives at a response topic."""
    place = split_queue_topic(topic)
    if place is not None:
        return topic if place[1] or topic.startswith(b"$dlq/") else place[0].encode()
    # with a dot in one of its levels only the topic itself leads there
    return topic if b"." in topic and b"/" in topic else key_of_topic(topic)


def _put_pairs(pairs: list[tuple[bytes, bytes]], made: BasicProperties, headers: FieldTable) -> None:
    counts: dict[bytes, int] = {}
    for name, _ in pairs:
        counts[name] = counts.get(name, 0) + 1
    many: dict[bytes, list[object]] = {}
    nameless: list[object] = []
    for name, value in pairs:
        if len(name) > SHORT_MAX:
            nameless.append([name, value])
        elif counts[name] > 1:
            values = many.get(name)
            if values is None:
                values = many[name] = []
                headers[name] = values
            values.append(value)
        elif name == DEATH:
            headers[name] = _deaths_of(value)
        elif not _put_property(made, name, value):
            headers[name] = value
    if nameless:
        headers[LONG_NAMES] = nameless


def _put_property(made: BasicProperties, name: bytes, value: bytes) -> bool:
    """False: it is none of basic's, or cannot be said there."""
    if name == PRIORITY:
        number = read_number(value)
        if number < 0 or number > PRIORITY_MAX:
            return False
        made.priority = int(number)
    elif name == b"timestamp":
        number = read_number(value)
        if number < 0 or number > TIMESTAMP_MAX:
            return False
        made.timestamp = int(number)
    elif len(value) > SHORT_MAX:
        return False
    elif name == b"message-id":
        made.message_id = value
    elif name == b"type":
        made.type = value
    elif name == b"app-id":
        made.app_id = value
    elif name == b"content-encoding":
        made.content_encoding = value
    elif name == b"cluster-id":
        made.cluster_id = value
    else:
        return False
    return True
