"""Letting go of what takes most memory: the offenders are looked for, then shrink, the largest first.

Invariants
- Both happen in slices, however many connections, sessions and queues there are and however much goes.
- One that has nothing to let go of costs next to nothing, and keeps none of those behind it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.broker.conditions import MEMORY_CRITICAL
from millstream.broker.line import Line
from millstream.broker.memory_port import OFFENCE_BYTES, MemoryPort, Offender
from millstream.broker.memory_survey import transient_bytes
from millstream.broker.session import Session
from millstream.broker.tasks import Task
from millstream.queues.limits import cost_of_drop, drop_head
from millstream.queues.queue import Queue

STEPS_PER_OFFENDER: Final[i64] = 50  # it is logged
STEPS_PER_DROP: Final[i64] = 3


@final
class Shedding(Task):
    def __init__(self, broker: Broker, port: MemoryPort, keeps_transient: bool) -> None:
        self._broker = broker
        self._port = port
        self._keeps_transient = keeps_transient
        self._now_ns: i64 = 0
        self._lines: list[Line] = []
        self._sessions: list[Session] = []
        self._queues: list[tuple[Account, Queue]] = []
        self._offenders: list[Offender] = []  # the largest at the end, once all are known
        self._is_searching = False
        self.is_going_on = False
        self.ended_ns: i64 = 0  # the last one
        self.wanted: i64 = 0
        self.freed: i64 = 0

    def begin(self, wanted: i64, now_ns: i64) -> None:
        self.wanted = wanted
        self.freed = 0
        self._now_ns = now_ns
        self._lines = self._port.begin_search()
        for account in self._broker.accounts.values():
            if account.limits.offline_policy == "evict":
                self._sessions.extend(account.sessions.values())
            if not self._keeps_transient:
                queues = account.queues.catalog.queues.values()
                self._queues.extend([(account, queue) for queue in queues if not queue.is_durable])
        self._is_searching = self.is_going_on = True
        self._broker.tasks.start(self)

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        if self._is_searching:
            left = self._search(left)
        while left > 0 and self._offenders and self.freed < self.wanted:
            left -= self._shrink(self._offenders[-1], left)
        if left <= 0:
            return steps
        self._offenders = []
        self.is_going_on = False
        self.ended_ns = self._broker.clock.now_ns
        return steps - left

    def on_task_failed(self, error: Exception) -> None:
        """It is over, so that the next one can begin."""
        self._lines, self._sessions, self._queues, self._offenders = [], [], [], []
        self.is_going_on = False
        self.ended_ns = self._broker.clock.now_ns
        raise error

    def _search(self, steps: i64) -> i64:
        """What is left of the steps."""
        left: i64 = steps
        found = self._offenders
        while left > 0 and self._lines:
            left -= 1
            offender = self._port.find_offender(self._lines.pop(), self._now_ns)
            if offender is not None:
                found.append(offender)
        while left > 0 and self._sessions:
            left -= 1
            session = self._sessions.pop()
            if session.queued_bytes() >= OFFENCE_BYTES:
                found.append(SessionQueue(session))
        while left > 0 and self._queues:
            left -= 1
            account, queue = self._queues.pop()
            if transient_bytes(queue) >= OFFENCE_BYTES:
                found.append(TransientQueue(queue, account))
        if left > 0:
            self._is_searching = False
            self._port.end_search()
            if not self._broker.memory.is_critical:
                found = [offender for offender in found if offender.is_stuck]
            found.sort(key=weight_of)
            self._offenders = found
        return left

    def _shrink(self, offender: Offender, steps: i64) -> i64:
        """How many steps it took."""
        gone: i64 = offender.shrink(self.wanted - self.freed, steps)
        self.freed += gone
        offender.freed += gone
        if not offender.is_done and self.freed < self.wanted:
            return max(1, offender.steps)
        self._offenders.pop()
        if offender.freed == 0:
            return max(1, offender.steps)
        self._broker.health.count(MEMORY_CRITICAL, 1)
        self._port.on_shrunk(offender, offender.freed)
        return offender.steps + STEPS_PER_OFFENDER


@final
class SessionQueue(Offender):
    """Half of what a session has waiting, the oldest first."""

    def __init__(self, session: Session) -> None:
        super().__init__("session", session.key.client_id, session.queued_bytes(), session.line is None)
        self._session = session
        self._left: i64 = (session.queued_count() + 1) // 2

    def shrink(self, wanted: i64, steps: i64) -> i64:
        session = self._session
        bytes_before: i64 = session.queued_bytes()
        before: i64 = session.queued_count()
        count: i64 = min(before, self._left, steps // STEPS_PER_DROP + 1)
        if not session.is_ended:
            session.trim(before - count, bytes_before)
        dropped: i64 = before - session.queued_count()
        self.steps = dropped * STEPS_PER_DROP
        self._left -= count
        self.is_done = self._left <= 0 or dropped == 0
        counters = session.account.counters
        counters.dropped_queue_full -= dropped  # it was not full: there are too many like it
        counters.dropped_memory += dropped
        return bytes_before - session.queued_bytes()


@final
class TransientQueue(Offender):
    """At most half of the bytes of a queue, the oldest first that no consumer has."""

    def __init__(self, queue: Queue, account: Account) -> None:
        name = queue.name if account.name == DEFAULT_ACCOUNT else f"{account.name}: {queue.name}"
        super().__init__("queue", name, transient_bytes(queue), True)
        self._queue = queue
        self._account = account
        self._target: i64 = self.size_bytes - self.size_bytes // 2

    def shrink(self, wanted: i64, steps: i64) -> i64:
        queue = self._queue
        before: i64 = transient_bytes(queue)
        target: i64 = max(self._target, before - wanted)
        dropped: i64 = 0
        steps_per_drop: i64 = STEPS_PER_DROP * cost_of_drop(queue)
        dropped_max: i64 = steps // steps_per_drop + 1
        while dropped < dropped_max and transient_bytes(queue) > target:
            if queue.is_removed or not drop_head(queue, False):
                self.is_done = True
                break
            dropped += 1
        self.steps = dropped * steps_per_drop
        self._account.counters.dropped_memory += dropped
        left: i64 = transient_bytes(queue)
        self.is_done = self.is_done or left <= target
        return before - left


def weight_of(offender: Offender) -> tuple[bool, int]:
    return (offender.is_stuck, int(offender.size_bytes))
