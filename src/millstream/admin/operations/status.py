"""The control operation `broker.status`: what is wrong now, and the few numbers one asks for first."""

from __future__ import annotations

import os

from millstream.admin.context import AdminContext
from millstream.broker.conditions import SEVERITY_NAMES
from millstream.broker.health import ActiveCondition
from millstream.build_kind import build_name
from millstream.model.message import NANOSECONDS
from millstream.runtime.control.server import Conversation, Fields, Operation
from millstream.version import VERSION


class StatusOperations:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        context.begin()
        self._started_ns = int(context.broker.clock.now_ns)

    async def status(self, _fields: Fields, _conversation: Conversation) -> object:
        self._context.begin()
        broker = self._context.broker
        now_ns = int(broker.clock.now_ns)
        store = broker.store
        return {
            "status": broker.health.status(),
            "conditions": [describe(active, now_ns) for active in broker.health.active()],
            "counted": {name: count for name, count in broker.health.totals().items() if count},
            "version": VERSION,
            "build": build_name(),
            "pid": os.getpid(),
            "uptime_s": (now_ns - self._started_ns) // NANOSECONDS,
            "connections": sum(int(account.connected) for account in broker.accounts.values()),
            "sessions": int(broker.session_count),
            "queues": sum(len(account.queues.catalog.queues) for account in broker.accounts.values()),
            "memory": broker.memory.values(),
            "loop": broker.turns.values(),
            "unconfirmed": int(store.position()) - int(store.durable()),
        }


def describe(active: ActiveCondition, now_ns: int) -> dict[str, object]:
    condition = active.condition
    return {
        "condition": active.name,
        "severity": SEVERITY_NAMES[condition.severity],
        "cause": active.cause,
        "meaning": condition.meaning,
        "advice": active.advice,
        "since": int(active.since_wall_s),
        "lasts_s": max(now_ns - int(active.since_ns), 0) // NANOSECONDS,
        "count": int(active.count),
        "counts": condition.counts,
    }


def make_status_operations(context: AdminContext) -> dict[str, Operation]:
    return {"broker.status": StatusOperations(context).status}
