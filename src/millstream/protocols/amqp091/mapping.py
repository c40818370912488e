"""Between AMQP's words and ours: publishes to messages, refusals to reply codes."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.line import Ending
from millstream.model.errors import Reason, Refused
from millstream.model.message import Message
from millstream.model.native_properties import encode_native_properties
from millstream.model.reserved_words import is_reserved
from millstream.protocols.amqp091.from_message import Native
from millstream.protocols.amqp091.json_values import plain_arguments as plain_arguments
from millstream.protocols.amqp091.json_values import type_name
from millstream.protocols.amqp091.to_message import (
    EXPIRATION,
    HEADERS,
    REPLY_TO,
    USER_ID,
    flags_of,
    make_view,
)
from millstream.protocols.amqp091.wire import codes as code
from millstream.protocols.amqp091.wire.field_table import decode_table
from millstream.protocols.amqp091.wire.properties import (
    decode_properties,
    expiration_of,
    find_headers,
    without_headers,
)
from millstream.queues.catalog import Catalog
from millstream.queues.x_death import KEY_SIZE_MAX, KEYS_MAX

REPLY_CODES: Final[dict[Reason, int]] = {
    Reason.SUCCESS: code.REPLY_SUCCESS,
    Reason.NO_MATCHING_SUBSCRIBERS: code.NO_ROUTE,
    Reason.NO_SUBSCRIPTION_EXISTED: code.NOT_FOUND,
    Reason.UNSPECIFIED: code.COMMAND_INVALID,
    Reason.NOT_AUTHORIZED: code.ACCESS_REFUSED,
    Reason.BAD_CREDENTIALS: code.ACCESS_REFUSED,
    Reason.TOPIC_INVALID: code.PRECONDITION_FAILED,
    Reason.FILTER_INVALID: code.PRECONDITION_FAILED,
    Reason.TOO_LARGE: code.PRECONDITION_FAILED,
    Reason.QUOTA_EXCEEDED: code.PRECONDITION_FAILED,
    Reason.RATE_EXCEEDED: code.RESOURCE_ERROR,
    Reason.GUARANTEE_NOT_SUPPORTED: code.NOT_IMPLEMENTED,
    Reason.UNAVAILABLE: code.RESOURCE_ERROR,
    Reason.SERVER_BUSY: code.RESOURCE_ERROR,
    Reason.SHARED_NOT_ALLOWED: code.ACCESS_REFUSED,
    Reason.CLIENT_ID_INVALID: code.NOT_ALLOWED,
    Reason.IN_USE: code.ACCESS_REFUSED,
    Reason.NOT_FOUND: code.NOT_FOUND,
    Reason.PRECONDITION_FAILED: code.PRECONDITION_FAILED,
    Reason.LOCKED: code.RESOURCE_LOCKED,
}

ENDING_CODES: Final[dict[Ending, int]] = {
    Ending.TAKEN_OVER: code.CONNECTION_FORCED,
    Ending.NOT_AUTHORIZED: code.ACCESS_REFUSED,
    Ending.SHUTTING_DOWN: code.CONNECTION_FORCED,
    Ending.TOO_SLOW: code.RESOURCE_ERROR,
    Ending.ADMINISTRATIVE: code.CONNECTION_FORCED,
    Ending.UNAVAILABLE: code.RESOURCE_ERROR,
    Ending.OUT_OF_MEMORY: code.RESOURCE_ERROR,
}

ENDING_TEXTS: Final[dict[Ending, str]] = {
    Ending.TAKEN_OVER: "another connection took over",
    Ending.NOT_AUTHORIZED: "the right to be connected was withdrawn",
    Ending.SHUTTING_DOWN: "the broker is shutting down",
    Ending.TOO_SLOW: "the client does not read what it consumes",
    Ending.ADMINISTRATIVE: "an operator closed the connection",
    Ending.UNAVAILABLE: "the publish cannot be made durable now",
    Ending.OUT_OF_MEMORY: "the broker is short of memory and this connection holds much of it (memory.limit)",
}

# which of the codes end the connection; the others end the channel [AMQP091 1.1]
HARD_CODES: Final = frozenset(
    {
        code.CONNECTION_FORCED,
        code.INVALID_PATH,
        code.FRAME_ERROR,
        code.SYNTAX_ERROR,
        code.COMMAND_INVALID,
        code.CHANNEL_ERROR,
        code.UNEXPECTED_FRAME,
        code.RESOURCE_ERROR,
        code.NOT_ALLOWED,
        code.NOT_IMPLEMENTED,
        code.INTERNAL_ERROR,
    }
)

MILLISECOND: Final[i64] = 1_000_000
EXPIRATION_MS_MAX: Final = 315_360_000_000  # ten years, as RabbitMQ
CC: Final = b"CC"
BCC: Final = b"BCC"
VIEWS_MAX: Final = 64  # that a connection remembers
VIEW_SIZE_MAX: Final = 1024


@final
class PropertyCache:
    """What the last publish of a channel became: the next one mostly says the same about itself.

    `catalog` knows which reply addresses are queues.
    """

    def __init__(self, catalog: Catalog | None = None, views: dict[bytes, bytes] | None = None) -> None:
        self._catalog = catalog
        self._views: dict[bytes, bytes] = {} if views is None else views
        self.given = b""  # the properties as they came
        self.block = b""
        self.native: Native | None = None

    def renew(self, exchange: bytes, routing_key: bytes, properties: bytes) -> Native:
        self.given = properties
        properties = without_blind_copies(properties)
        self.block = encode_native_properties(exchange, routing_key, properties, self._find_view(properties))
        native = Native(exchange, routing_key, properties)
        self.native = native
        return native

    def _find_view(self, properties: bytes) -> bytes:
        if len(properties) > VIEW_SIZE_MAX or flags_of(properties) & REPLY_TO:  # queues come and go
            return make_view(properties, self._catalog)
        view = self._views.get(properties)
        if view is None:
            view = make_view(properties, self._catalog)
            if len(self._views) >= VIEWS_MAX:
                self._views.clear()
            self._views[properties] = view
        return view


def make_message(
    cache: PropertyCache,
    exchange: bytes,
    routing_key: bytes,
    topic: bytes,
    properties: bytes,
    body: bytes,
    guarantee: i64,
    expires_ns: i64,
    publisher: str,
) -> Message:
    """`properties` were checked when they came in."""
    native = cache.native
    if (
        native is None
        or properties != cache.given
        or native.routing_key != routing_key
        or native.exchange != exchange
    ):
        native = cache.renew(exchange, routing_key, properties)
    message = Message(topic, body, guarantee, False, cache.block, expires_ns, publisher)
    message.encoding = native
    return message


def find_reserved(properties: bytes) -> list[bytes]:
    """Headers that only the broker may write."""
    headers = decode_properties(properties).headers
    return [] if headers is None else [name for name in headers if is_reserved(name)]


def expiry_of(properties: bytes, now_ns: i64) -> i64:
    """When a message ends; 0: never. Refused as RabbitMQ does it when its expiration is no number of milliseconds."""
    if flags_of(properties) & EXPIRATION == 0:
        return 0
    text = expiration_of(properties)
    milliseconds = int(text) if text.isdigit() and len(text) <= 12 else _read_milliseconds(text)
    if milliseconds > EXPIRATION_MS_MAX:
        raise _refuse_expiration(text, f"{{value_too_large,{milliseconds}}}")
    if milliseconds == 0:
        return now_ns + 1  # still good for a consumer that waits for it now
    return now_ns + milliseconds * MILLISECOND


def _read_milliseconds(text: bytes) -> int:
    """A number with a sign or with many zeros, which RabbitMQ takes; what is none is refused in its words."""
    start = 1 if text[:1] in (b"+", b"-") else 0
    end = start
    while end < len(text) and 48 <= text[end] <= 57:
        end += 1
    if end == start:
        raise _refuse_expiration(text, "no_integer")
    if end < len(text):
        rest = text[end:].decode(errors="replace")
        rest = rest.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        raise _refuse_expiration(text, f'{{leftover_string,"{rest}"}}')
    milliseconds = int(text)
    if milliseconds < 0:
        raise _refuse_expiration(text, f"{{value_negative,{milliseconds}}}")
    return milliseconds


def _refuse_expiration(text: bytes, why: str) -> Refused:
    shown = text.decode(errors="replace")
    return Refused(Reason.PRECONDITION_FAILED, f"invalid expiration '{shown}': {why}")


def without_blind_copies(properties: bytes) -> bytes:
    """Who else gets it is nobody's business."""
    if flags_of(properties) & HEADERS and BCC in properties:
        return without_headers(properties, [BCC])
    return properties


def extra_keys(properties: bytes) -> list[bytes]:
    """Further routing keys that a publisher named in the headers CC and BCC."""
    if flags_of(properties) & HEADERS == 0:
        return []
    start, end = find_headers(properties)
    if properties.find(CC, start, end) < 0:
        return []
    table, _ = decode_table(properties, start, end)
    keys: list[bytes] = []
    for name in (CC, BCC):
        if name not in table:
            continue
        value = table[name]
        if not isinstance(value, list):
            kind = type_name(value)
            text = f'invalid message: {{unacceptable_type_in_header,"{name.decode()}",{kind}}}'
            raise Refused(Reason.PRECONDITION_FAILED, text)
        for key in value:
            if isinstance(key, bytes):
                keys.append(key)
    if len(keys) > KEYS_MAX or any([len(key) > KEY_SIZE_MAX for key in keys]):
        text = f"invalid message: CC and BCC name at most {KEYS_MAX} routing keys of {KEY_SIZE_MAX} bytes"
        raise Refused(Reason.PRECONDITION_FAILED, text)
    return keys


def user_id_of(properties: bytes) -> bytes | None:
    """None when the publisher does not say who it is; an empty name is one too."""
    if flags_of(properties) & USER_ID == 0:
        return None
    return decode_properties(properties).user_id
