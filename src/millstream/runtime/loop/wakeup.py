"""One flush per loop iteration: after all reads that were ready, everything gathered is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from millstream.model.outbox import OutboxPool, Wakeup
from millstream.runtime.loop.clock import LoopClock


@final
class LoopWakeup(Wakeup):
    """`after` runs behind each flush and says whether there is more to do in the next iteration.

    It also ends the iteration for the loop's clock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop  # None: the one that runs when it is first asked
        self._is_requested = False
        self._is_running = False
        self._pool: OutboxPool | None = None
        self._after: Callable[[], bool] | None = None
        self._callback: Callable[[], None] = self._run  # bound once, not in every turn
        self.clock = LoopClock(self)

    def start(self, pool: OutboxPool, after: Callable[[], bool]) -> None:
        self._pool = pool
        self._after = after

    def request(self) -> None:
        if not self._is_requested:
            self._is_requested = True
            if not self._is_running:
                self._schedule()

    def _schedule(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._callback)

    def _run(self) -> None:
        """A second round sends what the first brought about (a log without syncs confirms at once) without a turn of
        the loop between them; what that brings about waits for the next turn, so that reads get theirs."""
        pool = self._pool
        if pool is None or self._after is None:
            self._is_requested = False
            self.clock.forget()
            return
        self._is_running = True
        is_more = False
        try:
            for _ in range(2):
                self._is_requested = False
                pool.flush()
                is_more = self._after()
                if is_more or not self._is_requested or pool.is_behind():
                    break
        finally:  # an error is our bug, and must not end all writing
            self._is_running = False
            if is_more or self._is_requested:
                self._is_requested = True
                self._schedule()
            self.clock.forget()
