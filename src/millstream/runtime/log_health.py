"""Conditions as log lines: one when a condition begins, one when it ends."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from millstream.broker.conditions import DEGRADED, FAILED, SEVERITY_NAMES
from millstream.broker.health import ActiveCondition, HealthObserver
from millstream.model.message import NANOSECONDS


class LogHealth(HealthObserver):
    def __init__(self) -> None:
        self._log = structlog.get_logger("millstream")

    def began(self, active: ActiveCondition) -> None:
        condition = active.condition
        write = self._log.error if condition.severity >= DEGRADED else self._log.warning
        write(
            "condition_began",
            condition=active.name,
            severity=SEVERITY_NAMES[condition.severity],
            cause=active.cause,
            meaning=condition.meaning,
            advice=active.advice,
            since=moment(int(active.since_wall_s)),
        )

    def ended(self, active: ActiveCondition, lasted_ns: int) -> None:
        condition = active.condition
        write = self._log.warning if condition.severity >= FAILED else self._log.info
        counted = f"{int(active.count):,} {condition.counts}" if condition.counts else None
        write(
            "condition_ended",
            condition=active.name,
            cause=active.cause,
            since=moment(int(active.since_wall_s)),
            lasted_s=round(int(lasted_ns) / NANOSECONDS, 1),
            **({} if counted is None else {"counted": counted}),
        )


def moment(wall_s: int) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
