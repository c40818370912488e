"""From some policies to others while the broker runs.

Invariants
- Only what another policy holds for is touched, and only what was there when they changed: the rest has them already.
- It goes step by step: very many queues must not cost everybody else their time.
"""

from __future__ import annotations

from typing import final

from millstream.broker.account import Account
from millstream.protocols.amqp091.policies import Policies, is_of_amqp
from millstream.protocols.amqp091.rights import stands_for_subscription
from millstream.queues.queue import Queue
from millstream.routing.exchange import Exchange


@final
class PolicyChange:
    """`accounts` come with the names of queues that are configured one by one: those keep what they have."""

    def __init__(self, accounts: list[tuple[Account, list[str]]], before: Policies, after: Policies) -> None:
        self.queues = 0  # that have another policy now
        self.exchanges = 0
        self._before = before
        self._after = after
        self._to_do: list[tuple[Account, Queue | None, Exchange | None]] = []
        self._at = 0
        for account, kept in accounts:
            for exchange in account.exchanges.all():
                self._to_do.append((account, None, exchange))
            for queue in account.queues.catalog.queues.values():
                is_declared = is_of_amqp(queue) and not stands_for_subscription(queue)
                if is_declared and queue.name not in kept:
                    self._to_do.append((account, queue, None))

    def step(self, count: int) -> bool:
        """Look at so many; True while there are more."""
        end = min(self._at + count, len(self._to_do))
        while self._at < end:
            account, queue, exchange = self._to_do[self._at]
            self._at += 1
            if queue is not None:
                self._look_at_queue(queue)
            elif exchange is not None:
                self._look_at_exchange(account, exchange)
        return self._at < len(self._to_do)

    def _look_at_queue(self, queue: Queue) -> None:
        if not queue.is_removed and not self._after.agrees(self._before, queue.name):
            self._after.apply_to_queue(queue)
            self.queues += 1

    def _look_at_exchange(self, account: Account, exchange: Exchange) -> None:
        if account.exchanges.find(exchange.name) is not exchange:
            return
        alternate = self._after.find_alternate(exchange.name)
        if alternate != self._before.find_alternate(exchange.name):
            account.exchanges.set_alternate(exchange, alternate)
            self.exchanges += 1
