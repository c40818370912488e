"""The facts of sessions and retained messages as bodies of log records: one kind each, written and read here alone.

Sessions are named by a number given once. A message is written once, whoever receives it; other facts name it by the
sequence of its record. Times are nanoseconds of the wall clock.
"""

from __future__ import annotations

import struct
from typing import Final, final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64, u8

from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.storage.little_endian import read_u32, read_u64, write_u16, write_u32
from millstream.storage.store import StoredSubscription

SESSION_SAVED: Final = 1
SESSION_REMOVED: Final = 2
SUBSCRIPTION_SAVED: Final = 3
SUBSCRIPTION_REMOVED: Final = 4
MESSAGE: Final = 5
DELIVERY_ADDED: Final = 6
DELIVERY_ADVANCED: Final = 7
DELIVERY_REMOVED: Final = 8
ID_RECEIVED: Final = 9
ID_RELEASED: Final = 10
WILL_SAVED: Final = 11
WILL_REMOVED: Final = 12
RETAINED_SAVED: Final = 13
RETAINED_REMOVED: Final = 14

_U32: Final = struct.Struct("<I")
_NUMBER: Final = struct.Struct("<Q")
_SESSION: Final = struct.Struct("<QIQ")
_SUBSCRIPTION: Final = struct.Struct("<QBBBIBH")
_DELIVERY: Final = struct.Struct("<QQQBBBHH")
_ADVANCE: Final = struct.Struct("<QQBH")
_PAIR: Final = struct.Struct("<QQ")
_ID: Final = struct.Struct("<QH")
_DIGEST: Final = struct.Struct("<I")
_WILL: Final = struct.Struct("<QQIQI")


class FactFault(Exception):
    """A record whose checksum is right but whose body makes no sense: written by another release, or our bug."""


def _pack(*parts: bytes) -> bytes:
    out: list[bytes] = []
    for part in parts:
        out.append(_U32.pack(len(part)))
        out.append(part)
    return b"".join(out)


@final
class Reader:
    """Length-prefixed pieces of a body, one behind the other."""

    def __init__(self, body: bytes, position: int) -> None:
        self._body = body
        self._position = position

    def take(self) -> bytes:
        position = self._position + 4
        if position > len(self._body):
            raise FactFault("the body ends inside a length")
        (size,) = _U32.unpack_from(self._body, position - 4)
        if position + size > len(self._body):
            raise FactFault("a piece is longer than the body")
        self._position = position + size
        return self._body[position : position + size]


# ------------------------------------------------------------------ sessions


@final
class SessionFact:
    def __init__(
        self, session: int, account: str, client_id: str, principal: str, expiry_s: int, expires_wall_ns: int
    ) -> None:
        self.session = session
        self.account = account
        self.client_id = client_id
        self.principal = principal
        self.expiry_s = expiry_s
        self.expires_wall_ns = expires_wall_ns


def encode_session(fact: SessionFact) -> bytes:
    head = _SESSION.pack(fact.session, fact.expiry_s, fact.expires_wall_ns)
    return head + _pack(fact.account.encode(), fact.client_id.encode(), fact.principal.encode())


def decode_session(body: bytes) -> SessionFact:
    session, expiry_s, expires_wall_ns = _SESSION.unpack_from(body)
    reader = Reader(body, _SESSION.size)
    account, client_id, principal = reader.take(), reader.take(), reader.take()
    return SessionFact(
        session, account.decode(), client_id.decode(), principal.decode(), expiry_s, expires_wall_ns
    )


def encode_number(session: int) -> bytes:
    return _NUMBER.pack(session)


def decode_number(body: bytes) -> int:
    number: int = _NUMBER.unpack_from(body)[0]
    return number


def encode_subscription(session: int, subscription: StoredSubscription) -> bytes:
    head = _SUBSCRIPTION.pack(
        session,
        subscription.guarantee,
        subscription.no_local,
        subscription.retain_as_published,
        subscription.identifier,
        subscription.terms,
        len(subscription.group),
    )
    return head + subscription.group + subscription.name


def decode_subscription(body: bytes) -> tuple[int, StoredSubscription]:
    session, guarantee, no_local, as_published, identifier, terms, size = _SUBSCRIPTION.unpack_from(body)
    end = _SUBSCRIPTION.size + size
    group = body[_SUBSCRIPTION.size : end]
    subscription = StoredSubscription(
        body[end:], guarantee, bool(no_local), bool(as_published), identifier, group, terms
    )
    return session, subscription


def encode_named(session: int, name: bytes) -> bytes:
    return _NUMBER.pack(session) + name


def decode_named(body: bytes) -> tuple[int, bytes]:
    return decode_number(body), body[_NUMBER.size :]


# ------------------------------------------------------------------ messages


def encode_message(message: Message, expires_wall_ns: i64) -> bytes:
    out = BytesWriter()
    write_message_start(out, message, expires_wall_ns)
    _write_piece(out, message.payload)
    return out.getvalue()


def write_message_start(out: BytesWriter, message: Message, expires_wall_ns: i64) -> None:
    """All of it but the payload, which follows as a piece."""
    out.append(u8(message.guarantee))
    out.append(u8(1 if message.retain else 0))
    write_i64_le(out, expires_wall_ns)
    _write_piece(out, message.topic)
    _write_piece(out, message.properties)
    _write_piece(out, message.publisher.encode())


def _write_piece(out: BytesWriter, piece: bytes) -> None:
    write_u32(out, len(piece))
    out.write(piece)


def decode_message(body: bytes, expires_ns_of: i64, position: i64 = 0) -> Message:
    """`expires_ns_of` is what to add to a wall time to get a deadline of this run's clock."""
    size: i64 = len(body)
    if position + 14 > size:
        raise FactFault("the body is too short for a message")
    guarantee: i64 = body[position]
    retain: i64 = body[position + 1]
    expires_ns: i64 = read_u64(body, position + 2)
    if expires_ns:
        expires_ns += expires_ns_of
        if expires_ns < 1:
            expires_ns = 1
    topic_at: i64 = position + 14
    properties_at: i64 = _behind(body, topic_at, size) + 4
    publisher_at: i64 = _behind(body, properties_at, size) + 4
    payload_at: i64 = _behind(body, publisher_at, size) + 4
    end: i64 = _behind(body, payload_at, size)
    return Message(
        body[topic_at : properties_at - 4],
        body[payload_at:end],
        guarantee,
        retain != 0,
        body[properties_at : publisher_at - 4],
        expires_ns,
        body[publisher_at : payload_at - 4].decode(),
    )


def _behind(body: bytes, at: i64, size: i64) -> i64:
    """Where the piece ends that begins at `at`, its length before it."""
    if at > size:
        raise FactFault("the body ends inside a length")
    end: i64 = at + read_u32(body, at - 4)
    if end > size:
        raise FactFault("a piece is longer than the body")
    return end


def encode_delivery(session: i64, message: i64, delivery: Delivery) -> bytes:
    out = BytesWriter()
    write_i64_le(out, session)
    write_i64_le(out, delivery.sequence)
    write_i64_le(out, message)
    out.append(u8(delivery.guarantee))
    out.append(u8(1 if delivery.retain else 0))
    out.append(u8(delivery.phase))
    write_u16(out, delivery.packet_id)
    write_u16(out, len(delivery.identifiers))
    for identifier in delivery.identifiers:
        write_u32(out, identifier)
    out.write(delivery.share)
    return out.getvalue()


@final
class DeliveryFact:
    def __init__(self, session: int, message: int, delivery: Delivery) -> None:
        self.session = session
        self.message = message
        self.delivery = delivery


def decode_delivery(body: bytes, placeholder: Message) -> DeliveryFact:
    """The message itself is put in by whoever knows it; until then `placeholder` stands there."""
    session, sequence, message, guarantee, retain, phase, packet_id, count = _DELIVERY.unpack_from(body)
    position = _DELIVERY.size
    identifiers: list[int] = []
    for _ in range(count):
        identifiers.append(_U32.unpack_from(body, position)[0])
        position += 4
    delivery = Delivery(placeholder, guarantee, bool(retain), tuple(identifiers), body[position:])
    delivery.sequence = sequence
    delivery.phase = phase
    delivery.packet_id = packet_id
    return DeliveryFact(session, message, delivery)


def delivery_place(body: bytes) -> tuple[int, int, int]:
    """(session, sequence, message)"""
    if len(body) < _DELIVERY.size:
        raise FactFault("a delivery is too short")
    return int(read_u64(body, 0)), int(read_u64(body, 8)), int(read_u64(body, 16))


def encode_advance(session: i64, delivery: Delivery) -> bytes:
    out = BytesWriter()
    write_i64_le(out, session)
    write_i64_le(out, delivery.sequence)
    out.append(u8(delivery.phase))
    write_u16(out, delivery.packet_id)
    return out.getvalue()


def decode_advance(body: bytes) -> tuple[int, int, int, int]:
    """(session, sequence, phase, packet id)"""
    session, sequence, phase, packet_id = _ADVANCE.unpack_from(body)
    return session, sequence, phase, packet_id


def encode_pair(one: i64, other: i64) -> bytes:
    out = BytesWriter()
    write_i64_le(out, one)
    write_i64_le(out, other)
    return out.getvalue()


def decode_pair(body: bytes) -> tuple[int, int]:
    one, other = _PAIR.unpack_from(body)
    return one, other


def encode_id(session: int, packet_id: int) -> bytes:
    return _ID.pack(session, packet_id)


def decode_id(body: bytes) -> tuple[int, int]:
    session, packet_id = _ID.unpack_from(body)
    return session, packet_id


def with_digest(body: bytes, digest: int) -> bytes:
    """A received id as a checkpoint keeps it: with the digest of its message, which is folded away."""
    return body[: _ID.size] + _DIGEST.pack(digest)


def find_digest(body: bytes) -> int:
    """0: it has none."""
    if len(body) < _ID.size + _DIGEST.size:
        return 0
    digest: int = _DIGEST.unpack_from(body, _ID.size)[0]
    return digest


@final
class WillFact:
    def __init__(self, session: int, message: int, delay_s: int, due_wall_ns: int, lifetime_s: int) -> None:
        self.session = session
        self.message = message
        self.delay_s = delay_s
        self.due_wall_ns = due_wall_ns
        self.lifetime_s = lifetime_s


def encode_will(fact: WillFact) -> bytes:
    return _WILL.pack(fact.session, fact.message, fact.delay_s, fact.due_wall_ns, fact.lifetime_s)


def decode_will(body: bytes) -> WillFact:
    session, message, delay_s, due_wall_ns, lifetime_s = _WILL.unpack_from(body)
    return WillFact(session, message, delay_s, due_wall_ns, lifetime_s)


def encode_retained(account: str, message: int) -> bytes:
    return _NUMBER.pack(message) + account.encode()


def decode_retained(body: bytes) -> tuple[str, int]:
    return body[_NUMBER.size :].decode(), decode_number(body)


def encode_topic(account: str, topic: bytes) -> bytes:
    return _pack(account.encode()) + topic


def decode_topic(body: bytes) -> tuple[str, bytes]:
    reader = Reader(body, 0)
    account = reader.take()
    return account.decode(), body[4 + len(account) :]
