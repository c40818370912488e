"""Where the memory of the broker is: about how many bytes each kind of thing holds.

A sum of counters that are there anyway, made when somebody asks, in slices. A payload that many receivers share counts once for each
of them, so the kinds may add up to more than the process has; the resident size is what counts against the limit.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.line import Line
from millstream.broker.session import Session
from millstream.broker.tasks import Task
from millstream.model.memory_budget import (
    BINDING_OVERHEAD,
    CONNECTION_OVERHEAD,
    MESSAGE_OVERHEAD,
    NODE_OVERHEAD,
    QUEUE_OVERHEAD,
    RETAINED_OVERHEAD,
    SESSION_OVERHEAD,
    SUBSCRIPTION_OVERHEAD,
)
from millstream.queues.queue import Queue
from millstream.security.quota import SUBSCRIPTIONS

DELIVERY_OVERHEAD: Final[i64] = 160  # a delivery and its places in a session
RECORD_OVERHEAD: Final[i64] = 64  # a record in the tail of a durable queue
ROUTE_OVERHEAD: Final[i64] = 400  # a route in a cache


@final
class MemorySurvey(Task):
    """Sessions and queues may be very many: it is made in slices, of those that were there when it began."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines: list[Line] = []
        self._sessions: list[Session] = []
        self._queues: list[Queue] = []
        self._send_queues: i64 = 0
        self._input: i64 = 0
        self._session_queues: i64 = 0
        self._tails: i64 = 0
        self._transient: i64 = 0
        self._connections: i64 = 0
        self.is_going_on = False

    def begin(self, lines: list[Line]) -> None:
        self._lines = lines
        self._connections = len(lines)
        for account in self._broker.accounts.values():
            self._sessions.extend(account.sessions.values())
            self._queues.extend(account.queues.catalog.queues.values())
        self._send_queues = self._input = self._session_queues = self._tails = self._transient = 0
        self.is_going_on = True
        self._broker.tasks.start(self)

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        while left > 0 and self._lines:
            left -= 1
            line = self._lines.pop()
            self._send_queues += line.unsent_bytes()
            self._input += line.held_bytes()
        while left > 0 and self._sessions:
            left -= 1
            session = self._sessions.pop()
            count: i64 = session.queued_count() + session.window.count
            self._session_queues += session.queued_bytes() + DELIVERY_OVERHEAD * count
        while left > 0 and self._queues:
            left -= 1
            self._count_queue(self._queues.pop())
        if left <= 0:
            return steps
        self.is_going_on = False
        return steps - left

    def _count_queue(self, queue: Queue) -> None:
        if queue.is_durable:
            memtable = queue.memtable
            self._tails += queue.size.memory_bytes() + RECORD_OVERHEAD * (memtable.end - memtable.first)
        else:
            self._transient += transient_bytes(queue)

    def on_task_failed(self, error: Exception) -> None:
        """It is over, so that the next one can begin."""
        self._lines, self._sessions, self._queues = [], [], []
        self.is_going_on = False
        raise error

    def by_kind(self) -> dict[str, int]:
        """What it found, when it is over."""
        caches: i64 = 0
        sessions: i64 = 0
        queues: i64 = 0
        subscriptions: i64 = 0
        bindings: i64 = 0
        for account in self._broker.accounts.values():
            caches += (account.router.cache_weight() + account.exchanges.cache_weight()) * ROUTE_OVERHEAD
            sessions += len(account.sessions)
            queues += len(account.queues.catalog.queues)
            subscriptions += account.quotas.whole.used[SUBSCRIPTIONS]
            bindings += account.exchanges.binding_count()
        return {
            "send_queues": self._send_queues,
            "input": self._input,
            "session_queues": self._session_queues,
            "queue_tails": self._tails,
            "transient_queues": self._transient,
            "retained": retained_bytes(self._broker),
            "wills": int(self._broker.memory.wills),
            "caches": caches,
            "log": self._broker.store.backlog_bytes(),
            "connections": int(self._connections * CONNECTION_OVERHEAD),
            "sessions": int(sessions * SESSION_OVERHEAD),
            "queues": int(queues * QUEUE_OVERHEAD),
            "subscriptions": int(subscriptions * SUBSCRIPTION_OVERHEAD + bindings * BINDING_OVERHEAD),
        }


def transient_bytes(queue: Queue) -> i64:
    return queue.size.bytes + MESSAGE_OVERHEAD * queue.depth()


def retained_bytes(broker: Broker) -> i64:
    size: i64 = 0
    for account in broker.accounts.values():
        retained = account.retained
        leading: i64 = max(0, retained.nodes - retained.count)
        size += retained.size_bytes + retained.count * RETAINED_OVERHEAD + leading * NODE_OVERHEAD
    return size
