"""The MQTT codec on packets and bytes nobody thought of."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectors.mqtt_packets import VECTORS
from vectors.mqtt_vector import Vector

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
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
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
    Will,
)
from millstream.protocols.mqtt.wire.properties import (
    ALLOWED_IN,
    PROPERTY_NAMES,
    Properties,
    decode_properties,
    encode_properties,
)
from millstream.protocols.mqtt.wire.publish_scan import PublishScan
from millstream.protocols.mqtt.wire.reason_codes import ALLOWED_REASONS
from millstream.protocols.mqtt.wire.violation import Violation

SIZE_MAX = 1 << 20

names = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
texts = names.map(str.encode)
topics = names.filter(bool).map(str.encode)
plain_topics = topics.filter(lambda topic: b"+" not in topic and b"#" not in topic)
binaries = st.binary(max_size=12)
flags = st.integers(0, 1)
shorts = st.integers(0, 65535)
packet_ids = st.integers(1, 65535)
longs = st.integers(0, 0xFFFFFFFF)
qualities = st.integers(0, 2)
versions = st.sampled_from([3, 4, 5])

PROPERTY_VALUES: dict[int, st.SearchStrategy[object]] = {
    0x01: flags,
    0x02: longs,
    0x03: texts,
    0x08: plain_topics,
    0x09: binaries,
    0x0B: st.lists(st.integers(1, 268435455), min_size=1, max_size=3),
    0x11: longs,
    0x12: texts,
    0x13: shorts,
    0x15: texts,
    0x16: binaries,
    0x17: flags,
    0x18: longs,
    0x19: flags,
    0x1A: texts,
    0x1C: texts,
    0x1F: texts,
    0x21: packet_ids,
    0x22: shorts,
    0x23: packet_ids,
    0x24: flags,
    0x25: flags,
    0x26: st.lists(st.tuples(texts, texts), min_size=1, max_size=4),
    0x27: st.integers(1, 0xFFFFFFFF),
    0x28: flags,
    0x29: flags,
    0x2A: flags,
}


@st.composite
def property_sets(draw: st.DrawFn, kind: int) -> Properties | None:
    """None, or what a packet of this kind may carry."""
    properties = Properties()
    for identifier, allowed in ALLOWED_IN.items():
        if allowed >> kind & 1 and draw(st.booleans()):
            value = draw(PROPERTY_VALUES[identifier])
            if identifier == 0x0B and kind == kinds.SUBSCRIBE:
                assert isinstance(value, list)
                value = value[:1]
            setattr(properties, PROPERTY_NAMES[identifier], value)
    if properties.authentication_data is not None and properties.authentication_method is None:
        properties.authentication_method = b"method"
    return properties if properties.present() else None


def for_version(version: int, kind: int) -> st.SearchStrategy[Properties | None]:
    return property_sets(kind) if version == 5 else st.none()


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    will = None
    if draw(st.booleans()):
        properties = draw(for_version(version, kinds.WILL))
        will = Will(draw(topics), draw(binaries), draw(qualities), draw(st.booleans()), properties)
    username = draw(st.none() | names)
    password = draw(st.none() | binaries)
    if version < 5 and username is None:
        password = None
    return Connect(
        version,
        draw(names),
        draw(st.booleans()),
        draw(shorts),
        username,
        password,
        will,
        draw(for_version(version, kinds.CONNECT)),
    )


@st.composite
def connacks(draw: st.DrawFn, version: int) -> ConnAck:
    codes = sorted(ALLOWED_REASONS[kinds.CONNACK]) if version == 5 else range(6)
    reason = draw(st.sampled_from(codes))
    present = reason == 0 and version > 3 and draw(st.booleans())
    return ConnAck(present, reason, draw(for_version(version, kinds.CONNACK)))


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Publish:
    qos = draw(qualities)
    return Publish(
        draw(topics),
        draw(binaries),
        qos,
        draw(st.booleans()),
        qos > 0 and draw(st.booleans()),
        draw(packet_ids) if qos else 0,
        draw(for_version(version, kinds.PUBLISH)),
    )


@st.composite
def answers(draw: st.DrawFn, version: int) -> Packet:
    kind = draw(st.sampled_from([kinds.PUBACK, kinds.PUBREC, kinds.PUBREL, kinds.PUBCOMP]))
    make = {4: PubAck, 5: PubRec, 6: PubRel, 7: PubComp}[kind]
    reason = draw(st.sampled_from(sorted(ALLOWED_REASONS[kind]))) if version == 5 else 0
    return make(draw(packet_ids), reason, draw(for_version(version, kind)))


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    entries = []
    for filter in draw(st.lists(topics, min_size=1, max_size=4)):
        entry = SubscribeEntry(filter, draw(qualities))
        if version == 5:
            entry.no_local = not filter.startswith(b"$share/") and draw(st.booleans())
            entry.retain_as_published = draw(st.booleans())
            entry.retain_handling = draw(qualities)
        entries.append(entry)
    return Subscribe(draw(packet_ids), entries, draw(for_version(version, kinds.SUBSCRIBE)))


@st.composite
def rest(draw: st.DrawFn, version: int) -> Packet:
    kind = draw(st.sampled_from([9, 10, 11, 12, 13, 14, 15] if version == 5 else [9, 10, 11, 12, 13, 14]))
    properties = draw(for_version(version, kind)) if kind not in (12, 13) else None
    codes = st.sampled_from(sorted(ALLOWED_REASONS.get(kind, {0})))
    if kind == kinds.SUBACK:
        codes = codes if version == 5 else st.sampled_from([0, 1, 2, 0x80])
        return SubAck(draw(packet_ids), draw(st.lists(codes, min_size=1, max_size=4)), properties)
    if kind == kinds.UNSUBSCRIBE:
        return Unsubscribe(draw(packet_ids), draw(st.lists(topics, min_size=1, max_size=4)), properties)
    if kind == kinds.UNSUBACK:
        reasons = draw(st.lists(codes, min_size=1, max_size=4)) if version == 5 else []
        return UnsubAck(draw(packet_ids), reasons, properties)
    if kind == kinds.PINGREQ:
        return PingReq()
    if kind == kinds.PINGRESP:
        return PingResp()
    reason = draw(codes) if version == 5 else 0
    return Disconnect(reason, properties) if kind == kinds.DISCONNECT else Auth(reason, properties)


def packets_of(version: int) -> st.SearchStrategy[tuple[int, Packet]]:
    kinds_of_packets = st.one_of(
        connects(version),
        connacks(version),
        publishes(version),
        answers(version),
        subscribes(version),
        rest(version),
    )
    return kinds_of_packets.map(lambda packet: (0 if isinstance(packet, Connect) else version, packet))


packets = versions.flatmap(packets_of)
seeds = st.sampled_from(VECTORS)


def judge(data: bytes, version: int) -> Packet | None:
    """What the decoder makes of `data`; anything but a Violation is a failure of the test."""
    try:
        packet, position = decode_frame(data, 0, version, SIZE_MAX)
    except Violation as violation:
        assert 0x80 <= violation.reason <= 0xA2
        return None
    assert position <= len(data)
    assert (packet is None) == (position == 0)
    return packet


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(packets)
def test_a_packet_survives_the_wire(case: tuple[int, Packet]) -> None:
    version, packet = case
    data = encode_packet(packet, version)
    assert decode_frame(data, 0, version, SIZE_MAX) == (packet, len(data))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(packets, st.data())
def test_a_packet_that_is_cut_waits_and_a_body_that_is_cut_is_refused_or_shorter(
    case: tuple[int, Packet], data: st.DataObject
) -> None:
    version, packet = case
    whole = encode_packet(packet, version)
    assert decode_frame(whole[: data.draw(st.integers(0, len(whole) - 1))], 0, version, SIZE_MAX) == (None, 0)
    start = 2 if whole[1] < 128 else 3
    body = whole[start:][: data.draw(st.integers(0, 100))]
    judge(whole[:1] + bytes([len(body)]) + body, version)


@settings(max_examples=300)
@given(seeds, st.data())
def test_a_packet_with_changed_bytes_gives_a_packet_or_a_violation(
    vector: Vector, data: st.DataObject
) -> None:
    whole = bytearray(vector.data)
    for _ in range(data.draw(st.integers(1, 4))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    judge(bytes(whole), data.draw(st.sampled_from([0, 3, 4, 5])))


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from([0, 3, 4, 5]))
def test_any_bytes_give_a_packet_or_a_violation(data: bytes, version: int) -> None:
    judge(data, version)
    if data:
        judge(data[:1] + bytes([min(len(data) - 1, 127)]) + data[1:128], version)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_the_scan_of_any_bytes_agrees_with_the_decoder(body: bytes) -> None:
    data = bytes([len(body)]) + body
    scan = PublishScan()
    scanned = decoded = 0
    properties = None
    try:
        properties, _ = decode_properties(data, 0, len(data), kinds.PUBLISH)
    except Violation as violation:
        decoded = violation.reason
    try:
        scan.scan(data, 0, len(data))
    except Violation as violation:
        scanned = violation.reason
    if properties is not None and properties.subscription_identifiers:
        assert scanned == 0x82
    elif b"\x0b" not in body:
        assert scanned == decoded


@settings(max_examples=200)
@given(property_sets(kinds.PUBLISH))
def test_the_scan_finds_what_the_decoder_finds(properties: Properties | None) -> None:
    if properties is not None:
        properties.subscription_identifiers = []
    data = b"abc" + encode_properties(properties) + b"payload"
    scan = PublishScan()
    scan.scan(data, 3, len(data))
    wanted = properties or Properties()
    expiry_s, alias = wanted.message_expiry_interval, wanted.topic_alias
    assert scan.position == len(data) - 7
    assert scan.expiry_s == (-1 if expiry_s is None else expiry_s)
    assert scan.topic_alias == (alias or 0)
    if expiry_s is not None:
        assert data[scan.expiry_at - 1] == 0x02
        assert int.from_bytes(data[scan.expiry_at : scan.expiry_at + 4], "big") == expiry_s
    if alias is not None:
        assert data[scan.alias_at - 1] == 0x23
        assert int.from_bytes(data[scan.alias_at : scan.alias_at + 2], "big") == alias
    others = [name for name, _ in wanted.present() if name not in ("message_expiry_interval", "topic_alias")]
    assert scan.has_other == bool(others)
