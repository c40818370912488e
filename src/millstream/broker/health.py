"""What is wrong with the broker now: conditions that begin and end, told once each time.

A condition is something an operator should know of while it lasts: a full disk, no descriptor left, a reader that is
down. Whoever notices it says so here, as often as it likes. The observer hears of the beginning and of the end; what
happens in between is counted. The status of the broker is the worst severity among the active conditions.

Two kinds of reports
- A state: `begin` when it is entered, `end` when it is left. Both may be repeated.
- An event that repeats (a refused connection, a login that found no place): `report` each time. The condition ends by
  itself when nothing was reported for `QUIET_NS`. Its cause is that of the first: a flood has as many as it has senders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.broker.conditions import CONDITIONS, DEGRADED, FAILED, Condition
from millstream.model.clock import Clock
from millstream.model.message import NANOSECONDS

QUIET_NS: Final[i64] = 10 * NANOSECONDS
SUBJECTS_MAX: Final = 100


@final
class ActiveCondition:
    """A condition since it began. `count` is how often the broker refused something because of it."""

    def __init__(
        self, condition: Condition, name: str, cause: str, advice: str, since_ns: i64, since_wall_s: i64
    ) -> None:
        self.condition = condition
        self.name = name  # the condition's, with its subject where there may be several
        self.cause = cause
        self.advice = advice
        self.since_ns: i64 = since_ns
        self.since_wall_s: i64 = since_wall_s
        self.count: i64 = 0
        self.reported_ns: i64 = 0  # when it was reported last; 0: it ends when somebody says so


@mypyc_attr(allow_interpreted_subclasses=True)
class HealthObserver(ABC):
    """The port to the log."""

    @abstractmethod
    def began(self, active: ActiveCondition) -> None: ...

    @abstractmethod
    def ended(self, active: ActiveCondition, lasted_ns: i64) -> None: ...


@final
class Health:
    def __init__(self, clock: Clock, observer: HealthObserver | None = None) -> None:
        self._clock = clock
        self._observer = observer
        self._active: dict[str, ActiveCondition] = {}
        self._totals: dict[str, i64] = {}
        self.generation: i64 = 0  # another number after every change of `active` or of a cause

    def begin(self, condition: Condition, cause: str, advice: str = "") -> None:
        """The condition holds from now on, or still. Without advice the condition's own is given."""
        self._begin(condition, cause, advice, condition.name)

    def end(self, condition: Condition) -> None:
        self._end(condition.name)

    def _end(self, name: str) -> None:
        active = self._active.pop(name, None)
        if active is None:
            return
        self.generation += 1
        if self._observer is not None:
            self._observer.ended(active, self._clock.now_ns - active.since_ns)

    def count(self, condition: Condition, count: i64) -> None:
        """So many more things were refused because of it. Without effect while it does not hold."""
        active = self._active.get(condition.name)
        if active is not None:
            self._count(active, count)

    def report(
        self, condition: Condition, cause: str, count: i64 = 1, advice: str = "", subject: str = ""
    ) -> None:
        """It has happened again; the condition ends when it does not for a while. Each subject has a condition of its own,
        up to `SUBJECTS_MAX` conditions at a time; then they share one."""
        name = f"{condition.name}/{quote(subject)}" if subject else condition.name
        if subject and len(self._active) >= SUBJECTS_MAX and name not in self._active:
            name = condition.name
        active = self._active.get(name)
        if active is None:
            active = self._begin(condition, cause, advice, name)
        self._count(active, count)
        active.reported_ns = self._clock.now_ns

    def on_tick(self, now_ns: i64) -> None:
        for active in list(self._active.values()):
            if active.reported_ns and now_ns - active.reported_ns >= QUIET_NS:
                self._end(active.name)

    def _count(self, active: ActiveCondition, count: i64) -> None:
        active.count += count
        name = active.condition.name
        self._totals[name] = self._totals.get(name, 0) + count

    def _begin(self, condition: Condition, cause: str, advice: str, name: str) -> ActiveCondition:
        active = self._active.get(name)
        if active is not None:
            if active.cause != cause:
                active.cause = cause
                active.advice = advice or condition.advice
                self.generation += 1
            return active
        clock = self._clock
        active = ActiveCondition(
            condition, name, cause, advice or condition.advice, clock.now_ns, clock.wall_s
        )
        self._active[name] = active
        self.generation += 1
        if self._observer is not None:
            self._observer.began(active)
        return active

    # ------------------------------------------------------------------- view

    def find(self, condition: Condition) -> ActiveCondition | None:
        return self._active.get(condition.name)

    def active(self) -> list[ActiveCondition]:
        """In the order they began."""
        return list(self._active.values())

    def totals(self) -> dict[str, int]:
        """How much was counted since the start, by the names of the conditions that count."""
        return {each.name: int(self._totals.get(each.name, 0)) for each in CONDITIONS if each.counts}

    def status(self) -> str:
        """`ok`, `degraded` or `failed`."""
        worst = 0
        for active in self._active.values():
            worst = max(worst, active.condition.severity)
        if worst >= FAILED:
            return "failed"
        return "degraded" if worst >= DEGRADED else "ok"


def quote(subject: str) -> str:
    """As one level of a topic."""
    for character in "%/+#":
        subject = subject.replace(character, f"%{ord(character):02X}")
    return subject
