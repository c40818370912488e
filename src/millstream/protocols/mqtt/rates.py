"""How fast one client may publish and subscribe."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.counters import Counters
from millstream.model.limits import Limits
from millstream.security.rate import Bucket


@final
class Rates:
    def __init__(self, limits: Limits) -> None:
        self.debt_ns: i64 = 0  # how long it must not be read: it only grows within one read
        self.bounds_messages = limits.message_rate > 0
        self._messages: Bucket | None = None
        self._filters: Bucket | None = None
        if self.bounds_messages:
            self._messages = Bucket(limits.message_rate, limits.message_burst)
        if limits.subscribe_rate > 0:
            self._filters = Bucket(limits.subscribe_rate, limits.subscribe_burst)

    def charge_messages(self, count: i64, now_ns: i64, counters: Counters) -> None:
        if self._messages is None:
            return
        debt_ns = self._messages.charge(int(count), int(now_ns))
        if debt_ns > 0:
            if self.debt_ns == 0:
                counters.rate_pauses += 1
            self.debt_ns = debt_ns

    def take_filter(self, now_ns: i64) -> bool:
        """Whether one more filter may be subscribed to now."""
        return self._filters is None or self._filters.take(1, int(now_ns))
