"""Values of field tables in words that others understand: JSON's, and texts."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Final

from millstream.model.field_type import field_type
from millstream.model.topic import find_utf8_fault
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, FieldTable, Timestamp
from millstream.protocols.amqp091.wire.properties import decode_properties

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def plain_arguments(table: FieldTable) -> dict[str, object]:
    """A table as JSON can say it."""
    found: dict[str, object] = {}
    for name, value in table.items():
        found[name.decode(errors="backslashreplace")] = plain_value(value)
    return found


def plain_properties(properties: bytes) -> dict[str, object]:
    """The property list of basic, by the names of the specification; only what is there."""
    decoded = decode_properties(properties)
    named: dict[str, object] = {
        "content-type": decoded.content_type,
        "content-encoding": decoded.content_encoding,
        "headers": decoded.headers,
        "delivery-mode": decoded.delivery_mode,
        "priority": decoded.priority,
        "correlation-id": decoded.correlation_id,
        "reply-to": decoded.reply_to,
        "expiration": decoded.expiration,
        "message-id": decoded.message_id,
        "timestamp": decoded.timestamp,
        "type": decoded.type,
        "user-id": decoded.user_id,
        "app-id": decoded.app_id,
        "cluster-id": decoded.cluster_id,
    }
    return {name: plain_value(value) for name, value in named.items() if value is not None}


def plain_value(value: object) -> object:
    """Texts are strings, times whole seconds, decimals their digits; bytes that are no text are base64."""
    if isinstance(value, bytes):
        return text_of(value).decode()
    if isinstance(value, dict):
        table: FieldTable = value
        return plain_arguments(table)
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, Timestamp):
        return value.seconds
    if isinstance(value, ByteArray):
        return base64.b64encode(value.data).decode()
    if isinstance(value, Decimal091):
        return str(Decimal(value.value).scaleb(-value.scale))
    return value


def text_of_value(value: object) -> bytes:
    """The text of a scalar, the JSON of anything else."""
    if isinstance(value, bytes):
        return text_of(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode()
    plain = plain_value(value)
    if isinstance(plain, str):
        return plain.encode()
    return _JSON.encode(plain).encode()


def text_of(value: bytes) -> bytes:
    """The same bytes when MQTT takes them for a text, else their base64."""
    return value if is_text(value) else base64.b64encode(value)


def is_text(value: bytes) -> bool:
    if value.isascii():
        return b"\x00" not in value
    return find_utf8_fault(value) is None


def name_of(name: bytes) -> bytes:
    """A name that MQTT takes for a text."""
    if is_text(name):
        return name
    return name.replace(b"\x00", b"\\x00").decode(errors="backslashreplace").encode()


def type_name(value: object) -> str:
    """RabbitMQ's word for the type of a value in a field table."""
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        return "long"
    if isinstance(value, Timestamp):
        return "timestamp"
    if isinstance(value, Decimal091):
        return "decimal"
    return "binary" if isinstance(value, ByteArray) else field_type(value)
