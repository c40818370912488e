"""How much a user or an account may have: sessions, connections, queues, subscriptions, stored bytes, publishes per second.

`Quota` is what may be, `Usage` what is. A user's usage is part of its account's: what one of them may not have, nobody gets.
"""

from __future__ import annotations

from typing import Final, final

from millstream.security.rate import Bucket

SESSIONS: Final = 0
CONNECTIONS: Final = 1
QUEUES: Final = 2
SUBSCRIPTIONS: Final = 3
BYTES: Final = 4
KINDS: Final = ("sessions", "connections", "queues", "subscriptions", "bytes")


@final
class Bound:
    """At most `value` of something, 0: any number; `key` is where the configuration says so."""

    def __init__(self, value: int = 0, key: str = "") -> None:
        self.value = value
        self.key = key


NO_BOUND: Final = Bound()


@final
class Quota:
    def __init__(self, bounds: list[Bound] | None = None, rate: float = 0.0, burst: int = 1) -> None:
        self.bounds = bounds or [NO_BOUND for _ in KINDS]  # by kind
        self.rate = rate  # publishes per second; 0: any
        self.burst = burst


@final
class Usage:
    """What one user, or a whole account, has at this moment. Of stored bytes that is what the last look found."""

    def __init__(self, name: str, title: str, quota: Quota, whole: Usage | None) -> None:
        self.name = name
        self.title = title  # as it stands in a sentence
        self.quota = quota
        self.whole = whole  # the account's, of which a user's is a part
        self.used = [0 for _ in KINDS]
        self.is_full = False  # no more bytes: it, or its account, has as many as it may
        self.bucket: Bucket | None = Bucket(quota.rate, quota.burst) if quota.rate > 0 else None

    def add(self, kind: int, change: int) -> None:
        self.used[kind] += change
        whole = self.whole
        if whole is not None:
            whole.used[kind] += change

    def find_reached(self, kind: int, count: int = 1) -> Usage | None:
        """Who of the user and the account cannot have so many more."""
        value = self.quota.bounds[kind].value
        if value and self.used[kind] + count > value:
            return self
        whole = self.whole
        return None if whole is None else whole.find_reached(kind, count)

    def has_rate(self) -> bool:
        whole = self.whole
        return self.bucket is not None or (whole is not None and whole.bucket is not None)

    def charge(self, count: int, now_ns: int) -> int:
        """So much was published: the ns to stop reading until the rates of the user and the account allow for it."""
        debt_ns = 0 if self.bucket is None else self.bucket.charge(count, now_ns)
        whole = self.whole
        if whole is not None and whole.bucket is not None:
            debt_ns = max(debt_ns, whole.bucket.charge(count, now_ns))
        return debt_ns

    def is_idle(self) -> bool:
        """Whether it stands for nothing that is there."""
        return not any(self.used)
