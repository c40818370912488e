"""How fast: token buckets, kept as one integer each.

A bucket remembers the moment at which it will be full again; taking a token moves that moment on. Nothing is
allocated per call and no timer refills anything. A rate of 0 turns a bucket off.
"""

from __future__ import annotations

import ipaddress
from typing import Final, final

_SECOND_NS: Final = 1_000_000_000
_SWEEP_INTERVAL_NS: Final = 10 * _SECOND_NS


def _interval_ns(rate: float) -> int:
    """Nanoseconds one token takes to come back; 0 when the rate is off."""
    return max(1, int(_SECOND_NS / rate)) if rate > 0 else 0


@final
class Bucket:
    __slots__ = ("_capacity_ns", "_full_at_ns", "_interval_ns")

    def __init__(self, rate: float, burst: int) -> None:
        self._interval_ns = _interval_ns(rate)
        self._capacity_ns = self._interval_ns * max(1, burst)
        self._full_at_ns = 0

    def take(self, count: int, now_ns: int) -> bool:
        """Take `count` tokens if they are there, else none. More than the burst are never there."""
        if self._interval_ns == 0:
            return True
        full_at = max(self._full_at_ns, now_ns) + count * self._interval_ns
        if full_at - now_ns > self._capacity_ns:
            return False
        self._full_at_ns = full_at
        return True

    def charge(self, count: int, now_ns: int) -> int:
        """Take `count` tokens even if they are not there; the ns to stop reading until the debt is paid."""
        if self._interval_ns == 0:
            return 0
        full_at = max(self._full_at_ns, now_ns) + count * self._interval_ns
        self._full_at_ns = full_at
        return max(0, full_at - now_ns - self._capacity_ns)


@final
class BucketTable:
    """A bucket per key.

    Full buckets are forgotten, for they equal new ones; beyond `keys_max` the oldest goes.
    """

    __slots__ = ("_capacity_ns", "_full_at_ns", "_interval_ns", "_keys_max", "_sweep_at_ns")

    def __init__(self, rate: float, burst: int, keys_max: int = 100_000) -> None:
        self._interval_ns = _interval_ns(rate)
        self._capacity_ns = self._interval_ns * max(1, burst)
        self._keys_max = max(1, keys_max)
        self._full_at_ns: dict[str, int] = {}
        self._sweep_at_ns = 0

    def __len__(self) -> int:
        return len(self._full_at_ns)

    def take(self, key: str, count: int, now_ns: int) -> bool:
        if self._interval_ns == 0:
            return True
        if now_ns >= self._sweep_at_ns:
            self.sweep(now_ns)
        known_ns = self._full_at_ns.get(key)
        full_at = max(known_ns if known_ns is not None else 0, now_ns) + count * self._interval_ns
        if full_at - now_ns > self._capacity_ns:
            return False
        if known_ns is None and len(self._full_at_ns) >= self._keys_max:
            del self._full_at_ns[next(iter(self._full_at_ns))]
        self._full_at_ns[key] = full_at
        return True

    def sweep(self, now_ns: int) -> int:
        """Forget idle keys; how many. `take` calls it now and then."""
        idle = [key for key, full_at_ns in self._full_at_ns.items() if full_at_ns <= now_ns]
        for key in idle:
            del self._full_at_ns[key]
        self._sweep_at_ns = now_ns + _SWEEP_INTERVAL_NS
        return len(idle)


@final
class FailureTable:
    """Failures per key within a window that opens at the first of them.

    Beyond `keys_max` the oldest key goes.
    """

    __slots__ = ("_failures", "_keys_max", "_limit", "_window_ns")

    def __init__(self, limit: int, window_ns: int, keys_max: int) -> None:
        self._limit = limit
        self._window_ns = window_ns
        self._keys_max = keys_max
        self._failures: dict[tuple[str, str], tuple[int, int]] = {}  # key: window end, failures

    def __len__(self) -> int:
        return len(self._failures)

    def is_blocked(self, key: tuple[str, str], now_ns: int) -> bool:
        return self.count(key, now_ns) >= self._limit

    def count(self, key: tuple[str, str], now_ns: int) -> int:
        """Failures in the window that is open now."""
        entry = self._failures.get(key)
        if entry is None:
            return 0
        window_end_ns, count = entry
        if now_ns >= window_end_ns:
            del self._failures[key]
            return 0
        return count

    def add(self, key: tuple[str, str], now_ns: int) -> None:
        entry = self._failures.get(key)
        if entry is not None and now_ns < entry[0]:
            self._failures[key] = (entry[0], entry[1] + 1)
            return
        self._failures.pop(key, None)  # a new window goes to the end: the first key is always the oldest
        if len(self._failures) >= self._keys_max:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = (now_ns + self._window_ns, 1)


def address_key(address: str) -> str:
    """What stands for one peer: an IPv4 address, or the /64 of an IPv6 one, which is a single customer's."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return parsed.packed[:8].hex()
