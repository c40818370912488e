"""What the store kept of accounts that are configured: retained messages, queues, exchanges and bindings."""

from __future__ import annotations

from millstream.broker.account import Account
from millstream.queues.scheduler import Scheduler
from millstream.storage.store import StoredState


def restore_accounts(accounts: dict[str, Account], state: StoredState, scheduler: Scheduler) -> None:
    for name, message in state.retained:
        account = accounts.get(name)
        if account is not None:
            account.retained.store(message)
    scheduler.note_number(state.last_queue)
    for queue in state.queues:
        account = accounts.get(queue.account)
        if account is not None:
            account.queues.catalog.restore(queue)
    for exchange in state.exchanges:
        account = accounts.get(exchange.account)
        if account is not None:
            account.exchanges.restore_exchange(exchange)
    for binding in state.bindings:
        account = accounts.get(binding.account)
        if account is not None:
            account.exchanges.restore_binding(binding)
