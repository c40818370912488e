"""Packets to bytes, for both directions and all versions.

Every function gives a whole frame. A field that cannot be carried (a string over 65,535 bytes, a packet over
256 MiB) raises ValueError: that is the caller's error, not the peer's.
"""

from __future__ import annotations

from typing import Final

from millstream.protocols.mqtt.wire.packets import (
    Answer,
    Auth,
    ConnAck,
    Connect,
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
    UnsubAck,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.primitives import encode_binary, encode_two_bytes, encode_varint
from millstream.protocols.mqtt.wire.properties import Properties, encode_properties

PINGREQ_FRAME: Final = b"\xc0\x00"
PINGRESP_FRAME: Final = b"\xd0\x00"


def encode_frame(first_byte: int, body: bytes) -> bytes:
    return bytes((first_byte,)) + encode_varint(len(body)) + body


def encode_packet(packet: Packet, version: int) -> bytes:
    if isinstance(packet, Publish):
        return encode_publish(packet, version)
    if isinstance(packet, Answer):
        return encode_answer(packet, version)
    if isinstance(packet, Connect):
        return encode_connect(packet)
    if isinstance(packet, ConnAck):
        return encode_connack(packet, version)
    if isinstance(packet, Subscribe):
        return encode_subscribe(packet, version)
    if isinstance(packet, SubAck):
        return encode_suback(packet, version)
    if isinstance(packet, Unsubscribe):
        return encode_unsubscribe(packet, version)
    if isinstance(packet, UnsubAck):
        return encode_unsuback(packet, version)
    if isinstance(packet, PingReq):
        return PINGREQ_FRAME
    if isinstance(packet, PingResp):
        return PINGRESP_FRAME
    if isinstance(packet, Disconnect):
        return encode_disconnect(packet, version)
    if isinstance(packet, Auth):
        return encode_auth(packet)
    raise ValueError("only a control packet has a frame")


def encode_connect(packet: Connect) -> bytes:
    flags = 0x02 if packet.clean_start else 0
    will = packet.will
    if will is not None:
        flags |= 0x04 | (will.qos << 3) | (0x20 if will.retain else 0)
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        flags |= 0x40
    out = [
        b"\x00\x06MQIsdp" if packet.version == 3 else b"\x00\x04MQTT",
        bytes((packet.version, flags)),
        encode_two_bytes(packet.keep_alive_s),
    ]
    if packet.version >= 5:
        out.append(encode_properties(packet.properties))
    out.append(encode_binary(packet.client_id.encode()))
    if will is not None:
        if packet.version >= 5:
            out.append(encode_properties(will.properties))
        out.append(encode_binary(will.topic))
        out.append(encode_binary(will.payload))
    if packet.username is not None:
        out.append(encode_binary(packet.username.encode()))
    if packet.password is not None:
        out.append(encode_binary(packet.password))
    return encode_frame(0x10, b"".join(out))


def encode_connack(packet: ConnAck, version: int) -> bytes:
    # the byte is reserved in MQTT 3.1
    body = bytes((1 if packet.session_present and version > 3 else 0, packet.reason))
    return encode_frame(0x20, body + _properties(packet.properties, version))


def encode_publish(packet: Publish, version: int) -> bytes:
    first_byte = 0x30 | (packet.qos << 1)
    if packet.dup:
        first_byte |= 0x08
    if packet.retain:
        first_byte |= 0x01
    out = [encode_binary(packet.topic)]
    if packet.qos > 0:
        out.append(encode_two_bytes(packet.packet_id))
    out.append(_properties(packet.properties, version))
    out.append(packet.payload)
    return encode_frame(first_byte, b"".join(out))


def encode_answer(packet: Answer, version: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; reason and properties are left out where that means the same."""
    body = encode_two_bytes(packet.packet_id) + _reason_and_properties(
        packet.reason, packet.properties, version
    )
    return encode_frame(_answer_first_byte(packet), body)


def _answer_first_byte(packet: Answer) -> int:
    if isinstance(packet, PubAck):
        return 0x40
    if isinstance(packet, PubRec):
        return 0x50
    if isinstance(packet, PubRel):
        return 0x62
    if isinstance(packet, PubComp):
        return 0x70
    raise ValueError("an answer is one of PUBACK, PUBREC, PUBREL, PUBCOMP")


def encode_subscribe(packet: Subscribe, version: int) -> bytes:
    out = [encode_two_bytes(packet.packet_id), _properties(packet.properties, version)]
    for entry in packet.entries:
        options = entry.qos
        if version >= 5:
            options |= entry.retain_handling << 4
            if entry.no_local:
                options |= 0x04
            if entry.retain_as_published:
                options |= 0x08
        out.append(encode_binary(entry.filter))
        out.append(bytes((options,)))
    return encode_frame(0x82, b"".join(out))


def encode_suback(packet: SubAck, version: int) -> bytes:
    body = encode_two_bytes(packet.packet_id) + _properties(packet.properties, version)
    return encode_frame(0x90, body + bytes(packet.reasons))


def encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    out = [encode_two_bytes(packet.packet_id), _properties(packet.properties, version)]
    for filter in packet.filters:
        out.append(encode_binary(filter))
    return encode_frame(0xA2, b"".join(out))


def encode_unsuback(packet: UnsubAck, version: int) -> bytes:
    body = encode_two_bytes(packet.packet_id)
    if version >= 5:
        body += encode_properties(packet.properties) + bytes(packet.reasons)
    return encode_frame(0xB0, body)


def encode_disconnect(packet: Disconnect, version: int) -> bytes:
    return encode_frame(0xE0, _reason_and_properties(packet.reason, packet.properties, version))


def encode_auth(packet: Auth) -> bytes:
    return encode_frame(0xF0, _reason_and_properties(packet.reason, packet.properties, 5))


def _properties(properties: Properties | None, version: int) -> bytes:
    return encode_properties(properties) if version >= 5 else b""


def _reason_and_properties(reason: int, properties: Properties | None, version: int) -> bytes:
    """The tail that may be missing: nothing for success, the code alone when there are no properties."""
    if version < 5:
        return b""
    block = encode_properties(properties)
    if len(block) > 1:
        return bytes((reason,)) + block
    return b"" if reason == 0 else bytes((reason,))
