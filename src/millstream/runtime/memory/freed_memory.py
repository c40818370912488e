"""When freed memory is handed back to the system though nobody is short of it: after a flood, not during one.

The allocator keeps what was freed, because the next read needs it again. What a flood has left behind is not needed again.
Handing it back takes some milliseconds, and whatever is used again must be mapped again: so it is done when little comes
in and all that was removed is freed, seldom when it brings little, and more seldom when it takes long.

Python's own allocator gives back arenas of a mebibyte in which nothing is left: one object that waits for the garbage
collector keeps a whole one. So garbage is collected first, and in a turn of its own: neither is done in slices.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from millstream.model.message import NANOSECONDS

GROWN_BYTES: Final = 32 << 20  # above the least there was: worth a look
ENOUGH_BYTES: Final = 8 << 20  # freed: worth another one soon
CALM_BYTES_PER_S: Final = 4 << 20  # of input and output
WAIT_NS: Final = 5 * NANOSECONDS
WAIT_MAX_NS: Final = 600 * NANOSECONDS
BUSY_WAIT_NS: Final = 30 * NANOSECONDS  # then it is done though it is not calm
REST_FACTOR: Final = 500  # times what it took, until it is done again


class Heap(ABC):
    """The memory of this process, as far as it can be asked and told."""

    @abstractmethod
    def resident_bytes(self) -> int: ...

    @abstractmethod
    def is_settled(self) -> bool:
        """False: more of what was removed is freed with every turn of the loop."""

    @abstractmethod
    def collect(self) -> None:
        """Free what only refers to itself."""

    @abstractmethod
    def give_back(self) -> None:
        """Hand all free pages back to the system."""


class FreedMemory:
    def __init__(self, heap: Heap, read_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._heap = heap
        self._read_ns = read_ns
        self._least = 0  # resident, at any time
        self._most = 0  # resident, since it was given back last
        self._after = 0  # resident, when it was given back last
        self._before = 0  # resident, when garbage was collected
        self._is_collected = False  # and now it is to be given back
        self._wait_ns = WAIT_NS
        self._due_ns = 0
        self._rest_until_ns = 0
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
        resident = self._heap.resident_bytes()
        self._least = resident if is_first else min(self._least, resident)
        if self._is_collected:
            self._give_back(now_ns)
        elif is_first or resident < self._least + GROWN_BYTES:
            self._due_ns = now_ns + self._wait_ns
        else:
            is_settled = self._heap.is_settled()
            self._find_change(now_ns, resident, is_settled)
            due_ns = max(self._due_ns, self._rest_until_ns)
            if now_ns >= due_ns and ((is_calm and is_settled) or now_ns >= due_ns + BUSY_WAIT_NS):
                self._collect(now_ns, resident)

    def _find_change(self, now_ns: int, resident: int, is_settled: bool) -> None:
        """Another flood, or the end of one: it does not wait for the turn that the last look has set."""
        self._most = max(self._most, resident)
        has_grown = self._after > 0 and resident >= self._after + GROWN_BYTES
        has_shrunk = self._after > 0 and resident + ENOUGH_BYTES <= self._most
        if has_grown or has_shrunk or not is_settled:
            self._after = 0
            self._most = resident
            self._wait_ns = WAIT_NS
            self._due_ns = min(self._due_ns, now_ns + WAIT_NS)

    def _collect(self, now_ns: int, resident: int) -> None:
        self._before = resident
        self._is_collected = True
        self._rest(now_ns, self._heap.collect)

    def _give_back(self, now_ns: int) -> None:
        self._is_collected = False
        self._rest(now_ns, self._heap.give_back)
        self._after = self._most = self._heap.resident_bytes()
        is_worth_it = self._before - self._after >= ENOUGH_BYTES
        self._wait_ns = WAIT_NS if is_worth_it else min(2 * self._wait_ns, WAIT_MAX_NS)
        self._least = min(self._least, self._after)
        self._due_ns = now_ns + self._wait_ns

    def _rest(self, now_ns: int, work: Callable[[], None]) -> None:
        """Do it, and not again for a time that what it took is a small part of."""
        began_ns = self._read_ns()
        work()
        rest_ns = min(REST_FACTOR * (self._read_ns() - began_ns), WAIT_MAX_NS)
        self._rest_until_ns = max(self._rest_until_ns, now_ns + rest_ns)
