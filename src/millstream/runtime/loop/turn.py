"""The end of a turn of the loop, and what follows when the disk has made progress: on the path of every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.turn_figures import QUEUES, READS, TASKS, WAITING_READS
from millstream.model.outbox import OutboxPool
from millstream.runtime.loop.clock import LoopClock, read_clock_ns
from millstream.runtime.transport.intake import Intake
from millstream.storage.log.write_ahead_log import Log


@final
class LoopTurn:
    def __init__(self) -> None:
        self._broker: Broker | None = None
        self._log: Log | None = None
        self._intake: Intake | None = None
        self._clock: LoopClock | None = None
        self._pool: OutboxPool | None = None
        self._listeners: list[Callable[[], None]] = []

    def start(self, broker: Broker, log: Log | None, intake: Intake, clock: LoopClock | None = None) -> None:
        self._broker = broker
        self._log = log
        self._intake = intake
        self._clock = clock

    def write_to(self, pool: OutboxPool) -> None:
        """What this turn brings about is written by the next flush of it."""
        self._pool = pool

    def listen(self, on_durable: Callable[[], None]) -> None:
        """To be told of progress, after the broker."""
        self._listeners.append(on_durable)

    def end(self) -> bool:
        """After the flush: True while there is more to do in the next turn. The clock is read between two parts of it only
        where both had something to do."""
        broker = self._broker
        intake = self._intake
        assert broker is not None and intake is not None
        scheduler = broker.scheduler
        log = self._log
        turn_ns: i64 = self._turn_ns()
        had_unread = intake.is_waited_for()
        had_queues = scheduler.has_work()
        began_ns: i64 = 0  # 0: there was nothing but reads so far
        if had_unread or had_queues or turn_ns == 0:
            began_ns = read_clock_ns()
        pool = self._pool
        has_unread = intake.work_off(pool is not None and pool.is_behind())
        served_ns: i64 = began_ns
        if had_unread:
            served_ns = read_clock_ns()
        has_queues = scheduler.work_off()
        handed_ns: i64 = served_ns
        if had_queues:
            handed_ns = read_clock_ns()
            scheduler.adapt(handed_ns - served_ns)
        had_more = (
            broker.tasks.count() > 0
            or broker.publishing.has_pending()
            or scheduler.has_settled()
            or (log is not None and log.is_due())
        )
        if had_more and handed_ns == 0:
            began_ns = served_ns = handed_ns = read_clock_ns()
        more = broker.work_off_tasks() or has_queues or has_unread
        broker.write_settled()
        if log is not None:
            log.flush()
        now_ns: i64 = handed_ns
        if had_more or not had_queues:
            now_ns = read_clock_ns()
        if handed_ns == 0:
            began_ns = served_ns = handed_ns = now_ns
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

    def _turn_ns(self) -> i64:
        """When the turn began; 0: nothing was read in it."""
        clock = self._clock
        if clock is None:
            return 0
        return clock.began_ns()

    def on_durable(self) -> None:
        broker = self._broker
        assert broker is not None
        clock = self._clock
        if clock is None:
            broker.clock.now_ns = read_clock_ns()
        else:
            broker.clock.now_ns = clock.read_ns()  # what it brings about is measured from here on
        broker.on_durable()
        for listener in self._listeners:
            listener()
