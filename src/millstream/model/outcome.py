"""How a consumer answers a delivery."""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    ACCEPTED = 0  # done: never again
    RELEASED = 1  # not tried: to anybody, at once, not counted
    REJECTED = 2  # cannot be done by anybody: to the dead letters
    MODIFIED = 3  # tried and failed: again after a while, counted
