"""Bytes to packets, for both directions and all versions.

Invariants
- Only `buffer[body:end]` is read, and every bound is checked before it is used; bytes left over are malformed.
- Whatever is wrong raises Violation and nothing else.
- Work is linear in the size of the packet.

Left to the machine: which side may send what and when, legal client ids, wildcards in topics and filters.
"""

from __future__ import annotations

from typing import Final

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.decode_connect import decode_connack, decode_connect
from millstream.protocols.mqtt.wire.packets import (
    Auth,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.primitives import (
    decode_byte,
    decode_string,
    decode_two_bytes,
)
from millstream.protocols.mqtt.wire.properties import Properties, decode_properties
from millstream.protocols.mqtt.wire.reason_codes import (
    ALLOWED_REASONS,
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    SUBACK_FAILURE,
)
from millstream.protocols.mqtt.wire.violation import Violation

FILTERS_MAX: Final = 1000  # per packet, unless the caller names another bound

_FLAGGED: Final = (1 << kinds.PUBREL) | (1 << kinds.SUBSCRIBE) | (1 << kinds.UNSUBSCRIBE)


def decode_frame(buffer: bytes, position: int, version: int, size_max: int) -> tuple[Packet | None, int]:
    """The packet at `position` and the position after it; None and `position` while it is incomplete.

    A frame larger than `size_max` is refused as soon as its header is there.
    """
    available = len(buffer)
    at = position + 1
    length = 0
    shift = 0
    while True:
        if at >= available:
            return None, position
        byte = buffer[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0 and version >= 5:  # [MQTT-1.5.5-1]; 3.1.1 lets senders pad
                raise Violation(MALFORMED_PACKET, "the remaining length is longer than its value needs")
            break
        shift += 7
        if shift > 21:
            raise Violation(MALFORMED_PACKET, "the remaining length has more than four bytes")
    end = at + length
    if end - position > size_max:
        raise Violation(
            PACKET_TOO_LARGE, f"a packet of {end - position} bytes is over the limit of {size_max}"
        )
    if end > available:
        return None, position
    return decode_packet(buffer, buffer[position], at, end, version), end


def find_frame_size(buffer: bytes, position: int) -> int:
    """The size of the frame at `position` in bytes, 0 while its header is not whole (or is not valid)."""
    length = 0
    shift = 0
    at = position + 1
    while at < len(buffer) and shift <= 21:
        byte = buffer[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + length - position
        shift += 7
    return 0


def decode_packet(
    buffer: bytes, first_byte: int, body: int, end: int, version: int, filters_max: int = FILTERS_MAX
) -> Packet:
    """The packet whose body is `buffer[body:end]`.

    Version 0 means that CONNECT has not come yet: nothing else may come then, and CONNECT at no other time.
    """
    kind = first_byte >> 4
    if (version == 0) != (kind == kinds.CONNECT):  # [MQTT-3.1.0-1, MQTT-3.1.0-2]
        raise Violation(PROTOCOL_ERROR, "CONNECT must come first and only once")
    if kind == kinds.PUBLISH:
        return decode_publish(buffer, first_byte, body, end, version)
    check_flags(first_byte, version)
    if kinds.PUBACK <= kind <= kinds.PUBCOMP:
        return decode_answer(buffer, kind, body, end, version)
    if kind == kinds.SUBSCRIBE:
        return decode_subscribe(buffer, body, end, version, filters_max)
    if kind == kinds.SUBACK:
        return decode_suback(buffer, body, end, version, filters_max)
    if kind == kinds.UNSUBSCRIBE:
        return decode_unsubscribe(buffer, body, end, version, filters_max)
    if kind == kinds.UNSUBACK:
        return decode_unsuback(buffer, body, end, version, filters_max)
    if kind == kinds.CONNECT:
        return decode_connect(buffer, body, end)
    if kind == kinds.CONNACK:
        return decode_connack(buffer, body, end, version)
    if kind == kinds.DISCONNECT:
        return decode_disconnect(buffer, body, end, version)
    if kind == kinds.AUTH and version >= 5:
        return decode_auth(buffer, body, end)
    if kind == kinds.PINGREQ:
        _check_end(body, end)
        return PingReq()
    if kind == kinds.PINGRESP:
        _check_end(body, end)
        return PingResp()
    raise Violation(MALFORMED_PACKET, f"packet type {kind} is reserved")


def check_flags(first_byte: int, version: int) -> None:
    """The low four bits of every packet but PUBLISH are fixed [MQTT-2.1.3-1]."""
    wanted = 0x02 if (_FLAGGED >> (first_byte >> 4)) & 1 else 0x00
    flags = first_byte & 0x0F
    if version == 3 and wanted:
        flags &= 0x07  # MQTT 3.1 marks resent packets of these kinds as duplicates
    if flags != wanted:
        raise Violation(MALFORMED_PACKET, "reserved flags in the fixed header are not as they must be")


def decode_publish(buffer: bytes, first_byte: int, body: int, end: int, version: int) -> Publish:
    qos = (first_byte >> 1) & 0x03
    dup = first_byte & 0x08 != 0
    if qos == 3:
        raise Violation(MALFORMED_PACKET, "QoS 3 does not exist")  # [MQTT-3.3.1-4]
    if dup and qos == 0 and version != 3:
        raise Violation(MALFORMED_PACKET, "a QoS 0 PUBLISH cannot be a duplicate")  # [MQTT-3.3.1-2]
    topic, position = decode_string(buffer, body, end)
    packet_id = 0
    if qos > 0:
        packet_id, position = _decode_packet_id(buffer, position, end)
    properties: Properties | None = None
    if version >= 5:
        properties, position = decode_properties(buffer, position, end, kinds.PUBLISH)
    if not topic and (properties is None or properties.topic_alias is None):  # [MQTT-4.7.3-1]
        raise Violation(PROTOCOL_ERROR, "a PUBLISH without a topic needs a topic alias")
    return Publish(topic, buffer[position:end], qos, first_byte & 0x01 != 0, dup, packet_id, properties)


def decode_answer(
    buffer: bytes, kind: int, body: int, end: int, version: int
) -> PubAck | PubRec | PubRel | PubComp:
    packet_id, position = _decode_packet_id(buffer, body, end)
    reason = 0
    properties: Properties | None = None
    if version >= 5 and position < end:
        reason, position = _decode_reason(buffer, position, end, kind)
        if position < end:  # a packet of three bytes has no property length
            properties, position = decode_properties(buffer, position, end, kind)
    _check_end(position, end)
    if kind == kinds.PUBACK:
        return PubAck(packet_id, reason, properties)
    if kind == kinds.PUBREC:
        return PubRec(packet_id, reason, properties)
    if kind == kinds.PUBREL:
        return PubRel(packet_id, reason, properties)
    return PubComp(packet_id, reason, properties)


def decode_subscribe(
    buffer: bytes, body: int, end: int, version: int, filters_max: int = FILTERS_MAX
) -> Subscribe:
    packet_id, position = _decode_packet_id(buffer, body, end)
    properties: Properties | None = None
    if version >= 5:
        properties, position = decode_properties(buffer, position, end, kinds.SUBSCRIBE)
    if position >= end:
        raise Violation(PROTOCOL_ERROR, "a SUBSCRIBE must have at least one filter")  # [MQTT-3.8.3-2]
    entries: list[SubscribeEntry] = []
    while position < end:
        _check_count(len(entries), filters_max)
        filter, position = _decode_filter(buffer, position, end)
        options, position = decode_byte(buffer, position, end)
        entries.append(_decode_options(filter, options, version))
    return Subscribe(packet_id, entries, properties)


def _decode_options(filter: bytes, options: int, version: int) -> SubscribeEntry:
    qos = options & 0x03
    if qos == 3:
        raise Violation(PROTOCOL_ERROR, "QoS 3 does not exist")  # [MQTT-3.8.3-4]
    if version < 5:
        if options > 2:  # [MQTT3-3.8.3-4]
            raise Violation(MALFORMED_PACKET, "reserved bits of a requested QoS must be 0")
        return SubscribeEntry(filter, qos)
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise Violation(MALFORMED_PACKET, "reserved bits of the subscription options must be 0")
    retain_handling = options >> 4
    if retain_handling == 3:
        raise Violation(PROTOCOL_ERROR, "retain handling 3 does not exist")
    no_local = options & 0x04 != 0
    if no_local and filter.startswith(b"$share/"):  # [MQTT-3.8.3-4]
        raise Violation(PROTOCOL_ERROR, "a shared subscription cannot be no local")
    return SubscribeEntry(filter, qos, no_local, options & 0x08 != 0, retain_handling)


def decode_suback(buffer: bytes, body: int, end: int, version: int, filters_max: int = FILTERS_MAX) -> SubAck:
    packet_id, position = _decode_packet_id(buffer, body, end)
    properties: Properties | None = None
    if version >= 5:
        properties, position = decode_properties(buffer, position, end, kinds.SUBACK)
    if position >= end:
        raise Violation(PROTOCOL_ERROR, "a SUBACK must have at least one reason")
    reasons: list[int] = []
    while position < end:
        _check_count(len(reasons), filters_max)
        if version >= 5:
            reason, position = _decode_reason(buffer, position, end, kinds.SUBACK)
        else:
            reason, position = decode_byte(buffer, position, end)
            if reason > 2 and reason != SUBACK_FAILURE:  # [MQTT3-3.9.3-2]
                raise Violation(MALFORMED_PACKET, f"0x{reason:02x} is no return code of SUBACK")
        reasons.append(reason)
    return SubAck(packet_id, reasons, properties)


def decode_unsubscribe(
    buffer: bytes, body: int, end: int, version: int, filters_max: int = FILTERS_MAX
) -> Unsubscribe:
    packet_id, position = _decode_packet_id(buffer, body, end)
    properties: Properties | None = None
    if version >= 5:
        properties, position = decode_properties(buffer, position, end, kinds.UNSUBSCRIBE)
    if position >= end:
        raise Violation(PROTOCOL_ERROR, "an UNSUBSCRIBE must have at least one filter")  # [MQTT-3.10.3-2]
    filters: list[bytes] = []
    while position < end:
        _check_count(len(filters), filters_max)
        filter, position = _decode_filter(buffer, position, end)
        filters.append(filter)
    return Unsubscribe(packet_id, filters, properties)


def decode_unsuback(
    buffer: bytes, body: int, end: int, version: int, filters_max: int = FILTERS_MAX
) -> UnsubAck:
    packet_id, position = _decode_packet_id(buffer, body, end)
    reasons: list[int] = []
    if version < 5:
        _check_end(position, end)
        return UnsubAck(packet_id, reasons)
    properties, position = decode_properties(buffer, position, end, kinds.UNSUBACK)
    if position >= end:
        raise Violation(PROTOCOL_ERROR, "an UNSUBACK must have at least one reason")
    while position < end:
        _check_count(len(reasons), filters_max)
        reason, position = _decode_reason(buffer, position, end, kinds.UNSUBACK)
        reasons.append(reason)
    return UnsubAck(packet_id, reasons, properties)


def decode_disconnect(buffer: bytes, body: int, end: int, version: int) -> Disconnect:
    reason = 0
    properties: Properties | None = None
    position = body
    if version >= 5 and position < end:
        reason, position = _decode_reason(buffer, position, end, kinds.DISCONNECT)
        if position < end:
            properties, position = decode_properties(buffer, position, end, kinds.DISCONNECT)
    _check_end(position, end)
    return Disconnect(reason, properties)


def decode_auth(buffer: bytes, body: int, end: int) -> Auth:
    reason = 0
    properties: Properties | None = None
    position = body
    if position < end:
        reason, position = _decode_reason(buffer, position, end, kinds.AUTH)
        if position < end:
            properties, position = decode_properties(buffer, position, end, kinds.AUTH)
    _check_end(position, end)
    return Auth(reason, properties)


def _decode_packet_id(buffer: bytes, position: int, end: int) -> tuple[int, int]:
    packet_id, position = decode_two_bytes(buffer, position, end)
    if packet_id == 0:
        raise Violation(PROTOCOL_ERROR, "a packet identifier must not be 0")  # [MQTT-2.2.1-3]
    return packet_id, position


def _decode_reason(buffer: bytes, position: int, end: int, kind: int) -> tuple[int, int]:
    reason, position = decode_byte(buffer, position, end)
    if reason not in ALLOWED_REASONS[kind]:
        raise Violation(PROTOCOL_ERROR, f"0x{reason:02x} is no reason code of {kinds.KIND_NAMES[kind]}")
    return reason, position


def _decode_filter(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    filter, position = decode_string(buffer, position, end)
    if not filter:  # [MQTT-4.7.3-1]
        raise Violation(MALFORMED_PACKET, "a topic filter must have at least one character")
    return filter, position


def _check_count(count: int, filters_max: int) -> None:
    if count >= filters_max:
        limit = f"session.max_filters_per_subscribe = {filters_max}"
        raise Violation(QUOTA_EXCEEDED, f"limit of filters in one packet reached ({limit})")


def _check_end(position: int, end: int) -> None:
    if position != end:
        raise Violation(MALFORMED_PACKET, "the packet has bytes after its last field")
