"""When freed memory is handed back to the system though nobody is short of it: after a flood, not during one.

The allocator keeps what was freed, because the next read needs it again. What a flood has left behind is not needed again.
Handing it back takes some milliseconds, and whatever is used again must be mapped again: so it is done when little comes
in, seldom when it brings little, and more seldom when it takes long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from millstream.model.message import NANOSECONDS

GROWN_BYTES: Final = 32 << 20  # above the least there was: worth a look
ENOUGH_BYTES: Final = 8 << 20  # freed: worth another one soon
CALM_BYTES_PER_S: Final = 4 << 20  # of input and output
WAIT_NS: Final = 5 * NANOSECONDS
WAIT_MAX_NS: Final = 600 * NANOSECONDS
BUSY_WAIT_NS: Final = 30 * NANOSECONDS  # then it is done though it is not calm
LONG_NS: Final = 20_000_000


class FreedMemory:
    def __init__(
        self,
        give_back: Callable[[], object],
        read_resident: Callable[[], int],
        read_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._give_back = give_back
        self._read_resident = read_resident
        self._read_ns = read_ns
        self._least = 0  # resident, at any time
        self._after = 0  # resident, when it was given back last
        self._wait_ns = WAIT_NS
        self._due_ns = 0
        self._looked_ns = 0
        self._work_bytes = 0

    def on_tick(self, now_ns: int, work_bytes: int) -> None:
        """`work_bytes`: what has come in and gone out since the start."""
        elapsed = now_ns - self._looked_ns
        if elapsed < NANOSECONDS:
            return
        is_calm = (work_bytes - self._work_bytes) * NANOSECONDS < CALM_BYTES_PER_S * elapsed
        is_first = self._looked_ns == 0
        self._looked_ns, self._work_bytes = now_ns, work_bytes
        resident = self._read_resident()
        self._least = resident if is_first else min(self._least, resident)
        if is_first or resident < self._least + GROWN_BYTES:
            self._due_ns = now_ns + self._wait_ns
            return
        if self._after and resident >= self._after + GROWN_BYTES and self._wait_ns < WAIT_MAX_NS:
            self._after = 0  # it has grown again: another flood
            self._wait_ns = WAIT_NS
            self._due_ns = min(self._due_ns, now_ns + WAIT_NS)
        if now_ns >= self._due_ns and (is_calm or now_ns >= self._due_ns + BUSY_WAIT_NS):
            self._hand_over(now_ns, resident)

    def _hand_over(self, now_ns: int, before: int) -> None:
        began_ns = self._read_ns()
        self._give_back()
        took_ns = self._read_ns() - began_ns
        self._after = self._read_resident()
        if took_ns >= LONG_NS:
            self._wait_ns = WAIT_MAX_NS
        elif before - self._after >= ENOUGH_BYTES:
            self._wait_ns = WAIT_NS
        else:
            self._wait_ns = min(2 * self._wait_ns, WAIT_MAX_NS)
        self._least = min(self._least, self._after)
        self._due_ns = now_ns + self._wait_ns
