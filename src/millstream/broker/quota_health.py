"""Quotas that are reached, for those who watch the broker: counted, and one condition for each user or account."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.broker.conditions import QUOTA_REACHED
from millstream.broker.health import Health
from millstream.model.counters import Counters
from millstream.security.quota import CONNECTIONS, KINDS, QUEUES, SESSIONS, SUBSCRIPTIONS
from millstream.security.quotas import QuotaObserver


@final
class QuotaHealth(QuotaObserver):
    def __init__(self, health: Health, counters: Counters) -> None:
        self._health = health
        self._counters = counters

    def on_reached(self, kind: int, who: str, text: str, count: i64) -> None:
        counters = self._counters
        if kind == SESSIONS:
            counters.quota_sessions += count
            counters.connections_refused += count
        elif kind == CONNECTIONS:
            counters.quota_connections += count
            counters.connections_refused += count
        elif kind == QUEUES:
            counters.quota_queues += count
        elif kind == SUBSCRIPTIONS:
            counters.quota_subscriptions += count
        else:
            counters.quota_bytes += count
        self._health.report(QUOTA_REACHED, text, count, "", f"{KINDS[kind]} of {who}")
