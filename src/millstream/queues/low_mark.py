"""What all groups of a queue have settled, known without a look at all of them each time.

Groups only go forward, so the one that stands lowest says it for all until it has moved itself. Then all of them are looked at again.
Likewise the one that had not settled an offset is asked first about the next, and then those behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.queues.group import Group


@final
class LowMark:
    def __init__(self) -> None:
        self._lowest: Group | None = None  # None: they have to be looked at
        self._low: i64 = 0  # where it stood
        self._order: list[Group] = []  # in which they are asked
        self._behind: i64 = 0  # which of them had not settled what others had, when it was last asked
        self.looked: i64 = 0  # at so many groups so far

    def forget(self) -> None:
        """A group has gone, came back, or went back."""
        self._lowest = None
        self._order = []

    def find(self, groups: dict[str, Group]) -> i64:
        """Of one group at least. A new group may be missing here: it begins where another one stands."""
        lowest = self._lowest
        if lowest is not None and lowest.committed == self._low:
            return self._low
        lowest = None
        for group in groups.values():
            if lowest is None or group.committed < lowest.committed:
                lowest = group
        assert lowest is not None
        self.looked += len(groups)
        self._lowest = lowest
        self._low = lowest.committed
        return self._low

    def is_settled_by_all(self, groups: dict[str, Group], offset: i64) -> bool:
        """Also out of order."""
        count: i64 = len(groups)
        if len(self._order) != count:
            self._order = list(groups.values())
            self._behind = 0
        for _ in range(count):
            self.looked += 1
            if not self._order[self._behind].is_settled(offset):
                return False
            self._behind = self._behind + 1 if self._behind + 1 < count else 0
        return True
