"""What a fuzz target is.

`run` takes bytes and gives what it made of them; a Violation is the only exception it may let out, and its time is
what counts. `check` then looks for what must hold for any input (what was read can be written and read again), so
that a fuzzer finds wrong answers as well as crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Target(NamedTuple):
    run: Callable[[bytes], object]
    seeds: list[bytes]
    check: Callable[[bytes, object], None] | None = None


def expect(holds: bool, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)
