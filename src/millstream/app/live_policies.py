"""The policies in force: applied at start to what the store kept, and to what is there when others come.

What is declared after a change has the new ones at once. The rest takes them on some hundred queues in each turn of the
loop, one change after the other, so that each begins with what the one before it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

import structlog

from millstream.broker.account import Account
from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.config.policies import to_policies
from millstream.config.schema import Config
from millstream.protocols.amqp091.policy_change import PolicyChange

STEP: Final = 200  # queues and exchanges looked at in a turn of the loop: some milliseconds


class LivePolicies:
    def __init__(self, config: Config, broker: Broker) -> None:
        self.in_force = to_policies(config)
        self._settings = config.amqp.policies
        self._broker = broker
        self._configured = list(config.queues)
        self._walk: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("millstream")

    def start(self) -> None:
        for account, kept in self._accounts():
            self.in_force.apply_to_all(account, kept)

    def replace(self, config: Config) -> None:
        if config.amqp.policies == self._settings:
            return
        self._settings = config.amqp.policies
        after = to_policies(config)
        before = self.in_force.replace(after)
        change = PolicyChange(self._accounts(), before, after)
        self._walk = asyncio.get_running_loop().create_task(self._apply(change, self._walk))

    async def stop(self) -> None:
        if self._walk is not None:
            self._walk.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._walk

    def _accounts(self) -> list[tuple[Account, list[str]]]:
        return [
            (account, self._configured if account.name == DEFAULT_ACCOUNT else [])
            for account in self._broker.accounts.values()
        ]

    async def _apply(self, change: PolicyChange, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await earlier
        try:
            while True:
                self._broker.clock.now_ns = time.monotonic_ns()
                self._broker.pressure.source = None  # nobody waits for where dead letters go
                if not change.step(STEP):
                    break
                await asyncio.sleep(0)
            self._log.info("policies_applied", queues=change.queues, exchanges=change.exchanges)
        except Exception:  # noqa: BLE001 our bug: the broker goes on, and the next change is tried
            self._log.exception("policies_not_applied", queues=change.queues, exchanges=change.exchanges)
