"""Waiting until what was changed is durable, for work that is done in steps of the event loop.

A change is answered only when the log has it: `wait` leaves a future at the position the log had, and `on_durable`,
called by whoever hears of the log's progress, resolves what has been reached. Nothing polls.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from millstream.broker.broker import Broker
from millstream.model.errors import Reason, Unavailable

DURABLE_S: Final = 30.0
NO_STORAGE: Final = (
    "the disk takes nothing now: it is full, too slow, or has failed; the log of the broker says which"
)


class DurableWait:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._durable = 0  # when it was last looked at by those who wait

    def begin(self) -> None:
        """Before the core is called, and again after every `await`."""
        self.broker.clock.now_ns = time.monotonic_ns()
        self.broker.pressure.source = None  # nobody who publishes here could be made to wait

    def begin_change(self) -> None:
        """The same where something will be written: refused while nothing can be."""
        self.begin()
        if self.broker.store.refusal() is not Reason.SUCCESS:
            raise Unavailable(NO_STORAGE)

    async def wait_durable(self) -> None:
        """Until everything that was changed up to now is as safe as the configuration promises."""
        self.broker.write_settled()
        store = self.broker.store
        position = int(store.position())
        if position <= store.durable():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._durable = int(store.durable())
        self._waiting.append((position, future))
        try:
            async with asyncio.timeout(DURABLE_S):
                await future
        except TimeoutError:
            raise Unavailable(
                f"it is not on disk after {DURABLE_S:.0f} seconds; it may or may not be kept"
            ) from None

    def on_durable(self) -> None:
        """The log has made progress, or said that it cannot."""
        if not self._waiting:
            return
        store = self.broker.store
        durable = int(store.durable())
        has_stopped = durable == self._durable and store.refusal() is not Reason.SUCCESS
        self._durable = durable
        waiting = self._waiting
        self._waiting = []
        for position, future in waiting:
            if future.done():
                continue  # who waited has gone
            if position <= durable:
                future.set_result(None)
            elif has_stopped:
                future.set_exception(Unavailable(f"{NO_STORAGE}; what was asked for may or may not be kept"))
            else:
                self._waiting.append((position, future))
