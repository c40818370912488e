"""The quotas of one account and of its users, and who has used how much.

Invariants
- Whoever is not admitted has changed nothing, and is told the quota, its value and its key.
- What the operator makes (user "") counts for the account and is never refused.
- What a start finds is counted, however much it is; more comes when less is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.errors import Reason, Refused
from millstream.model.memory_budget import MemoryBudget
from millstream.security.quota import BYTES, KINDS, NO_BOUND, Bound, Quota, Usage

IDLE_MAX: Final = 1000  # users that have nothing, before they are forgotten
ANYBODY: Final = ""  # the operator
MIB: Final[i64] = 1024 * 1024
WEIGHTS: Final = (4096, 16_384, 8192, 1024, 0)  # bytes of memory that one takes, about, by kind


@mypyc_attr(allow_interpreted_subclasses=True)
class QuotaObserver(ABC):
    """The port to those who watch the broker."""

    @abstractmethod
    def on_reached(self, kind: int, who: str, text: str, count: i64) -> None:
        """So many more were refused to `who` because of this quota."""


@final
class QuotaTerms:
    """What the configuration says: of the account as a whole, of each of its users, and of some users by name."""

    def __init__(
        self,
        account: Quota | None = None,
        user: Quota | None = None,
        users: dict[str, Quota] | None = None,
    ) -> None:
        self.account = account or Quota()
        self.user = user or Quota()
        self.users = users or {}


@final
class Quotas:
    def __init__(
        self,
        account: str,
        terms: QuotaTerms,
        memory: MemoryBudget,
        observer: QuotaObserver | None = None,
    ) -> None:
        self.whole = Usage("", f"the account {account!r}", terms.account, None)
        self.users: dict[str, Usage] = {}
        self._terms = terms
        self._memory = memory
        self._account = account
        self._observer = observer
        self._idle_max = IDLE_MAX
        self._all_bytes = [terms.account, terms.user, *terms.users.values()]

    def bounds_bytes(self) -> bool:
        """Whether anybody's stored bytes are bounded."""
        return any([quota.bounds[BYTES].value for quota in self._all_bytes])

    def of(self, user: str) -> Usage:
        if user == ANYBODY:
            return self.whole
        usage = self.users.get(user)
        if usage is None:
            if len(self.users) >= self._idle_max:
                self._forget_idle()
            quota = self._terms.users.get(user, self._terms.user)
            usage = self.users[user] = Usage(user, f"the user {user!r}", quota, self.whole)
            usage.is_full = self.whole.is_full
        return usage

    def _forget_idle(self) -> None:
        for name in [name for name, usage in self.users.items() if usage.is_idle()]:
            del self.users[name]
        self._idle_max = 2 * len(self.users) + IDLE_MAX

    def admit(self, kind: int, usage: Usage) -> None:
        """Refused when the user or the account has as many as it may; the operator never is."""
        if usage.whole is not None:
            self.check(kind, usage)

    def check(self, kind: int, usage: Usage) -> None:
        """The same, whoever it is."""
        reached = usage.find_reached(kind)
        if reached is not None:
            self.report(kind, reached, 1)
            raise Refused(Reason.QUOTA_EXCEEDED, describe(kind, reached), is_reported=True)
        count = self.whole.used[kind]
        self.check_memory(f"{count} {KINDS[kind]}", WEIGHTS[kind], WEIGHTS[kind] * count)

    def check_memory(self, what: str, weight: i64, held: i64) -> None:
        """Refused when memory is short and those that are there have a good part of it. Where they are few, others may still
        come: it may be a consumer who makes room."""
        memory = self._memory
        if memory.is_too_short_for(weight, held):
            raise Refused(
                Reason.QUOTA_EXCEEDED,
                f"memory is short: beside {what} there is no room for another of {weight:,} bytes while {memory.used() // MIB} "
                f"MiB are in use (memory.high_watermark and memory.critical_watermark of memory.limit = {memory.limit // MIB} MiB)",
            )

    def has_bytes(self, usage: Usage) -> bool:
        """Whether more may be stored for it; told and counted if not."""
        if not usage.is_full:
            return True
        reached = usage.find_reached(BYTES)
        if reached is not None:
            self.report(BYTES, reached, 1)
        return False

    def report(self, kind: int, reached: Usage, count: i64) -> None:
        if self._observer is not None:
            who = f"{self._account}/{reached.name}" if reached.name else self._account
            self._observer.on_reached(kind, who, describe(kind, reached), count)


def describe(kind: int, reached: Usage) -> str:
    bound = reached.quota.bounds[kind]
    return f"{reached.title} has {reached.used[kind]} {KINDS[kind]}, as many as {bound.key} = {bound.value} allows"


def make_quota(bounds: dict[int, Bound], rate: float = 0.0, burst: int = 1) -> Quota:
    return Quota([bounds.get(kind, NO_BOUND) for kind in range(len(KINDS))], rate, burst)
