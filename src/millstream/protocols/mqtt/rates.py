"""How fast one client may publish and subscribe."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.counters import Counters
from millstream.model.limits import Limits
from millstream.security.quota import Usage
from millstream.security.rate import Bucket


@final
class Rates:
    def __init__(self, limits: Limits, usage: Usage | None = None) -> None:
        self.debt_ns: i64 = 0  # how long it must not be read: it only grows within one read
        self._usage = usage if usage is not None and usage.has_rate() else None  # of all clients of its user
        self.bounds_messages = limits.message_rate > 0 or self._usage is not None
        self._messages: Bucket | None = None
        self._filters: Bucket | None = None
        if limits.message_rate > 0:
            self._messages = Bucket(limits.message_rate, limits.message_burst)
        if limits.subscribe_rate > 0:
            self._filters = Bucket(limits.subscribe_rate, limits.subscribe_burst)

    def charge_messages(self, count: i64, now_ns: i64, counters: Counters) -> None:
        debt_ns = 0 if self._messages is None else self._messages.charge(int(count), int(now_ns))
        if self._usage is not None:
            debt_ns = max(debt_ns, self._usage.charge(int(count), int(now_ns)))
        if debt_ns > 0:
            if self.debt_ns == 0:
                counters.rate_pauses += 1
            self.debt_ns = debt_ns

    def take_filter(self, now_ns: i64) -> bool:
        """Whether one more filter may be subscribed to now."""
        return self._filters is None or self._filters.take(1, int(now_ns))
