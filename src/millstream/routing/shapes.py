"""Shapes of filters: where their wildcards stand. What a topic costs to match depends on how many there are.

Of all filters of one shape at most one matches a given topic, so neither a million filters `device/<id>/#` nor any
others of few shapes make a match slow. Filters of many shapes do: those that have a name or a `+` at each of thirteen levels
are 8,192, and one topic matches all of them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

PLUS: Final = b"+"
HASH: Final = b"#"
WILDCARDS: Final = (PLUS, HASH)
NAME: Final = b"-"
LEVELS_PER_UNIT: Final[i64] = 16


def find_shape(filter: bytes) -> bytes:
    """`a/+/b/#` is `-+-#`."""
    return b"".join([level if level in WILDCARDS else NAME for level in filter.split(b"/")])


def weigh_shape(shape: bytes) -> i64:
    """What it counts: a long one as several."""
    size: i64 = len(shape)
    return 1 + (size - 1) // LEVELS_PER_UNIT


@final
class Shapes:
    """Those of a set of filters with wildcards, and how many have each."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self.weight: i64 = 0

    def has_room_for(self, shape: bytes, weight_max: i64) -> bool:
        return shape in self._counts or self.weight + weigh_shape(shape) <= weight_max

    def add(self, shape: bytes) -> None:
        count = self._counts.get(shape)
        if count is None:
            self.weight += weigh_shape(shape)
            self._counts[shape] = 1
        else:
            self._counts[shape] = count + 1

    def remove(self, shape: bytes) -> None:
        count = self._counts[shape]
        if count > 1:
            self._counts[shape] = count - 1
        else:
            del self._counts[shape]
            self.weight -= weigh_shape(shape)
