"""The queues that belong to one connection and go with it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.model.memory_budget import BINDING_OVERHEAD, QUEUE_OVERHEAD
from millstream.queues.queue import Queue

LOOK_MIN: Final = 16  # queues, before it is looked which of them are gone


@final
class ExclusiveQueues:
    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self._look_at = 0  # so many, then those that went with their last consumer are forgotten

    def __len__(self) -> int:
        return len(self._queues)

    def add(self, queue: Queue) -> None:
        queues = self._queues
        if len(queues) >= self._look_at:
            for old in [other for other in queues.values() if other.is_removed]:
                del queues[old.name]
            self._look_at = 2 * len(queues) + LOOK_MIN
        queues[queue.name] = queue

    def remove(self, name: str) -> None:
        self._queues.pop(name, None)

    def all(self) -> list[Queue]:
        return list(self._queues.values())

    def take_all(self) -> list[Queue]:
        queues = self.all()
        self._queues.clear()
        return queues

    def memory_bytes(self, account: Account | None) -> i64:
        """About, without what is in them; bindings by the average of the account: to count those of each would take long."""
        if account is None:
            return 0
        bindings: i64 = BINDING_OVERHEAD * account.exchanges.binding_count()
        return len(self._queues) * (QUEUE_OVERHEAD + bindings // max(1, len(account.queues.catalog.queues)))
