"""Routes and targets that a cache has forgotten: to free very many of them takes a while, so it is done a part at a time.

Invariants
- What waits to be freed is never more than a cache may hold; more than that goes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.outlet import Target
from millstream.routing.subscription import Subscription

if TYPE_CHECKING:
    from millstream.routing.router import Route

AT_ONCE: Final = 10_000  # so few are freed where they are forgotten


@final
class OldRoutes:
    def __init__(self, count_max: i64) -> None:
        self._count_max: i64 = count_max
        self._routes: list[dict[bytes, Route]] = []
        self._targets: list[dict[Subscription, Target]] = []
        self.count: i64 = 0

    def take_routes(self, routes: dict[bytes, Route]) -> dict[bytes, Route]:
        """An empty cache in place of this one."""
        if not self._has_place_for(len(routes)):
            routes.clear()
            return routes
        self._routes.append(routes)
        return {}

    def take_targets(self, targets: dict[Subscription, Target]) -> dict[Subscription, Target]:
        if not self._has_place_for(len(targets)):
            targets.clear()
            return targets
        self._targets.append(targets)
        return {}

    def _has_place_for(self, count: i64) -> bool:
        if count <= AT_ONCE or self.count + count > self._count_max:
            return False
        self.count += count
        return True

    def free_some(self, count_max: i64) -> None:
        left: i64 = min(count_max, self.count)
        self.count -= left
        while left > 0 and self._routes:
            routes = self._routes[-1]
            while left > 0 and routes:
                routes.popitem()
                left -= 1
            if not routes:
                self._routes.pop()
        while left > 0 and self._targets:
            targets = self._targets[-1]
            while left > 0 and targets:
                targets.popitem()
                left -= 1
            if not targets:
                self._targets.pop()
