"""Who may begin a TLS handshake: so many at a time, addresses in turn, and nobody who stalls keeps others waiting.

A handshake costs tens of kilobytes and a signature. Until its ClientHello is there, a connection costs neither; with
it, it waits here for one of the places. A place is held until the client has authenticated, or is gone. While the
client's login waits to be checked, its place is free for others: those logins have a bound of their own
(`auth.max_waiting_logins`), and a storm of them must not keep others from their handshakes.

Invariants
- At most `places_max` hold a place, and at most half of them come from one address. Only clients whose logins were
  checked meanwhile may exceed it; nobody else begins until they have authenticated or gone.
- Addresses that wait take turns; of one address the newest goes first, because the oldest are those of a flood.
- While somebody waits, whoever has held a place for `PATIENCE_NS` and lets the broker wait loses it, oldest first.
- Who has left is forgotten at once, and no call looks at all who wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Final

from millstream.security.rate import address_key

PATIENCE_NS: Final = 1_000_000_000


class Candidate(ABC):
    """A connection whose ClientHello has come."""

    def __init__(self, address: str) -> None:
        self.key = address_key(address)
        self.started_ns = 0

    @abstractmethod
    def waits_for_peer(self) -> bool:
        """Whether the next step is the client's, not the broker's."""


class TlsAdmission:
    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._per_address_max = max(1, places_max // 2)
        self._holders: OrderedDict[Candidate, None] = OrderedDict()  # in the order they began
        self._held: dict[str, int] = {}
        # who waits, by address, the newest last: addresses that may have a place, in turn, and those at their bound
        self._waiting: OrderedDict[str, dict[Candidate, None]] = OrderedDict()
        self._barred: dict[str, dict[Candidate, None]] = {}

    @property
    def held(self) -> int:
        return len(self._holders)

    def holders(self) -> list[Candidate]:
        return list(self._holders)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting) or bool(self._barred)

    def put(self, candidate: Candidate) -> None:
        lines = self._barred if self._is_at_bound(candidate.key) else self._waiting
        lines.setdefault(candidate.key, {})[candidate] = None

    def withdraw(self, candidate: Candidate) -> None:
        """It left, or its time was over, before it had a place. May be told of one that does not wait."""
        for lines in (self._waiting, self._barred):
            line = lines.get(candidate.key)
            if line is not None:
                line.pop(candidate, None)
                if not line:
                    del lines[candidate.key]

    def take(self, now_ns: int) -> Candidate | None:
        """The next one to begin; it holds a place from now on. None: nobody waits, or no place is free."""
        if len(self._holders) >= self._places_max or not self._waiting:
            return None
        key, line = self._waiting.popitem(last=False)
        candidate, _ = line.popitem()
        if line:
            self._waiting[key] = line  # behind the other addresses
        self._hold(candidate, now_ns)
        return candidate

    def find_stalled(self, now_ns: int) -> Candidate | None:
        """The holder to give up for somebody who waits, or None while all are making progress."""
        is_full = len(self._holders) >= self._places_max
        if not self.has_waiting or (self._waiting and not is_full):
            return None  # nobody waits, or there is a place for somebody who does
        for holder in self._holders:
            if now_ns - holder.started_ns < PATIENCE_NS:
                return None
            if holder.waits_for_peer() and (is_full or holder.key in self._barred):
                return holder
        return None

    def release(self, candidate: Candidate) -> None:
        """It has authenticated, is gone, or its login waits to be checked. May be told twice."""
        if candidate not in self._holders:
            return
        del self._holders[candidate]
        key = candidate.key
        left = self._held[key] - 1
        if left:
            self._held[key] = left
        else:
            del self._held[key]
        if key in self._barred and not self._is_at_bound(key):
            self._waiting[key] = self._barred.pop(key)

    def restore(self, candidate: Candidate, now_ns: int) -> None:
        """Its login was checked: it counts again, even beyond the bounds, until it has authenticated or is gone."""
        if candidate not in self._holders:
            self._hold(candidate, now_ns)

    def _hold(self, candidate: Candidate, now_ns: int) -> None:
        candidate.started_ns = now_ns
        self._holders[candidate] = None
        key = candidate.key
        self._held[key] = self._held.get(key, 0) + 1
        if self._is_at_bound(key) and key in self._waiting:
            self._barred[key] = self._waiting.pop(key)

    def _is_at_bound(self, key: str) -> bool:
        return self._held.get(key, 0) >= self._per_address_max
