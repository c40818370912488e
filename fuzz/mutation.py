"""Changes a fuzzer makes to an input: bytes changed, put in, taken out and doubled, inputs joined."""

from __future__ import annotations

import random

INPUT_SIZE_MAX = 1024  # larger seeds are tried once and not mutated: they would cost all the speed
CHANGES_MAX = 4
EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def mutate(chance: random.Random, seeds: list[bytes]) -> bytes:
    """One of the seeds with a few changes; the same chance gives the same input."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, CHANGES_MAX)):
        place = chance.randrange(len(data) + 1)
        action = chance.randrange(5)
        if action == 0 and place < len(data):
            data[place] = chance.choice((*EDGES, chance.randrange(256)))
        elif action == 1:
            data.insert(place, chance.randrange(256))
        elif action == 2:
            del data[place : place + chance.randrange(1, 5)]
        elif action == 3:
            data[place:place] = data[place : place + chance.randrange(1, 9)]
        else:
            data[place:] = chance.choice(seeds)
    return bytes(data[:INPUT_SIZE_MAX])
