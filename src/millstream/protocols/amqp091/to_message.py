"""The properties of an AMQP publish as all protocols read them: MQTT 5's block.

    content-type, correlation-id        the properties of MQTT 5 of these names
    reply-to                            response topic: the queue of that name, else the topic
    headers                             user properties in order: texts as they are, other values as their JSON
    message-id, timestamp, type, ...    user properties behind them
    expiration                          the message's expiry; delivery-mode is its guarantee: neither stands in the block

AMQP clients get what was published, byte for byte (`from_message`): nothing here has to be turned back.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from millstream.model.routing_key import topic_of_name, topic_of_publish
from millstream.protocols.amqp091.json_values import name_of, text_of, text_of_value
from millstream.protocols.amqp091.wire.field_table import ByteArray, FieldTable
from millstream.protocols.amqp091.wire.properties import BasicProperties, decode_properties
from millstream.queues.catalog import Catalog
from millstream.queues.publish_options import DELAY, PRIORITY

# the flags of basic's property list
HEADERS: Final[i64] = 0x2000
DELIVERY_MODE: Final[i64] = 0x1000
REPLY_TO: Final[i64] = 0x0200
EXPIRATION: Final[i64] = 0x0100
USER_ID: Final[i64] = 0x0010

PAYLOAD_FORMAT: Final[i64] = 0x01
CONTENT_TYPE: Final[i64] = 0x03
RESPONSE_TOPIC: Final[i64] = 0x08
CORRELATION_DATA: Final[i64] = 0x09
USER_PROPERTY: Final[i64] = 0x26
TEXT_MAX: Final[i64] = 0xFFFF

# headers with a meaning of their own
DELAY_HEADER: Final = b"x-delay"
CORRELATION_HEADER: Final = b"x-correlation-id"  # correlation data that no short string can hold
FORMAT_HEADER: Final = b"payload-format"


def flags_of(properties: bytes) -> i64:
    return (i64(properties[0]) << 8) | i64(properties[1])


def make_view(properties: bytes, catalog: Catalog | None) -> bytes:
    if flags_of(properties) & ~(DELIVERY_MODE | EXPIRATION) == 0:
        return b""
    decoded = decode_properties(properties)
    writer = BytesWriter()
    headers = decoded.headers
    if headers is not None and headers.get(FORMAT_HEADER) == 1:
        writer.append(u8(PAYLOAD_FORMAT))
        writer.append(u8(1))
    if decoded.content_type is not None:
        _write(writer, CONTENT_TYPE, text_of(decoded.content_type))
    if decoded.reply_to:
        _write(writer, RESPONSE_TOPIC, response_topic_of(decoded.reply_to, catalog))
    correlation = decoded.correlation_id
    if correlation is None and headers is not None:
        correlation = _bytes_of(headers.get(CORRELATION_HEADER))
    if correlation is not None and len(correlation) <= TEXT_MAX:
        _write(writer, CORRELATION_DATA, correlation)
    if headers:
        _write_headers(writer, headers)
    _write_properties(writer, decoded)
    return writer.getvalue()


def response_topic_of(reply_to: bytes, catalog: Catalog | None) -> bytes:
    """Where an MQTT client answers, so that it arrives where an AMQP client's answer to `reply_to` would."""
    if reply_to.startswith((b"$queue/", b"$dlq/")):
        return topic_of_publish(b"", reply_to)
    if catalog is not None and catalog.find(reply_to.decode(errors="replace")) is not None:
        return topic_of_publish(b"", reply_to)
    return topic_of_name(reply_to)


def _bytes_of(value: object) -> bytes | None:
    if isinstance(value, ByteArray):
        return value.data
    return value if isinstance(value, bytes) else None


def _write_headers(writer: BytesWriter, headers: FieldTable) -> None:
    for name, value in headers.items():
        if name == FORMAT_HEADER and value == 1:
            continue
        _write_pair(writer, name_of(name), text_of_value(value))
    delay = headers.get(DELAY_HEADER)
    if isinstance(delay, int) and delay > 0:
        _write_pair(writer, DELAY, b"%d" % delay)


def _write_properties(writer: BytesWriter, decoded: BasicProperties) -> None:
    """Behind the headers: of two user properties with one name the broker follows the last."""
    _write_text(writer, b"content-encoding", decoded.content_encoding)
    if decoded.priority is not None:
        _write_pair(writer, PRIORITY, b"%d" % decoded.priority)
    elif decoded.headers is not None and PRIORITY in decoded.headers:
        _write_pair(writer, PRIORITY, b"0")  # a header of that name asks nothing of an AMQP queue
    _write_text(writer, b"message-id", decoded.message_id)
    if decoded.timestamp is not None:
        _write_pair(writer, b"timestamp", b"%d" % decoded.timestamp)
    _write_text(writer, b"type", decoded.type)
    _write_text(writer, b"user-id", decoded.user_id)
    _write_text(writer, b"app-id", decoded.app_id)
    _write_text(writer, b"cluster-id", decoded.cluster_id)


def _write_text(writer: BytesWriter, name: bytes, value: bytes | None) -> None:
    if value is not None:
        _write_pair(writer, name, text_of(value))


def _write_pair(writer: BytesWriter, name: bytes, value: bytes) -> None:
    if len(value) > TEXT_MAX or len(name) > TEXT_MAX:
        return  # longer than MQTT can say: only AMQP clients get it
    _write(writer, USER_PROPERTY, name)
    _write_size(writer, len(value))
    writer.write(value)


def _write(writer: BytesWriter, identifier: i64, text: bytes) -> None:
    writer.append(u8(identifier))
    _write_size(writer, len(text))
    writer.write(text)


def _write_size(writer: BytesWriter, size: i64) -> None:
    writer.append(u8(size >> 8))
    writer.append(u8(size & 0xFF))
