"""How much memory the broker may use, how much it uses, and what follows from that at this moment.

The resident size of the process is the measure: it counts everything once, shared payloads and the overhead of objects
included. Reading it takes some microseconds, so it is read by the amount of work and not by the clock: whatever makes
memory grow adds to `intake`, and as soon as that reaches `check_at` the size is read again, within the turn of the loop.

Invariants
- Above the high mark `is_high` is true, above the critical mark `is_critical` is true as well; both end 5 % lower.
- What is large is refused first (`refuses`): what is small only where the limit is exceeded by a fifth.
- Memory that is fragmented, free between what is in use, counts against no mark until 95 % of the limit are resident.
- With a limit of 0 nothing is ever measured and neither is ever true.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.limits import Limits

NEVER: Final[i64] = 1 << 62
STEP_MIN: Final[i64] = 256 * 1024
STEP_MAX: Final[i64] = 16 * 1024 * 1024
QUIET_TICKS: Final[i64] = 5  # so many ticks pass without a look where next to nothing came in
UNSENT_MIN: Final[i64] = 64 * 1024
LAG_MIN: Final[i64] = 16 * 1024
MESSAGE_OVERHEAD: Final[i64] = 256  # bytes of the objects that stand for one message, about
SMALL_MESSAGE: Final[i64] = 64 * 1024  # with all its copies: what is no larger is the last to be refused
SMALL_OBJECT: Final[i64] = 16 * 1024  # the same of a session, a connection, a queue
RETAINED_OVERHEAD: Final[i64] = 512  # the same for a retained message and its place in the tree
NODE_OVERHEAD: Final[i64] = 384  # the same for a level of its topic that leads to it
# The same for objects, without what they hold, as measured.
CONNECTION_OVERHEAD: Final[i64] = 1024  # without TLS
SESSION_OVERHEAD: Final[i64] = 1536
QUEUE_OVERHEAD: Final[i64] = 2816
SUBSCRIPTION_OVERHEAD: Final[i64] = 400
BINDING_OVERHEAD: Final[i64] = 720


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryMeter(ABC):
    """The port to the operating system."""

    @abstractmethod
    def resident_bytes(self) -> i64:
        """Of this process; 0 where the system does not tell."""


@final
class MemoryBudget:
    def __init__(
        self,
        limits: Limits,
        limit: i64 = 0,
        high_percent: i64 = 70,
        critical_percent: i64 = 90,
        meter: MemoryMeter | None = None,
    ) -> None:
        self.limit: i64 = limit if meter is not None else 0  # bytes; 0: none
        self.high_mark: i64 = self.limit * high_percent // 100
        self.critical_mark: i64 = self.limit * critical_percent // 100
        self.intake: i64 = 0  # bytes that may have made memory grow, since the start
        self.check_at: i64 = 0 if self.limit else NEVER  # of `intake`: time to measure
        self.resident: i64 = 0  # as last measured
        self.fragmented: i64 = (
            0  # of that: free between what is in use, so that the system cannot have it back
        )
        self.is_high = False
        self.is_critical = False
        self.unsent_high: i64 = limits.unsent_bytes_high  # of one connection, smaller the more of them lag
        self.unsent_max: i64 = limits.unsent_bytes_max
        self.retained: i64 = 0  # bytes of retained messages, overhead included
        self.retained_max: i64 = self.limit * 35 // 100 if self.limit else NEVER
        self.wills: i64 = 0  # bytes of wills, overhead included
        self.connections_dropped: i64 = 0  # because of what they held
        self.refused: i64 = 0  # sessions, queues, subscriptions and the like that were not made
        self.by_kind: dict[str, int] = {}  # bytes, by the last survey
        self._limits = limits
        self._meter = meter
        self._lagging: i64 = 0  # connections
        self._reusable: i64 = 0  # bytes that are resident, but free for what comes
        self._looked_at: i64 = 0  # of `intake`: when it was measured last
        self._quiet_ticks: i64 = QUIET_TICKS  # since then; the first tick is not to wait
        self._outside: i64 = (
            0  # the same pressure as this many bytes comes from the rest of the control group
        )

    # ---------------------------------------------------------------- measure

    def look(self) -> None:
        """Measure and decide. Called as soon as `intake` has reached `check_at`, and by ticks."""
        meter = self._meter
        if self.limit == 0 or meter is None:
            return
        self._looked_at = self.intake
        self._quiet_ticks = 0
        resident: i64 = meter.resident_bytes()
        if resident < self.resident:
            given_back: i64 = self.resident - resident
            self._reusable = max(0, self._reusable - given_back)
            self.fragmented = max(0, self.fragmented - given_back)
        self.resident = resident
        used: i64 = self.used()
        slack: i64 = self.limit // 20
        full: i64 = used
        if resident >= self.limit - slack:
            full = resident
        elif resident - self.fragmented >= self.critical_mark:
            full = resident - self.fragmented
        self.is_critical = full >= (self.critical_mark - slack if self.is_critical else self.critical_mark)
        self.is_high = self.is_critical or used >= (
            self.high_mark - slack if self.is_high else self.high_mark
        )
        step: i64 = (self.critical_mark - resident) // 16
        self.check_at = self.intake + max(STEP_MIN, min(STEP_MAX, step))

    def used(self) -> i64:
        """What counts against the marks: the resident size without what is known to be free in it, or as much as the rest
        of the control group leaves."""
        own: i64 = self.resident - max(self._reusable, self.fragmented)
        return self._outside if self._outside > own else own

    def on_tick(self, reusable: i64, outside: i64) -> None:
        """What was found out since the last tick about memory that is free inside the process, and about others."""
        known: i64 = max(0, min(reusable, self.resident))
        is_same = known == self._reusable and outside == self._outside and not self.is_high
        self._quiet_ticks += 1
        if is_same and self._quiet_ticks < QUIET_TICKS and self.intake - self._looked_at < STEP_MIN:
            return
        self._reusable = known
        self._outside = outside
        self.look()

    def state(self) -> str:
        if self.limit == 0:
            return "off"
        return "critical" if self.is_critical else "high" if self.is_high else "normal"

    def values(self) -> dict[str, str]:
        """For those who watch the broker."""
        values = {
            "state": self.state(),
            "limit": str(self.limit),
            "high_watermark": str(self.high_mark),
            "critical_watermark": str(self.critical_mark),
            "used": str(self.used()),
            "resident": str(self.resident),
            "fragmented": str(self.fragmented),
            "connections_dropped": str(self.connections_dropped),
            "refused": str(self.refused),
        }
        for name, size in self.by_kind.items():
            values["kinds/" + name] = str(size)
        return values

    def refuses(self, weight: i64) -> bool:
        """Whether a message that takes so many bytes cannot be had: above the critical mark one that is not small; any where
        even the reserve for small ones, a fifth of the limit, is used up."""
        return self.is_critical and (weight > SMALL_MESSAGE or self.resident >= self.limit + self.limit // 5)

    def is_too_short_for(self, weight: i64, held: i64) -> bool:
        """Whether one more object that takes so many bytes cannot be had: above the high mark one that is not small, at the
        limit any; where those that are there hold more than a sixteenth of the limit."""
        self.intake += weight
        if self.intake >= self.check_at:
            self.look()
        if not self.is_high or held <= self.limit // 16:
            return False
        if weight <= SMALL_OBJECT and not self._is_used_up():
            return False
        self.refused += 1
        return True

    def _is_used_up(self) -> bool:
        return self.is_critical and (self.resident >= self.limit or self._outside >= self.limit)

    # ----------------------------------------------------------------- shares

    def on_lagging(self, change: i64) -> None:
        """One more connection, or one less, does not take what it is sent: all of them share a quarter of the limit."""
        self._lagging += change
        limits = self._limits
        if self.limit == 0 or self._lagging <= 0:
            self.unsent_high = limits.unsent_bytes_high
            self.unsent_max = limits.unsent_bytes_max
            return
        share: i64 = max(UNSENT_MIN, self.limit // 4 // self._lagging)
        self.unsent_high = min(share, limits.unsent_bytes_high)
        self.unsent_max = min(2 * share, limits.unsent_bytes_max)

    def lag_mark(self, connections: i64) -> i64:
        """Unsent bytes from which on a connection counts as lagging: less where there are very many."""
        low: i64 = self._limits.unsent_bytes_low
        if self.limit == 0 or connections <= 0:
            return low
        return max(min(low, LAG_MIN), min(low, self.limit // 8 // connections))
