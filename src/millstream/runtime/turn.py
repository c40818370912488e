"""The end of a turn of the loop, and what follows when the disk has made progress: on the path of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from millstream.broker.broker import Broker
from millstream.storage.log import Log


@final
class LoopTurn:
    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._log: Log | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self, broker: Broker, log: Log | None) -> None:
        self._broker = broker
        self._log = log

    def listen(self, on_durable: Callable[[], None]) -> None:
        """To be told of progress, after the broker."""
        self._listeners.append(on_durable)

    def end(self) -> bool:
        """After the flush: True while there is more to do in the next turn."""
        broker = self._broker
        assert broker is not None
        more = broker.work_off()
        broker.write_settled()
        if self._log is not None:
            self._log.flush()
        return more

    def on_durable(self) -> None:
        broker = self._broker
        assert broker is not None
        broker.clock.now_ns = time.monotonic_ns()
        broker.on_durable()
        for listener in self._listeners:
            listener()
