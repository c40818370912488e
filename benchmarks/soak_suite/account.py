"""What one lane sent and got back: numbered messages with the time of their sending, counted and compared.

Invariants
- Numbers are given without gaps; a number counts as sent only when its confirm is there, so every number sent is owed.
"""

from __future__ import annotations

import struct
import threading
import time
from typing import Final

from benchmarks.load.queue_parties import Ledger

HEAD: Final = struct.Struct(">qq")
GHOST: Final = -1  # the number of a message that nobody must ever see
FAULTS_KEPT: Final = 5


def make_payload(number: int, size: int) -> bytes:
    return HEAD.pack(number, time.monotonic_ns()) + b"\x01" * (size - HEAD.size)


class Latencies:
    """A histogram with two significant digits: an hour of samples in a few hundred numbers."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.longest_us = 0

    def add(self, microseconds: int) -> None:
        scale = 10 ** max(0, len(str(max(1, microseconds))) - 2)
        bucket = microseconds // scale * scale
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.longest_us = max(self.longest_us, microseconds)

    def percentile(self, percent: float) -> int:
        """In microseconds, rounded down to two digits; 0 when there is no sample."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                return bucket
        return 0


class Account:
    """Written by the threads of one lane."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ledger = Ledger()
        self.latencies = Latencies()
        self.sent = 0
        self.ghosts = 0
        self.wrong = 0  # what was not as it must be, apart from lost and repeated messages
        self.faults = 0
        self.fault_texts: list[str] = []

    def note(self, payload: bytes) -> None:
        number, sent_ns = HEAD.unpack_from(payload)
        now_ns = time.monotonic_ns()
        with self._lock:
            if number == GHOST:
                self.ghosts += 1
                return
            self._ledger.note(number)
            self.latencies.add((now_ns - sent_ns) // 1000)

    def note_fault(self, error: BaseException) -> None:
        with self._lock:
            self.faults += 1
            if len(self.fault_texts) < FAULTS_KEPT:
                self.fault_texts.append(f"{type(error).__name__}: {error}")

    @property
    def lost(self) -> int:
        return max(0, self.sent - self._ledger.delivered)

    @property
    def repeated(self) -> int:
        return self._ledger.repeated

    def summary(self) -> dict[str, object]:
        return {
            "sent": self.sent,
            "delivered": self._ledger.delivered,
            "lost": self.lost,
            "repeated": self.repeated,
            "ghosts": self.ghosts,
            "wrong": self.wrong,
            "faults": self.faults,
            "fault_texts": list(self.fault_texts),
            "p50_ms": self.latencies.percentile(50) / 1000,
            "p99_ms": self.latencies.percentile(99) / 1000,
            "longest_ms": self.latencies.longest_us / 1000,
        }
