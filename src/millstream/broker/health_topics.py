"""`$SYS/broker/health/…`: the status of the broker and its active conditions, retained, told as soon as they change.

`status` is `ok`, `degraded` or `failed`. Each active condition has a topic of its own, a JSON object; when it ends the
topic is cleared, which subscribers get as an empty message. It needs no disk, so it is told while there is none.
"""

from __future__ import annotations

import json
from typing import Final, final

from mypy_extensions import i64

from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.broker.conditions import SEVERITY_NAMES
from millstream.broker.health import ActiveCondition, Health
from millstream.broker.system_topics import PREFIX
from millstream.model.message import Message

HEALTH_PREFIX: Final = PREFIX + "health/"


@final
class HealthTopics:
    def __init__(self, broker: Broker, health: Health) -> None:
        self._broker = broker
        self._health = health
        self._generation: i64 = -1
        self._told: dict[str, str] = {}  # by the last level of the topic

    def on_tick(self) -> None:
        if self._health.generation == self._generation or self._broker.limits.sys_interval_s == 0:
            return
        self._generation = self._health.generation
        values = {"status": self._health.status()}
        for active in self._health.active():
            values[active.name] = json.dumps(describe(active), ensure_ascii=False)
        for name in list(self._told):
            if name not in values:
                self._tell(name, "")
                del self._told[name]
        for name, value in values.items():
            if self._told.get(name) != value:
                self._tell(name, value)
                self._told[name] = value

    def _tell(self, name: str, value: str) -> None:
        message = Message((HEALTH_PREFIX + name).encode(), value.encode(), 0, True, b"", 0, "")
        self._broker.publish_state(self._broker.accounts[DEFAULT_ACCOUNT], message)


def describe(active: ActiveCondition) -> dict[str, object]:
    """For `$SYS`: without what changes all the time."""
    return {
        "condition": active.name,
        "severity": SEVERITY_NAMES[active.condition.severity],
        "since": int(active.since_wall_s),
        "cause": active.cause,
        "meaning": active.condition.meaning,
        "advice": active.advice,
    }
