"""What queues have to do before the loop sleeps again, and what all of them share.

Dispatch happens after the reads of an iteration, so a batch of publishes is handed out as a batch; what groups settled
in order is written once per iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.model.clock import Clock
from millstream.model.outbox import Wakeup
from millstream.storage.record_source import RecordSource, RecordWaiter
from millstream.storage.store import Store

if TYPE_CHECKING:
    from millstream.queues.group import Group
    from millstream.queues.queue import Queue


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
class Agenda:
    def __init__(self, store: Store, source: RecordSource, clock: Clock, wakeup: Wakeup | None) -> None:
        self.store = store
        self.source = source
        self.clock = clock
        self._wakeup = wakeup
        self._next_number: i64 = 1
        self._awake: dict[Queue, None] = {}
        self._unsafe: dict[Queue, None] = {}
        self._to_write: dict[Group, None] = {}

    def take_number(self) -> i64:
        """For a new queue; never given twice."""
        number = self._next_number
        self._next_number += 1
        return number

    def note_number(self, number: i64) -> None:
        if number >= self._next_number:
            self._next_number = number + 1

    def wake(self, queue: Queue) -> None:
        if not self._awake:
            self._request()
        self._awake[queue] = None

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

    def write_settled(self) -> None:
        """Before the log hands over its batch."""
        if self._to_write:
            groups = self._to_write
            self._to_write = {}
            for group in groups:
                group.queue.write_committed(group)

    def on_durable(self, durable: i64) -> None:
        if not self._unsafe:
            return
        queues = self._unsafe
        self._unsafe = {}
        for queue in queues:
            if not queue.is_removed and queue.on_durable(durable):
                self._unsafe[queue] = None

    def work_off(self) -> bool:
        """Hand out what became visible; True while there is more."""
        if self._awake:
            queues = self._awake
            self._awake = {}
            for queue in queues:
                if not queue.is_removed:
                    queue.dispatch()
        return len(self._awake) > 0
