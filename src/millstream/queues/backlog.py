"""What waits in a queue although its consumers are served: while it grows too fast, those who publish into it wait.

A queue without a consumer, or whose consumers answer nothing, is a store: it may grow as far as its limits, the disk and the memory
of the process let it, and nobody waits for it. What counts is by how much it has grown since its consumers are served: a large
backlog from before holds nobody, as long as it does not get larger.

Invariants
- Nobody waits for a queue that makes no progress, nor for a stream: its readers may be anywhere in it.
- Who waits for consumers that could take more waits until it has shrunk. Who waits for answers of consumers waits for the grace
  time at most, then may bring a part as much again.
- Nobody waits for consumers whose answers come over his own connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.holder import Backpressure, Holder

if TYPE_CHECKING:
    from millstream.queues.queue import Queue

NEVER: Final[i64] = 1 << 62
MOVED_NS: Final[i64] = 100_000_000  # a queue from which nothing went for so long stands still
PARTS: Final[i64] = 5  # publishers go on when one part of what may wait has gone


@final
class Backlog(Holder):
    """`look_at` and `look_bytes`: from this offset, and from this size of the queue on, it may have grown too much."""

    def __init__(self, queue: Queue, pressure: Backpressure | None, count_max: i64, bytes_max: i64) -> None:
        self._queue: Queue | None = queue  # None: it is gone
        self._pressure = pressure
        self._count_max: i64 = count_max
        self._bytes_max: i64 = bytes_max
        self._is_full = False
        self._floor: i64 = 0  # the least that has waited since its consumers are served
        self._floor_bytes: i64 = 0
        self._groups: i64 = 0  # with consumers, when it was last measured
        self._waiting: i64 = 0
        self._waiting_bytes: i64 = 0
        self._seen: i64 = 0  # progress, when it was last looked at
        self._moved_ns: i64 = -MOVED_NS  # when it had changed
        self._asked: object | None = None  # the last source that could be held or not
        self._can_hold = True
        self.look_at: i64 = NEVER
        self.look_bytes: i64 = NEVER
        if pressure is not None and count_max and not queue.is_stream:
            self._plan(queue)

    # ------------------------------------------------------------- the queue

    def look(self) -> None:
        """Something was appended, and it may be too much now."""
        pressure = self._pressure
        queue = self._queue
        if pressure is None or queue is None:
            return
        if self._is_full:
            pressure.hold(self)
            return
        self._measure(queue)
        if not self._has_moved(queue) and not is_behind(queue):
            self._floor = self._waiting
            self._floor_bytes = self._waiting_bytes
        elif self._excess(self._count_max, self._bytes_max):
            self._is_full = True
            pressure.watch(self, queue.clock.now_ns)
            pressure.hold(self)
        self._plan(queue)

    def relax(self) -> None:
        """Something was handed out, or went otherwise."""
        queue = self._queue
        if self.look_at == NEVER or queue is None:
            return
        self._asked = None
        self._measure(queue)
        if self._waiting < self._floor:
            self._floor = self._waiting
        if self._waiting_bytes < self._floor_bytes:
            self._floor_bytes = self._waiting_bytes
        if self._is_full:
            part: i64 = self._count_max // PARTS
            if not self._excess(self._count_max - part, self._bytes_max - self._bytes_max // PARTS):
                self._release()
        elif not self._has_plan(queue):
            self._plan(queue)

    def close(self) -> None:
        """The queue is gone, and nothing keeps it in memory: to find out by itself would take the garbage collector long."""
        if self._is_full:
            self._release()
        self._queue = None
        self._asked = None
        self.look_at = NEVER
        self.look_bytes = NEVER

    def _release(self) -> None:
        self._is_full = False
        if self._queue is not None:
            self._plan(self._queue)
        pressure = self._pressure
        if pressure is not None:
            pressure.unwatch(self)

    def _plan(self, queue: Queue) -> None:
        """When to look again: every publish while it is full, else when it can have become so at the earliest."""
        if self._is_full:
            self.look_at = 0
            return
        part: i64 = max(1, self._count_max // PARTS)
        room: i64 = self._floor + self._count_max - self._waiting
        self.look_at = queue.next + max(part if self._waiting > self._count_max else 1, room)
        bytes_room: i64 = self._floor_bytes + self._bytes_max - self._waiting_bytes
        self.look_bytes = queue.size.bytes + max(self._bytes_max // PARTS, bytes_room)

    def _has_plan(self, queue: Queue) -> bool:
        """Whether what was planned can stay: while nothing waits it would move with every message that goes through, and a
        look that comes a little too soon costs less than that."""
        if self._waiting:
            return False
        room: i64 = self.look_at - queue.next
        bytes_room: i64 = self.look_bytes - queue.size.bytes
        return 2 * room > self._count_max and self._bytes_max < 2 * bytes_room <= 2 * self._bytes_max

    def _excess(self, count_max: i64, bytes_max: i64) -> bool:
        return (
            self._waiting >= self._floor + count_max or self._waiting_bytes >= self._floor_bytes + bytes_max
        )

    def _measure(self, queue: Queue) -> None:
        """What waits for the group that has most of it, of those with consumers."""
        waiting: i64 = 0
        groups: i64 = 0
        for group in queue.groups.values():
            if not group.consumers:
                continue
            groups += 1
            ready: i64 = queue.visible - group.cursor + group.redeliveries.count()
            if ready > waiting:
                waiting = ready
        self._waiting = waiting
        self._waiting_bytes = 0
        if waiting:
            kept: i64 = queue.next - queue.low_mark()
            if kept > 0:
                self._waiting_bytes = queue.size.bytes * waiting // kept
        if groups > self._groups:  # what waited for the new ones before they came is no growth
            self._floor = waiting
            self._floor_bytes = self._waiting_bytes
        self._groups = groups

    def _has_moved(self, queue: Queue) -> bool:
        """Whether something was handed out or settled lately."""
        progress = progress_of(queue)
        now_ns = queue.clock.now_ns
        if progress != self._seen:
            self._seen = progress
            self._moved_ns = now_ns
            return True
        return now_ns - self._moved_ns < MOVED_NS

    # ----------------------------------------------------------------- holder

    def title(self) -> str:
        return "a queue that is gone" if self._queue is None else f"the queue {self._queue.name}"

    def holds(self) -> bool:
        return self._is_full

    def progress_mark(self) -> tuple[int, int]:
        """Of consumers that could take more; for answers nobody waits longer than the grace time, whatever comes."""
        queue = self._queue
        return (int(progress_of(queue)), 1) if queue is not None and is_behind(queue) else (0, 0)

    def can_hold(self, source: object) -> bool:
        if source is not self._asked:
            self._asked = source
            self._can_hold = self._needs_nothing_of(source)
        return self._can_hold

    def _needs_nothing_of(self, source: object) -> bool:
        if self._queue is None:
            return True
        for group in self._queue.groups.values():
            for consumer in group.consumers:
                if not consumer.accepts_at_once and consumer.belongs_to(source):
                    return False
        return True

    def on_stuck(self) -> None:
        """It stands still, or its consumers take their time: it may grow further, by a part when they do answer."""
        queue = self._queue
        if queue is None:
            return
        self._measure(queue)
        if self._has_moved(queue):
            self._floor = max(0, self._waiting - self._count_max + max(1, self._count_max // PARTS))
            self._floor_bytes = max(0, self._waiting_bytes - self._bytes_max + self._bytes_max // PARTS)
        else:
            self._floor = self._waiting
            self._floor_bytes = self._waiting_bytes
        self._release()


def is_behind(queue: Queue) -> bool:
    """Whether some consumer could take more."""
    for group in queue.groups.values():
        for consumer in group.consumers:
            if consumer.could_take_more():
                return True
    return False


def progress_of(queue: Queue) -> i64:
    """A number that grows with everything handed out or settled."""
    progress: i64 = 0
    for group in queue.groups.values():
        if group.consumers:
            progress += group.cursor + group.committed + group.settled.count
    return progress
