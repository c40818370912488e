"""What queues have to do before the loop sleeps again, and what all of them share.

Dispatch happens after the reads of an iteration, so a batch of publishes is handed out as a batch; what groups settled
in order is written once per iteration.

Invariants
- An iteration hands out at most `per_turn` deliveries on the spot (what was answered, what became safe), and as many again
  of queues that wait for their turn; what is left waits for the next iteration.
- Queues take turns: none gets a second slice before every other that waits has had one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.clock import Clock
from millstream.model.holder import Backpressure
from millstream.model.limits import Limits
from millstream.model.outbox import Wakeup
from millstream.queues.memtable import Garbage
from millstream.storage.segments.record_source import RecordSource, RecordWaiter
from millstream.storage.store import Store

if TYPE_CHECKING:
    from millstream.queues.group import Group
    from millstream.queues.queue import Queue


PER_TURN: Final[i64] = 2048  # deliveries, until it is known how long they take
PER_TURN_MIN: Final[i64] = 128
PER_TURN_MAX: Final[i64] = 16_384
TURN_NS: Final[i64] = 5_000_000  # that dispatch may take of an iteration
STEPS_PER_DELIVERY: Final[i64] = 2
LETTER_STEPS: Final[i64] = 1000  # that costly dead letters of one queue take before others have their turn


@final
class NoSegments(RecordSource):
    """Where nothing is ever folded everything is still in memory."""

    def request(self, queue: i64, first: i64, end: i64, waiter: RecordWaiter) -> None:
        waiter.on_records([], end)

    def read(self, queue: i64, first: i64, end: i64, count_max: i64) -> list[bytes]:
        return []

    def find_time(self, queue: i64, wall_ns: i64) -> i64:
        return -1


@final
class Scheduler:
    def __init__(
        self,
        store: Store,
        source: RecordSource,
        clock: Clock,
        wakeup: Wakeup | None,
        pressure: Backpressure | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.store = store
        self.source = source
        self.clock = clock
        self._wakeup = wakeup
        self.pressure = pressure
        limits = limits or Limits()
        self.backlog_max: i64 = (
            limits.queue_backlog_max
        )  # messages a queue may grow by while it is served; 0: no bound
        self.backlog_bytes_max: i64 = limits.queue_backlog_bytes_max
        self._next_number: i64 = 1
        self.per_turn: i64 = PER_TURN
        self.left: i64 = PER_TURN  # deliveries that may still be made now
        self._letter_steps: i64 = 0  # what dead letters have cost so far beside what each of them does
        self.garbage = Garbage()
        self._awake: dict[Queue, None] = {}
        self._line: deque[Queue] = deque()  # the same, in the order of their turns
        self._unsafe: dict[Queue, None] = {}
        self._to_write: dict[Group, None] = {}

    def begin_turn(self) -> None:
        """At a tick, which is a turn of its own."""
        self.left = self.per_turn

    def spend(self, steps: i64) -> None:
        """On a dead letter that was costly to route or went to many: a step is about a microsecond."""
        self.left -= steps // STEPS_PER_DELIVERY
        self._letter_steps += steps

    def letter_mark(self) -> i64:
        """For `is_costly`: where a slice begins."""
        return self._letter_steps

    def is_costly(self, mark: i64) -> bool:
        """Whether dead letters have cost a slice by themselves since then."""
        return self._letter_steps - mark >= LETTER_STEPS

    def take_number(self) -> i64:
        """For a new queue; never given twice."""
        number = self._next_number
        self._next_number += 1
        return number

    def note_number(self, number: i64) -> None:
        if number >= self._next_number:
            self._next_number = number + 1

    def wake(self, queue: Queue) -> None:
        if queue in self._awake:
            return
        if not self._awake:
            self._request()
        self._awake[queue] = None
        self._line.append(queue)

    def wait_durable(self, queue: Queue) -> None:
        self._unsafe[queue] = None

    def is_awake(self, queue: Queue) -> bool:
        """Whether it has something to hand out that waits for its turn."""
        return queue in self._awake

    def write_later(self, group: Group) -> None:
        if not self._to_write:
            self._request()
        self._to_write[group] = None

    def _request(self) -> None:
        if self._wakeup is not None:
            self._wakeup.request()

    def has_settled(self) -> bool:
        """Whether `write_settled` has something to do."""
        return len(self._to_write) > 0

    def write_settled(self) -> None:
        """Before the log hands over its batch."""
        if self._to_write:
            groups = self._to_write
            self._to_write = {}
            queues: dict[Queue, None] = {}
            for group in groups:
                group.queue.write_committed(group)
                queues[group.queue] = None
            for (
                queue
            ) in queues:  # once each: to find what no group needs any more costs a look at all of them
                if not queue.is_removed and not queue.is_stream:
                    queue.let_go()

    def on_durable(self, durable: i64) -> None:
        if not self._unsafe:
            return
        queues = self._unsafe
        self._unsafe = {}
        for queue in queues:
            if not queue.is_removed and queue.on_durable(durable):
                self._unsafe[queue] = None

    def has_work(self) -> bool:
        return len(self._awake) > 0 or self.garbage.count() > 0

    def work_off(self) -> bool:
        """Hand out what became visible; True while there is more."""
        self.left = self.per_turn
        while self._awake and self.left > 0:
            queue = self._line.popleft()
            del self._awake[queue]
            self.left -= 1
            if not queue.is_removed:
                queue.dispatch()
        self.left = self.per_turn
        return self.garbage.free_some() or len(self._awake) > 0

    def adapt(self, took_ns: i64) -> None:
        """How long `work_off` took: when it had all it may have, the next gets more or less, so that it takes its part."""
        per_turn: i64 = self.per_turn * TURN_NS // took_ns if took_ns > 0 else PER_TURN_MAX
        if per_turn > self.per_turn:
            if not self._awake:
                return
            per_turn = min(per_turn, 2 * self.per_turn)
        self.per_turn = max(PER_TURN_MIN, min(PER_TURN_MAX, per_turn))
