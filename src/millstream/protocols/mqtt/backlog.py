"""What one connection has sent and the broker has not yet acted on: it takes more than a slice of a turn.

Invariants
- Events are acted on in the order they came; while some wait, the connection is not read and nothing it sent is parsed.
- Every slice acts on one thing at least.
- A connection that was lost meanwhile ends behind what it had sent, not before; one that we failed ends at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.broker.tasks import STEP_NS, STEPS_PER_SLICE, Task, TaskQueue
from millstream.protocols.mqtt.machine.events import DisconnectReceived, Event

if TYPE_CHECKING:
    from millstream.protocols.mqtt.endpoint import MqttEndpoint

SLICES_TOLD: Final[i64] = 20  # that one read took; then the operator is told


@mypyc_attr(allow_interpreted_subclasses=True)
class Job(ABC):
    """One packet that is carried out in slices."""

    @abstractmethod
    def run(self) -> bool:
        """Go on until the share is spent; False when it is over."""

    def on_dropped(self) -> None:  # noqa: B027 most leave nothing behind
        """The connection has ended before it was over."""


@final
class Backlog(Task):
    def __init__(self, endpoint: MqttEndpoint, tasks: TaskQueue) -> None:
        self._endpoint = endpoint
        self._tasks = tasks
        self._events: list[Event] = []
        self._job: Job | None = None
        self._spent: i64 = 0
        self._left: i64 = 0  # of the turn when this slice began; 0 outside of one
        self._slices: i64 = 0  # since it was read last
        self._share: i64 = STEPS_PER_SLICE

    # ------------------------------------------------------------- in a read

    def begin(self) -> None:
        left = self._tasks.left
        self._left = left
        self._share = left if left < STEPS_PER_SLICE else STEPS_PER_SLICE

    def end(self) -> None:
        if self._spent:
            self._tasks.spend(self._spent)
            self._spent = 0
        self._left = 0

    def spend(self, steps: i64) -> None:
        self._spent += steps

    def is_spent(self) -> bool:
        spent: i64 = self._spent + self._spent_below()
        return spent > 0 and spent >= self._share

    def _spent_below(self) -> i64:
        """On what this slice has brought about deeper down, as on dead letters that are costly."""
        spent: i64 = self._left - self._tasks.left
        return spent if spent > 0 else 0

    def is_due(self) -> bool:
        """Whether what follows must wait: the share is spent, or something goes on that it comes behind."""
        return self._job is not None or self.is_spent()

    def has_time(self) -> bool:
        """Whether this turn has some left for what cannot be cut."""
        return self._share > 0

    def start(self, job: Job) -> None:
        """Carry it out, now as far as the share goes."""
        if job.run():
            self._job = job
            self._stall()

    def put(self, events: list[Event]) -> None:
        """They wait for the next slice."""
        if events:
            self._events.extend(events)
            self._stall()

    def is_waiting(self) -> bool:
        return self._job is not None or len(self._events) > 0

    def act_on_disconnect(self) -> None:
        """Where the client had ended the connection by itself, that was on its own terms, whatever it ends by now."""
        for event in self._events[-2:]:  # nothing but the end comes behind it
            if isinstance(event, DisconnectReceived):
                self._endpoint.on_disconnect(event.packet)

    def clear(self) -> None:
        """The connection has ended."""
        self._tasks.drop(self)
        self._events = []
        job = self._job
        self._job = None
        if job is not None:
            job.on_dropped()

    def _stall(self) -> None:
        endpoint = self._endpoint
        if not endpoint.machine.is_stalled:
            endpoint.machine.is_stalled = True
            endpoint.link.wait_for_turn(True)
            self._slices = 0
        self._slices += 1
        if endpoint.session is not None:
            endpoint.session.account.counters.turns_waited += 1
        if self._slices == SLICES_TOLD:
            endpoint.tell_limited("what it sends takes more than its share of the broker's time")
        self._tasks.add(self)

    # --------------------------------------------------------------- as a task

    def run(self, steps: i64) -> i64:
        self._share = steps
        self._left = self._tasks.left
        endpoint = self._endpoint
        endpoint.begin_slice()
        if self._job is not None and not self._job.run():
            self._job = None
        if self._job is None and self._events:
            events = self._events
            self._events = []
            endpoint.handle(events)
        if not self.is_waiting():
            endpoint.machine.is_stalled = False
            endpoint.link.wait_for_turn(False)
            endpoint.handle_kept()
        endpoint.end_slice()
        used = self._spent
        self._spent = 0
        endpoint.link.charge((used + self._spent_below()) * STEP_NS)
        self._left = 0
        if self.is_waiting():
            return used if used > steps else steps
        return used if used < steps else steps - 1

    def on_task_failed(self, error: Exception) -> None:
        """Nothing waits any more: the connection ends at once when it is lost."""
        self.clear()
        self._spent = 0
        self._endpoint.on_flush_failed(error)
