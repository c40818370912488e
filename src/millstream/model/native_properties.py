"""Properties that only one protocol understands, carried whole at the head of a message's property block.

The canonical block is MQTT 5's (see `message`). A protocol that knows more than MQTT can say puts what it received in front
of it, as pieces with an identifier MQTT never uses: its own clients get back exactly what was sent, all others
read the canonical part behind. The first byte of what is carried names its form.

    0x7E, length (two bytes, big endian), bytes        as often as the length needs

Invariants
- No client can send it: MQTT's decoder refuses the identifier, so what stands here was made by the broker.
- It stands at the head and nowhere else; what is added to a block goes behind it.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

CARRIED: Final[i64] = 0x7E
PIECE_MAX: Final[i64] = 0xFFFF
SHORT_MAX: Final = 255

# the first byte of what is carried
AMQP_091: Final = 1  # exchange and routing key as short strings, then the property list of basic
AMQP_ADDRESS: Final = 2  # exchange and routing key alone, for what another protocol published


def wrap_carried(carried: bytes) -> bytes:
    size: i64 = len(carried)
    if size <= PIECE_MAX:
        return b"".join([b"\x7e", int(size).to_bytes(2, "big"), carried])
    parts: list[bytes] = []
    at: i64 = 0
    while at < size:
        piece = carried[at : at + PIECE_MAX]
        parts.append(b"\x7e" + len(piece).to_bytes(2, "big"))
        parts.append(piece)
        at += PIECE_MAX
    return b"".join(parts)


def has_carried(block: bytes) -> bool:
    return len(block) != 0 and block[0] == CARRIED


def canonical_part(block: bytes) -> bytes:
    """What every protocol can read: the block without what one of them carries for itself."""
    if not has_carried(block):
        return block
    return block[carried_end(block) :]


def native_part(block: bytes) -> bytes:
    """Empty when nothing is carried."""
    end = carried_end(block)
    if end == 0:
        return b""
    first: i64 = 3 + ((i64(block[1]) << 8) | i64(block[2]))
    if first == end:
        return block[3:end]
    parts: list[bytes] = []
    at: i64 = 0
    while at < end:
        size: i64 = (i64(block[at + 1]) << 8) | i64(block[at + 2])
        parts.append(block[at + 3 : at + 3 + size])
        at += 3 + size
    return b"".join(parts)


def carried_end(block: bytes) -> i64:
    """Where the canonical part begins."""
    at: i64 = 0
    size: i64 = len(block)
    while at < size and block[at] == CARRIED:
        at += 3 + ((i64(block[at + 1]) << 8) | i64(block[at + 2]))
    return at


def encode_native_properties(
    exchange: bytes, routing_key: bytes, properties: bytes, canonical: bytes
) -> bytes:
    """The block of what an AMQP publisher said; neither of the names is longer than a short string."""
    size: i64 = 3 + len(exchange) + len(routing_key) + len(properties)
    if size > PIECE_MAX:
        return wrap_carried(b"\x01" + _address(exchange, routing_key) + properties) + canonical
    writer = BytesWriter()  # the same in one go: this is the path of every publish
    writer.append(u8(CARRIED))
    writer.append(u8(size >> 8))
    writer.append(u8(size & 0xFF))
    writer.append(u8(AMQP_091))
    writer.append(u8(len(exchange)))
    writer.write(exchange)
    writer.append(u8(len(routing_key)))
    writer.write(routing_key)
    writer.write(properties)
    writer.write(canonical)
    return writer.getvalue()


def with_address(block: bytes, exchange: bytes, routing_key: bytes) -> bytes:
    """The block of a message that was published again by the broker: as a dead letter, or moved to another queue."""
    address = _address(exchange, routing_key)
    carried = native_part(block)
    if not carried:
        return wrap_carried(b"\x02" + address) + block
    return wrap_carried(carried[:1] + address + carried[address_end(carried) :]) + canonical_part(block)


def find_address(block: bytes) -> tuple[bytes, bytes] | None:
    """(exchange, routing key) of the last publish; None when AMQP had no part in it."""
    if not has_carried(block):
        return None
    carried = native_part(block)
    size: i64 = carried[1]
    return carried[2 : 2 + size], carried[3 + size : address_end(carried)]


def address_end(carried: bytes) -> i64:
    key_at: i64 = 2 + i64(carried[1])
    return key_at + 1 + i64(carried[key_at])


def _address(exchange: bytes, routing_key: bytes) -> bytes:
    return b"".join([_short(exchange), _short(routing_key)])


def _short(text: bytes) -> bytes:
    """The key of a long topic is cut at a character."""
    if len(text) > SHORT_MAX:
        text = text[:SHORT_MAX].decode(errors="ignore").encode()
    return len(text).to_bytes(1, "big") + text
