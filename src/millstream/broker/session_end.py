"""The end of a session, or of its connection: what it leaves to others, its consumers, its subscriptions. They may be very many: in
slices.

Invariants
- From the first moment on nobody finds the session, and it takes nothing more.
- What it did not settle of shared subscriptions goes to others before its subscriptions go.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.line import Line
from millstream.broker.session import Session
from millstream.broker.tasks import STEP_NS, Task

STEPS_PER_END: Final[i64] = 4
STEPS_PER_CONSUMER: Final[i64] = 5
LOOKED_PER_STEP: Final[i64] = 10  # deliveries that are looked through


@final
class SessionEnd(Task):
    """The time it takes counts for the client of `line`, which had the session or gave it up."""

    def __init__(self, session: Session, line: Line | None) -> None:
        self._session = session
        self._line = line
        self._deliveries = session.take_shared()
        self._deliveries.reverse()
        consumers = session.consumers
        self._consumers = [] if consumers is None else consumers.take_all()
        self._consumers.reverse()
        self._subscriptions = session.subscriptions.all()
        self._subscriptions.reverse()

    def run(self, steps: i64) -> i64:
        taken = self._run(steps)
        if self._line is not None:
            self._line.charge(taken * STEP_NS)
        return taken

    def _run(self, steps: i64) -> i64:
        left: i64 = steps - STEPS_PER_END
        session = self._session
        account = session.account
        while left > 0 and self._deliveries:
            left -= account.hand_over(session, self._deliveries.pop(), True)
        while left > 0 and self._consumers:
            account.queues.part_with(self._consumers.pop())
            left -= STEPS_PER_CONSUMER
        while left > 0 and self._subscriptions:
            subscription = self._subscriptions.pop()
            account.router.unsubscribe(subscription.filter, subscription.group, session)
            left -= 1
        if self._deliveries or self._consumers or self._subscriptions:
            return steps if left > 0 else steps - left
        session.clear()
        session.subscriptions.clear()  # a route that is stale may hold the session for long
        return steps - left if left > 0 else steps - 1

    def on_task_failed(self, error: Exception) -> None:
        raise error


@final
class HandOver(Task):
    """What the other members of its share groups take over while a session is away. It keeps what is left when it comes back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next: i64 = 0  # all before it were looked at

    def run(self, steps: i64) -> i64:
        session = self._session
        if session.line is not None or session.is_ended:
            return 0
        waiting = session.take_shared()
        left: i64 = steps - len(waiting) // LOOKED_PER_STEP
        for delivery in waiting:
            if left <= 0:
                break
            if delivery.sequence >= self._next:
                self._next = delivery.sequence + 1
                left -= session.account.hand_over(session, delivery, False)
        return steps - left

    def on_task_failed(self, error: Exception) -> None:
        raise error
