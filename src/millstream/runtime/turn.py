"""The end of a turn of the loop, and what follows when the disk has made progress: on the path of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.runtime.intake import Intake
from millstream.storage.log import Log


@final
class LoopTurn:
    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._log: Log | None = None
        self._intake: Intake | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self, broker: Broker, log: Log | None, intake: Intake) -> None:
        self._broker = broker
        self._log = log
        self._intake = intake

    def listen(self, on_durable: Callable[[], None]) -> None:
        """To be told of progress, after the broker."""
        self._listeners.append(on_durable)

    def end(self) -> bool:
        """After the flush: True while there is more to do in the next turn."""
        broker = self._broker
        intake = self._intake
        assert broker is not None and intake is not None
        has_unread = intake.work_off()
        began_ns: i64 = time.monotonic_ns()
        has_queues = broker.agenda.work_off()
        broker.agenda.adapt(time.monotonic_ns() - began_ns)
        more = broker.work_off_tasks() or has_queues or has_unread
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
