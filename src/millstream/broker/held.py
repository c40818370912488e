"""What may leave only once it is safe: deliveries and releases of sessions that outlive the process.

A receiver must never see what the broker could still forget: after a crash the packet id it answers to would mean
something else, and exactly once would become twice. Everything that was appended to the store for a
packet is durable before the packet goes. Very many may wait for a disk that is slow: what is safe then leaves in slices.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.tasks import Task, TaskQueue
from millstream.model.delivery import Delivery
from millstream.storage.store import Store

if TYPE_CHECKING:
    from millstream.broker.line import Line
    from millstream.broker.session import Session


AT_ONCE: Final[i64] = 16_384  # that leave as soon as they are safe
PER_STEP: Final[i64] = 2


@final
class Held(Task):
    def __init__(self, store: Store, tasks: TaskQueue) -> None:
        self._store = store
        self._tasks = tasks
        self._waiting: deque[tuple[int, Session, Line, Delivery, bool]] = deque()
        self._gone: i64 = 0  # at most so many of them wait for connections that are gone

    def hand_out(self, session: Session, line: Line, delivery: Delivery, is_repeat: bool) -> None:
        """Now if everything appended so far is safe, else as soon as it is; in order either way."""
        position = self._store.position()
        if not self._waiting and self._store.durable() >= position:
            session.transmit(line, delivery, is_repeat)
            return
        self._waiting.append((int(position), session, line, delivery, is_repeat))

    def on_detached(self, count: i64) -> None:
        """A session with so many numbered deliveries has lost its connection. Clients come back again and again while the disk
        takes nothing: what waits for connections that are gone is not kept as long as that."""
        if not self._waiting:
            return
        self._gone += count
        if self._gone >= AT_ONCE and self._gone * 2 >= len(self._waiting):
            self._gone = 0
            self._waiting = deque([item for item in self._waiting if item[1].line is item[2]])

    def on_durable(self) -> None:
        if self._hand_out_some(AT_ONCE) >= AT_ONCE:
            self._tasks.add(self)

    def run(self, steps: i64) -> i64:
        return min(steps, self._hand_out_some(steps * PER_STEP) // PER_STEP)

    def on_task_failed(self, error: Exception) -> None:
        self._tasks.add(self)  # the others are still to go
        raise error

    def _hand_out_some(self, count_max: i64) -> i64:
        """So many at most of what is safe; how many there were."""
        durable = self._store.durable()
        count: i64 = 0
        while count < count_max and self._waiting and self._waiting[0][0] <= durable:
            count += 1
            _, session, line, delivery, is_repeat = self._waiting.popleft()
            if session.line is line:  # another connection has sent it again itself
                open_before = session.window.count
                session.transmit(line, delivery, is_repeat)
                if session.window.count < open_before:  # it can never go: what waits behind it can
                    session.drain()
        if not self._waiting:
            self._gone = 0
        return count

    def count(self) -> int:
        return len(self._waiting)
