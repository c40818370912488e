"""A message, or a run of messages, on its way to very many receivers: in slices, while its publisher is not read.

Invariants
- Every receiver of the route and one member of every share group get it once, and nothing its publisher sends later overtakes it.
- One that was begun is carried out to its end, whatever becomes of the publisher.
- Queues are not among them: they take it or refuse it at once. Nor is exactly once cut: a crash between two slices would let the
  publisher send it again to those who have it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.tasks import Task
from millstream.model.message import Message
from millstream.model.outlet import Outlet, Run, Target
from millstream.routing.router import Route

RECEIVERS_AT_ONCE: Final[i64] = 1000  # of a message; with more of them it goes in slices
RECEIVERS_FEW: Final[i64] = 100  # of a route; up to so many nobody counts what they cost
RECEIVERS_PER_STEP: Final[i64] = 2


def receivers_of(route: Route, messages: i64 = 1) -> i64:
    """How many deliveries a message, or a run of so many, causes: a run is one for each target, and a message one for each share
    group."""
    count: i64 = len(route.targets)
    if route.shares is not None:
        count += len(route.shares) * messages
    return count


def steps_of(route: Route) -> i64:
    """What one message to all of them has cost on the spot."""
    count: i64 = receivers_of(route)
    return count // RECEIVERS_PER_STEP if count > RECEIVERS_FEW else 0


def stored_bytes_of(route: Route, message: Message) -> i64:
    """Of payload, in all queues that store a copy of their own: what a message to several of them multiplies."""
    copies: i64 = 0
    for target in route.targets:
        if target.outlet.copies_payload():
            copies += 1
    return copies * len(message.payload)


def stores_too_much(route: Route, message: Message, bytes_max: i64) -> bool:
    """More than one message may. One queue takes whatever the broker takes."""
    targets: i64 = len(route.targets)
    size: i64 = len(message.payload)
    if targets < 2 or targets * size <= bytes_max:
        return False
    stored: i64 = stored_bytes_of(route, message)
    return stored > bytes_max and stored > size


def name_for(route: Route, message: Message) -> Message:
    """As subscribers get it: by the topic that they subscribed to and that they have the right to. Queues keep it by its own."""
    return message.under(route.topic) if route.renames else message


@final
class FanOut(Task):
    def __init__(
        self, route: Route, message: Message | None, run: Run | None, publisher: Outlet | None
    ) -> None:
        self._route = route
        self._message = message
        self._run = run
        self._publisher = publisher
        self._shared: list[Message] = []  # what share groups get, one by one
        if route.shares is not None:
            if message is not None:
                self._shared = [message]
            elif run is not None:
                self._shared = run.messages()
        self._end: i64 = receivers_of(route, len(self._shared))
        self._at: i64 = 0

    def run(self, steps: i64) -> i64:
        first: i64 = self._at
        end: i64 = min(self._end, first + max(1, steps) * RECEIVERS_PER_STEP)
        target_count: i64 = len(self._route.targets)
        while self._at < end:
            at: i64 = self._at
            self._at += 1
            if at < target_count:
                self._deliver(self._route.targets[at])
            else:
                self._deliver_to_share(at - target_count)
        if self._at < self._end:
            return steps
        return min(steps - 1, (end - first) // RECEIVERS_PER_STEP)

    def _deliver(self, target: Target) -> None:
        outlet = target.outlet
        if outlet.is_storing():
            return
        if target.has_no_local and outlet is self._publisher:
            own = target.for_own
            if own is None:
                return
            target = own
        if self._message is not None:
            outlet.deliver(self._message, target)
        elif self._run is not None:
            outlet.deliver_run(self._run, target)

    def _deliver_to_share(self, at: i64) -> None:
        """Every group gets the messages in their order."""
        shares = self._route.shares
        assert shares is not None
        count: i64 = len(shares)
        target = shares[at % count].choose(None)
        if target is not None:
            target.outlet.deliver(self._shared[at // count], target)

    def on_task_failed(self, error: Exception) -> None:
        raise error
