"""A message, or a run of messages, on its way to very many receivers: in slices, while its publisher is not read.

Invariants
- Every receiver of the route gets it once, and nothing its publisher sends later overtakes it.
- One that was begun is carried out to its end, whatever becomes of the publisher.
- Queues are not among them: they take it or refuse it at once. Nor is exactly once cut: a crash between two slices would let the
  publisher send it again to those who have it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.tasks import Task
from millstream.model.message import Message
from millstream.model.outlet import Outlet, Run
from millstream.routing.router import Route

RECEIVERS_AT_ONCE: Final[i64] = 1000  # of a route; with more of them it goes in slices
RECEIVERS_FEW: Final[i64] = 100  # of a route; up to so many nobody counts what they cost
RECEIVERS_PER_STEP: Final[i64] = 2


def steps_of(route: Route) -> i64:
    """What one message to all of them has cost on the spot."""
    count: i64 = len(route.targets)
    return count // RECEIVERS_PER_STEP if count > RECEIVERS_FEW else 0


@final
class FanOut(Task):
    def __init__(
        self, route: Route, message: Message | None, run: Run | None, publisher: Outlet | None
    ) -> None:
        self._route = route
        self._message = message
        self._run = run
        self._publisher = publisher
        self._at: i64 = 0

    def run(self, steps: i64) -> i64:
        targets = self._route.targets
        first: i64 = self._at
        end: i64 = min(len(targets), first + max(1, steps) * RECEIVERS_PER_STEP)
        while self._at < end:
            target = targets[self._at]
            self._at += 1
            outlet = target.outlet
            if outlet.is_storing():
                continue
            if target.has_no_local and outlet is self._publisher:
                own = target.for_own
                if own is None:
                    continue
                target = own
            if self._message is not None:
                outlet.deliver(self._message, target)
            elif self._run is not None:
                outlet.deliver_run(self._run, target)
        if self._at < len(targets):
            return steps
        return min(steps - 1, (end - first) // RECEIVERS_PER_STEP)

    def on_task_failed(self, error: Exception) -> None:
        raise error
