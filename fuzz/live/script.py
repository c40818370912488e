"""What one connection does: what it sends, in which pieces, and how it ends. Mutations of conversations.

A conversation is a list of packets. It is changed as a list (packets dropped, doubled, swapped, replaced, spliced) and
as bytes (bits flipped, cut short, lengths and numbers changed). The same chance gives the same script.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

SIZE_MAX = 8192  # of all that one connection sends
PIECES_MAX = 3
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


class Ending(IntEnum):
    """What happens when everything is sent."""

    WAIT = 0  # until the broker closes, or for a while
    CLOSE = 1  # at once
    HALF_CLOSE = 2  # no more comes; the broker may still answer
    RESET = 3  # at once, without an end
    WAIT_RESET = 4  # after a while, without an end


ENDINGS = (*(Ending.WAIT,) * 9, Ending.CLOSE, Ending.HALF_CLOSE, Ending.RESET, *(Ending.WAIT_RESET,) * 3)


class Script(NamedTuple):
    listener: str
    pieces: list[bytes]
    ending: Ending
    is_inside_tls: bool = False  # the pieces go through a finished TLS handshake


MakePacket = Callable[[random.Random], bytes]


def make_script(
    chance: random.Random,
    listener: str,
    opening: list[bytes],
    packets: list[bytes],
    another: MakePacket,
    *,
    is_inside_tls: bool = False,
) -> Script:
    """`opening` is what must be right for the rest to be read; it is changed in one script of ten only."""
    kind = chance.random()
    if kind < 0.35:
        data = b"".join((*opening, *packets))  # as it is: strange values in an unlikely order are enough
    else:
        packets = change_order(chance, packets, another)
        if kind < 0.9:
            data = b"".join(opening) + change_bytes(chance, packets)
        else:
            data = change_bytes(chance, [*opening, *packets])
    return Script(listener, cut(chance, data[:SIZE_MAX]), chance.choice(ENDINGS), is_inside_tls)


def change_order(chance: random.Random, packets: list[bytes], another: MakePacket) -> list[bytes]:
    changed = list(packets)
    for _ in range(chance.randrange(3)):
        if not changed:
            break
        at = chance.randrange(len(changed))
        action = chance.randrange(5)
        if action == 0:
            del changed[at]
        elif action == 1:
            changed.insert(at, changed[at])
        elif action == 2:
            other = chance.randrange(len(changed))
            changed[at], changed[other] = changed[other], changed[at]
        elif action == 3:
            changed[at] = another(chance)
        else:
            one, other_packet = changed[at], another(chance)
            changed[at] = (
                one[: chance.randrange(len(one) + 1)]
                + other_packet[chance.randrange(len(other_packet) + 1) :]
            )
    return changed


def change_bytes(chance: random.Random, packets: list[bytes]) -> bytes:
    """One or two packets are changed, the others are as they were."""
    changed = list(packets)
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        if changed:
            at = chance.randrange(len(changed))
            changed[at] = change_packet(chance, changed[at])
    data = b"".join(changed)
    if chance.random() < 0.1:
        data = data[: chance.randrange(len(data) + 1)]
    return data


def change_packet(chance: random.Random, packet: bytes) -> bytes:
    data = bytearray(packet)
    for _ in range(chance.choice((1, 1, 2, 4))):
        place = chance.randrange(len(data) + 1)
        action = chance.randrange(8)
        if action <= 1 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif action == 2 and place < len(data):
            data[place] = chance.choice(EDGES)
        elif action == 3:
            data[place:place] = chance.randbytes(chance.randrange(1, 4))
        elif action == 4:
            del data[place : place + chance.randrange(1, 5)]
        elif action == 5:
            width = chance.choice((1, 2, 4))
            data[place : place + width] = (chance.choice(NUMBERS) & ((1 << (8 * width)) - 1)).to_bytes(
                width, "big"
            )
        elif action == 6 and len(data) > 1:
            data[1] = (data[1] + chance.choice((-2, -1, 1, 2, 100))) & 0xFF  # where MQTT has its length
        elif action == 7 and len(data) > 6:
            data[6] = (data[6] + chance.choice((-2, -1, 1, 2, 100))) & 0xFF  # where AMQP has its length
    return bytes(data)


def cut(chance: random.Random, data: bytes) -> list[bytes]:
    """Into pieces that are sent one after the other."""
    if len(data) < 2 or chance.random() < 0.6:
        return [data]
    places = sorted(chance.randrange(1, len(data)) for _ in range(chance.randrange(1, PIECES_MAX)))
    return [
        data[first:last]
        for first, last in zip([0, *places], [*places, len(data)], strict=True)
        if last > first
    ]
