"""Every method by its numbers, decoded and encoded by its layout. Import methods from here.

Invariants
- Only `buffer[position:end]` is read; whatever is wrong raises Violation with the ids of the method, and nothing else.
- The short ways for what comes once a message (publish, ack, deliver) take only what is right; the rest, and every
  fault, goes the one way of the layout.
- A field that cannot be carried raises ValueError: that is the caller's error, not the peer's.

Left to the machine: which side may send what and when.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be
from mypy_extensions import i16, i64, u8

from millstream.protocols.amqp091.wire.codes import (
    BASIC,
    FRAME_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
)
from millstream.protocols.amqp091.wire.field_table import decode_table, encode_number, encode_table
from millstream.protocols.amqp091.wire.method import (
    BIT,
    DELIVERY_TAG,
    LONG,
    LONG_STRING,
    OCTET,
    RESERVED_BIT,
    RESERVED_LONG_STRING,
    RESERVED_SHORT,
    RESERVED_SHORT_STRING,
    ROUTING_KEY,
    SHORT,
    SHORT_STRING,
    TABLE,
    Method,
)
from millstream.protocols.amqp091.wire.methods_basic import (
    BASIC_METHODS,
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from millstream.protocols.amqp091.wire.methods_connection import (
    CONNECTION_METHODS,
    AccessRequest,
    AccessRequestOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from millstream.protocols.amqp091.wire.methods_queue import (
    QUEUE_METHODS,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from millstream.protocols.amqp091.wire.violation import Violation

__all__ = [
    "METHODS",
    "AccessRequest",
    "AccessRequestOk",
    "BasicAck",
    "BasicCancel",
    "BasicCancelOk",
    "BasicConsume",
    "BasicConsumeOk",
    "BasicDeliver",
    "BasicGet",
    "BasicGetEmpty",
    "BasicGetOk",
    "BasicNack",
    "BasicPublish",
    "BasicQos",
    "BasicQosOk",
    "BasicRecover",
    "BasicRecoverAsync",
    "BasicRecoverOk",
    "BasicReject",
    "BasicReturn",
    "ChannelClose",
    "ChannelCloseOk",
    "ChannelFlow",
    "ChannelFlowOk",
    "ChannelOpen",
    "ChannelOpenOk",
    "ConfirmSelect",
    "ConfirmSelectOk",
    "ConnectionBlocked",
    "ConnectionClose",
    "ConnectionCloseOk",
    "ConnectionOpen",
    "ConnectionOpenOk",
    "ConnectionSecure",
    "ConnectionSecureOk",
    "ConnectionStart",
    "ConnectionStartOk",
    "ConnectionTune",
    "ConnectionTuneOk",
    "ConnectionUnblocked",
    "ConnectionUpdateSecret",
    "ConnectionUpdateSecretOk",
    "ExchangeBind",
    "ExchangeBindOk",
    "ExchangeDeclare",
    "ExchangeDeclareOk",
    "ExchangeDelete",
    "ExchangeDeleteOk",
    "ExchangeUnbind",
    "ExchangeUnbindOk",
    "Method",
    "QueueBind",
    "QueueBindOk",
    "QueueDeclare",
    "QueueDeclareOk",
    "QueueDelete",
    "QueueDeleteOk",
    "QueuePurge",
    "QueuePurgeOk",
    "QueueUnbind",
    "QueueUnbindOk",
    "TxCommit",
    "TxCommitOk",
    "TxRollback",
    "TxRollbackOk",
    "TxSelect",
    "TxSelectOk",
    "decode_method",
    "encode_method",
    "find_method_name",
    "name_of_method",
]

METHODS: Final[tuple[type[Method], ...]] = (*CONNECTION_METHODS, *QUEUE_METHODS, *BASIC_METHODS)

_WORD: Final = re.compile("[A-Z][a-z]*")


def _make_name(method: type[Method]) -> str:
    words: list[str] = _WORD.findall(method.__name__)
    return words[0].lower() + "." + "-".join(words[1:]).lower()


def _make_number(class_id: int, method_id: int) -> int:
    return (class_id << 16) | method_id


_MAKERS: Final[dict[int, Callable[..., Method]]] = {
    _make_number(method.class_id, method.method_id): method for method in METHODS
}
_LAYOUTS: Final[dict[int, tuple[int, ...]]] = {
    _make_number(method.class_id, method.method_id): method.layout for method in METHODS
}
_NAMES: Final[dict[int, str]] = {
    _make_number(method.class_id, method.method_id): _make_name(method) for method in METHODS
}

_SIZES: Final[dict[int, int]] = {OCTET: 1, SHORT: 2, LONG: 4, DELIVERY_TAG: 8}
_RESERVED: Final[dict[int, bytes]] = {
    RESERVED_SHORT: b"\x00\x00",
    RESERVED_SHORT_STRING: b"\x00",
    RESERVED_LONG_STRING: b"\x00\x00\x00\x00",
}
_BITS_IN_A_BYTE: Final[i64] = 8


def find_method_name(class_id: int, method_id: int) -> str | None:
    """As the specification writes it: queue.declare-ok."""
    return _NAMES.get(_make_number(class_id, method_id))


def name_of_method(method: Method) -> str:
    return _NAMES[_make_number(method.class_id, method.method_id)]


# ------------------------------------------------------------- reading


def decode_method(buffer: bytes, position: i64, end: i64) -> Method:
    """The method in `buffer[position:end]`, the payload of a method frame."""
    if position + 4 > end:
        raise Violation(FRAME_ERROR, "a method frame is too short to say which method it is")
    class_id: i64 = i64(read_i16_be(buffer, position)) & 0xFFFF
    method_id: i64 = i64(read_i16_be(buffer, position + 2)) & 0xFFFF
    at: i64 = position + 4
    if class_id == BASIC:
        found = _find_frequent(buffer, method_id, at, end)
        if found is not None:
            return found
    number = _make_number(int(class_id), int(method_id))
    layout = _LAYOUTS.get(number)
    if layout is None:
        text = f"there is no method {int(method_id)} of class {int(class_id)}"
        raise Violation(NOT_IMPLEMENTED, text, int(class_id), int(method_id))
    try:
        values = _decode_fields(buffer, at, end, layout)
    except Violation as violation:
        violation.class_id = int(class_id)
        violation.method_id = int(method_id)
        raise
    return _MAKERS[number](*values)


def _find_frequent(buffer: bytes, method_id: i64, at: i64, end: i64) -> Method | None:
    if method_id == BasicAck.method_id:
        if end - at == 9:
            tag: i64 = read_i64_be(buffer, at)
            if tag >= 0:
                return BasicAck(int(tag), buffer[at + 8] & 1 != 0)
    elif method_id == BasicPublish.method_id:
        return _find_publish(buffer, at, end)
    elif method_id == BasicDeliver.method_id:
        return _find_deliver(buffer, at, end)
    return None


def _find_publish(buffer: bytes, at: i64, end: i64) -> Method | None:
    if at + 5 > end:
        return None
    key_at: i64 = at + 3 + i64(buffer[at + 2])
    if key_at >= end:
        return None
    bits_at: i64 = key_at + 1 + i64(buffer[key_at])
    if bits_at + 1 != end:
        return None
    exchange = buffer[at + 3 : key_at]
    key = buffer[key_at + 1 : bits_at]
    if not exchange.isascii():
        return None
    bits: i64 = buffer[bits_at]
    return BasicPublish(exchange, key, bits & 1 != 0, bits & 2 != 0)


def _find_deliver(buffer: bytes, at: i64, end: i64) -> Method | None:
    tag_at: i64 = at + 1 + i64(buffer[at]) if at < end else end
    exchange_at: i64 = tag_at + 9
    if exchange_at >= end:
        return None
    key_at: i64 = exchange_at + 1 + i64(buffer[exchange_at])
    if key_at >= end or key_at + 1 + i64(buffer[key_at]) != end:
        return None
    consumer_tag = buffer[at + 1 : tag_at]
    exchange = buffer[exchange_at + 1 : key_at]
    key = buffer[key_at + 1 : end]
    tag: i64 = read_i64_be(buffer, tag_at)
    if tag < 0 or not consumer_tag.isascii() or not exchange.isascii():
        return None
    return BasicDeliver(consumer_tag, int(tag), buffer[tag_at + 8] & 1 != 0, exchange, key)


def _decode_fields(buffer: bytes, at: i64, end: i64, layout: tuple[int, ...]) -> list[object]:
    values: list[object] = []
    bits: i64 = 0
    place: i64 = _BITS_IN_A_BYTE  # of the next bit; the byte is used up
    for kind in layout:
        if kind in (BIT, RESERVED_BIT):
            if place == _BITS_IN_A_BYTE:
                _check_left(at, 1, end)
                bits = buffer[at]
                at += 1
                place = 0
            if kind == BIT:
                values.append((bits >> place) & 1 != 0)
            place += 1
            continue
        place = _BITS_IN_A_BYTE
        after: i64 = _after_field(buffer, at, end, kind)
        if kind == SHORT_STRING:
            values.append(_decode_text(buffer[at + 1 : after]))
        elif kind == ROUTING_KEY:
            values.append(buffer[at + 1 : after])
        elif kind == LONG_STRING:
            values.append(buffer[at + 4 : after])
        elif kind == TABLE:
            values.append(decode_table(buffer, at, after)[0])
        elif kind in _SIZES:
            values.append(_decode_number(buffer, at, kind))
        at = after
    if at != end:
        raise Violation(SYNTAX_ERROR, "a method has bytes behind its last argument")
    return values


def _after_field(buffer: bytes, at: i64, end: i64, kind: int) -> i64:
    """The position after a field that is no bit, which lies inside."""
    after: i64
    if kind in (SHORT_STRING, ROUTING_KEY, RESERVED_SHORT_STRING):
        _check_left(at, 1, end)
        after = at + 1 + i64(buffer[at])
    elif kind in (LONG_STRING, RESERVED_LONG_STRING, TABLE):
        _check_left(at, 4, end)
        after = at + 4 + (i64(read_i32_be(buffer, at)) & 0xFFFFFFFF)
    elif kind == RESERVED_SHORT:
        after = at + 2
    else:
        after = at + _SIZES[kind]
    _check_left(after, 0, end)
    return after


def _check_left(at: i64, size: i64, end: i64) -> None:
    if at + size > end:
        raise Violation(SYNTAX_ERROR, "a method ends inside an argument")


def _decode_text(text: bytes) -> bytes:
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            raise Violation(SYNTAX_ERROR, "a short string is not UTF-8") from None
    return text


def _decode_number(buffer: bytes, at: i64, kind: int) -> int:
    if kind == OCTET:
        return buffer[at]
    if kind == SHORT:
        return int(i64(read_i16_be(buffer, at)) & 0xFFFF)
    if kind == LONG:
        return int(i64(read_i32_be(buffer, at)) & 0xFFFFFFFF)
    tag: i64 = read_i64_be(buffer, at)
    if tag < 0:  # nobody counts that far: it is a tag that was never given
        raise Violation(PRECONDITION_FAILED, f"unknown delivery tag {int(tag) + (1 << 64)}", is_hard=False)
    return int(tag)


# ------------------------------------------------------------- writing


def encode_method(method: Method) -> bytes:
    """The payload of a method frame: the ids and the arguments."""
    writer = BytesWriter()
    write_i16_be(writer, i16(method.class_id))
    write_i16_be(writer, i16(method.method_id))
    values = method.fields()
    at: i64 = 0
    bits: i64 = 0
    place: i64 = 0
    for kind in method.layout:
        if kind in (BIT, RESERVED_BIT):
            if place == _BITS_IN_A_BYTE:
                writer.append(u8(bits))
                bits = place = 0
            if kind == BIT:
                bit: i64 = 1 if values[at] else 0
                bits |= bit << place
                at += 1
            place += 1
            continue
        if place > 0:
            writer.append(u8(bits))
            bits = place = 0
        reserved = _RESERVED.get(kind)
        if reserved is None:
            _write_field(writer, kind, values[at])
            at += 1
        else:
            writer.write(reserved)
    if place > 0:
        writer.append(u8(bits))
    return writer.getvalue()


def _write_field(writer: BytesWriter, kind: int, value: object) -> None:
    if isinstance(value, bytes):
        size = 4 if kind == LONG_STRING else 1
        writer.write(encode_number(len(value), size))
        writer.write(value)
    elif isinstance(value, int):
        writer.write(encode_number(value, _SIZES[kind]))
    elif isinstance(value, dict):
        writer.write(encode_table(value))
