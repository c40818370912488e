"""Who may begin a TLS handshake: so many at a time, addresses in turn, and nobody who stalls keeps others waiting.

A handshake costs tens of kilobytes and a signature. Until its ClientHello is there, a connection costs neither; with
it, it waits here for one of the places. A place is held until the client has authenticated, or is gone.

Invariants
- At most `places_max` hold a place, and at most half of them come from one address.
- Addresses that wait take turns; of one address the newest goes first, because the oldest are those of a flood.
- While somebody waits, whoever has held a place for `PATIENCE_NS` and lets the broker wait loses it, oldest first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from millstream.security.rate import address_key

PATIENCE_NS: Final = 1_000_000_000


class Candidate(ABC):
    """A connection whose ClientHello has come."""

    def __init__(self, address: str) -> None:
        self.key = address_key(address)
        self.is_gone = False  # it left, or its time was over, before it had a place
        self.started_ns = 0

    @abstractmethod
    def waits_for_peer(self) -> bool:
        """Whether the next step is the client's, not the broker's."""


class TlsAdmission:
    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._per_address_max = max(1, places_max // 2)
        self._holders: dict[Candidate, None] = {}  # in the order they began
        self._held: dict[str, int] = {}
        self._waiting: dict[str, list[Candidate]] = {}

    @property
    def held(self) -> int:
        return len(self._holders)

    def holders(self) -> list[Candidate]:
        return list(self._holders)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def put(self, candidate: Candidate) -> None:
        self._waiting.setdefault(candidate.key, []).append(candidate)

    def take(self, now_ns: int) -> Candidate | None:
        """The next one to begin; it holds a place from now on. None: nobody waits, or no place is free."""
        if len(self._holders) >= self._places_max:
            return None
        for key in list(self._waiting):
            if self._held.get(key, 0) >= self._per_address_max:
                continue
            candidate = self._pop(key)
            if candidate is not None:
                candidate.started_ns = now_ns
                self._holders[candidate] = None
                self._held[key] = self._held.get(key, 0) + 1
                return candidate
        return None

    def _pop(self, key: str) -> Candidate | None:
        line = self._waiting.pop(key)
        while line:
            candidate = line.pop()
            if not candidate.is_gone:
                if line:
                    self._waiting[key] = line  # behind the other addresses
                return candidate
        return None

    def find_stalled(self, now_ns: int) -> Candidate | None:
        """The holder to give up for somebody who waits, or None while all are making progress."""
        if not self._waiting:
            return None
        full = {key for key in self._waiting if self._held.get(key, 0) >= self._per_address_max}
        if len(self._holders) < self._places_max and len(full) < len(self._waiting):
            return None  # there is a place for somebody who waits
        for holder in self._holders:
            if now_ns - holder.started_ns < PATIENCE_NS:
                return None
            if holder.waits_for_peer() and (len(self._holders) >= self._places_max or holder.key in full):
                return holder
        return None

    def release(self, candidate: Candidate) -> None:
        """It has authenticated, or is gone. May be told twice."""
        if candidate not in self._holders:
            return
        del self._holders[candidate]
        left = self._held[candidate.key] - 1
        if left:
            self._held[candidate.key] = left
        else:
            del self._held[candidate.key]
