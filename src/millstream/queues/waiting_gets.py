"""Who has asked a group for one record and waits for it. What was appended before the question counts, safe or not yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.queues.consumers import Consumer

if TYPE_CHECKING:
    from millstream.queues.group import Group


@final
class WaitingGets:
    def __init__(self) -> None:
        self._waiting: deque[tuple[Consumer, int]] = deque()  # who wants one; the end of the queue then

    def add(self, consumer: Consumer, end: i64) -> None:
        """`end`: of the queue as it is now."""
        self._waiting.append((consumer, int(end)))

    def drop(self, consumer: Consumer) -> None:
        if self._waiting:
            self._waiting = deque([entry for entry in self._waiting if entry[0] is not consumer])

    def close(self) -> None:
        """The queue is gone: there is nothing."""
        getters = self._waiting
        self._waiting = deque()
        for getter, _ in getters:
            getter.on_empty()

    def serve(self, group: Group) -> None:
        if not self._waiting:
            return
        queue = group.queue
        asking = self._waiting
        waiting: deque[tuple[Consumer, int]] = deque()
        self._waiting = waiting
        while asking:
            consumer, end = asking.popleft()
            if not consumer.is_present():
                continue
            if not consumer.has_credit():
                waiting.append((consumer, end))
                continue
            pending = group.take_next()
            if pending is not None:
                group.hand_out(pending, consumer)
            elif group.may_have_more() or queue.visible < end:
                waiting.append((consumer, end))  # it is being read, or about to be safe
                waiting.extend(asking)
                return
            else:
                consumer.on_empty()
