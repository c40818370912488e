"""Names the addresses that keep the reader busy: very many requests, refusals, or heads that do not end.

Nothing is refused because of it. It is told to the broker, which has the log, the counters and the conditions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

REQUESTS_PER_S: Final = 500  # of one address
REFUSED_PER_S: Final = 20
UNFINISHED: Final = 64  # heads of one address, under way at once
QUIET_S: Final = 60.0  # before an address is told again
ADDRESSES_MAX: Final = 1000

Tell = Callable[[str, str], None]  # an address, and what it does


class Callers:
    def __init__(self, tell: Tell | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._requests: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._looked_s = clock()
        self._told_s: dict[str, float] = {}

    def on_request(self, address: str) -> None:
        with self._lock:
            count(self._requests, address)

    def on_refused(self, address: str) -> None:
        with self._lock:
            count(self._refused, address)

    def look(self, unfinished: dict[str, int]) -> None:
        """Once a second or so. `unfinished`: how many heads of each address are under way."""
        with self._lock:
            requests, self._requests = self._requests, {}
            refused, self._refused = self._refused, {}
        now_s = self._clock()
        elapsed_s, self._looked_s = max(now_s - self._looked_s, 0.001), now_s
        for counts, limit, words in (
            (refused, REFUSED_PER_S * elapsed_s, "is refused {:,.0f} times a second by the reader"),
            (unfinished, UNFINISHED, "has {:,.0f} requests under way at the reader whose heads do not end"),
            (requests, REQUESTS_PER_S * elapsed_s, "sends {:,.0f} requests a second to the reader"),
        ):
            address = max(counts, key=counts.__getitem__, default="")
            if address and counts[address] >= limit:
                number = counts[address] if counts is unfinished else counts[address] / elapsed_s
                self._report(address, words.format(number), now_s)

    def _report(self, address: str, text: str, now_s: float) -> None:
        if self._tell is None or now_s - self._told_s.get(address, -QUIET_S) < QUIET_S:
            return
        if len(self._told_s) >= ADDRESSES_MAX:
            self._told_s.clear()
        self._told_s[address] = now_s
        self._tell(address, text)


def count(counts: dict[str, int], address: str) -> None:
    if address in counts or len(counts) < ADDRESSES_MAX:
        counts[address] = counts.get(address, 0) + 1
