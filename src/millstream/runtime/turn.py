"""The end of a turn of the loop, and what follows when the disk has made progress: on the path of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.turn_figures import QUEUES, READS, TASKS, WAITING_READS
from millstream.runtime.intake import Intake
from millstream.runtime.loop_clock import LoopClock
from millstream.storage.log import Log


@final
class LoopTurn:
    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._log: Log | None = None
        self._intake: Intake | None = None
        self._clock: LoopClock | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self, broker: Broker, log: Log | None, intake: Intake, clock: LoopClock | None = None) -> None:
        self._broker = broker
        self._log = log
        self._intake = intake
        self._clock = clock

    def listen(self, on_durable: Callable[[], None]) -> None:
        """To be told of progress, after the broker."""
        self._listeners.append(on_durable)

    def end(self) -> bool:
        """After the flush: True while there is more to do in the next turn."""
        broker = self._broker
        intake = self._intake
        assert broker is not None and intake is not None
        began_ns: i64 = time.monotonic_ns()
        served_ns: i64 = began_ns  # the clock is read again only behind a part that had something to do
        had_unread = intake.is_waited_for()
        has_unread = intake.work_off()
        if had_unread:
            served_ns = time.monotonic_ns()
        handed_ns: i64 = served_ns
        had_queues = broker.agenda.has_work()
        has_queues = broker.agenda.work_off()
        if had_queues:
            handed_ns = time.monotonic_ns()
            broker.agenda.adapt(handed_ns - served_ns)
        more = broker.work_off_tasks() or has_queues or has_unread
        broker.write_settled()
        if self._log is not None:
            self._log.flush()
        now_ns: i64 = time.monotonic_ns()
        clock = self._clock
        turn_ns: i64 = 0 if clock is None else clock.began_ns()
        if turn_ns == 0 or turn_ns > began_ns:
            turn_ns = began_ns  # nothing was read in it
        if broker.turns.is_notable(now_ns - turn_ns):
            parts: list[tuple[i64, str]] = [
                (began_ns - turn_ns, READS),
                (served_ns - began_ns, WAITING_READS),
                (handed_ns - served_ns, QUEUES),
                (now_ns - handed_ns, TASKS),
            ]
            broker.turns.note(now_ns - turn_ns, max(parts)[1])
        return more or intake.is_waited_for()  # queues and tasks let connections go on

    def on_durable(self) -> None:
        broker = self._broker
        assert broker is not None
        broker.clock.now_ns = time.monotonic_ns()
        broker.on_durable()
        for listener in self._listeners:
            listener()
