"""One flush per loop iteration: after all reads that were ready, everything gathered is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millstream.model.outbox import OutboxPool, Wakeup
from millstream.runtime.loop_clock import LoopClock


class LoopWakeup(Wakeup):
    """`after` runs behind each flush and says whether there is more to do in the next iteration.

    It also ends the iteration for the loop's clock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop  # None: the one that runs when it is first asked
        self._is_requested = False
        self._flush: Callable[[], None] | None = None
        self._after: Callable[[], bool] | None = None
        self.clock = LoopClock(self)

    def start(self, pool: OutboxPool, after: Callable[[], bool]) -> None:
        self._flush = pool.flush
        self._after = after

    def request(self) -> None:
        if not self._is_requested:
            self._is_requested = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_requested = False
        if self._flush is not None and self._after is not None:
            self._flush()
            if self._after():
                self.request()
        self.clock.forget()
