"""Removes retained messages that have expired, a slice at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.broker.tasks import Task
from millstream.routing.retained import HASH, RetainedCursor

if TYPE_CHECKING:
    from millstream.broker.account import Account


@final
class RetainedSweep(Task):
    def __init__(self, account: Account) -> None:
        self._account = account
        retained = account.retained
        self._cursor = RetainedCursor(retained, HASH, retained.sequence, True)

    def run(self, steps: i64) -> i64:
        cursor = self._cursor
        account = self._account
        before: i64 = cursor.steps
        while cursor.steps - before < steps:
            message = cursor.find_next(steps - (cursor.steps - before))
            if message is None:
                break
            if message.is_expired(account.clock.now_ns):
                cursor.pause()
                account.retained.remove(message.topic)
                account.store.retained_removed(account.name, message.topic)
                cursor.steps += 2
        if cursor.is_done():
            return 0
        cursor.pause()
        return cursor.steps - before

    def on_task_failed(self, error: Exception) -> None:
        raise error
