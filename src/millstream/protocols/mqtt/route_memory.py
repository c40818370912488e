"""The routes that connections remember of the topics they publish to: found anew when rights or subscriptions have changed.

All connections together remember a bounded number, so that many of them cannot make it much by sending to ever new topics.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.session import Session
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.model.topic import find_topic_fault
from millstream.protocols.mqtt.backlog import Backlog
from millstream.protocols.mqtt.context import RouteCount
from millstream.routing.router import Route, weigh

ROUTES_MAX: Final[i64] = 32_768  # topics a connection remembers
ALL_ROUTES_MAX: Final[i64] = 1_000_000  # all of them together
OWN_ROUTES: Final[i64] = 16  # that each may remember in any case
STEPS_PER_ROUTE: Final[i64] = 2
TOPIC_UNIT: Final[i64] = 128  # bytes of a topic that count as one more
LOOKED_MIN: Final[i64] = 64  # routes that are remembered before it is looked which of them are stale
LOOKED_PER_STEP: Final[i64] = 10


@final
class RouteMemory:
    """Those of one connection."""

    def __init__(self, limits: Limits, total: RouteCount, backlog: Backlog) -> None:
        self._limits = limits
        self._total = total
        self._backlog = backlog
        self._own: i64 = 0
        self._look_at: i64 = LOOKED_MIN
        self._routes: dict[bytes, Route] | None = None
        self._last_topic = b""
        self._last_route: Route | None = None

    def find(self, session: Session, topic: bytes) -> Route | None:
        """Where a topic goes, or None when the client may not publish there or there is no such topic."""
        generation = session.account.router.generation
        route = self._last_route
        if route is not None and topic is self._last_topic and route.generation == generation:
            return route
        routes = self._routes
        route = None if routes is None else routes.get(topic)
        if route is None or route.generation != generation:
            route = self._make(session, topic)
            if route is None:
                return None
            if route.refusal is not Reason.SUCCESS:
                return route  # it may be refused for now only
            if route.generation == session.account.router.generation:
                self._remember(topic, route)
        self._last_topic = topic
        self._last_route = route
        return route

    def clear(self) -> None:
        self._total.count -= self._own
        self._own = 0
        self._look_at = LOOKED_MIN
        self._routes = None
        self._last_route = None

    def topics(self) -> list[bytes]:
        return [] if self._routes is None else list(self._routes)

    def _make(self, session: Session, topic: bytes) -> Route | None:
        """What it costs is charged to the connection: it must not be able to make others wait by it."""
        limits = self._limits
        self._backlog.spend(STEPS_PER_ROUTE)
        if find_topic_fault(topic, limits.topic_length_max, limits.topic_levels_max) is not None:
            return None
        account = session.account
        if not account.authorizer.can_publish(session.principal, session.key.client_id, topic):
            return None
        before: i64 = account.exchanges.routing_steps()
        route = account.find_route(topic, session.principal.name)
        self._backlog.spend(account.exchanges.routing_steps() - before)
        return route

    def _remember(self, topic: bytes, route: Route) -> None:
        weight: i64 = weight_of(topic, route)
        if self._own + weight > ROUTES_MAX or (
            self._total.count + weight > ALL_ROUTES_MAX and self._own + weight > OWN_ROUTES
        ):
            self.clear()
        routes = self._routes
        if routes is None:
            routes = self._routes = {}
        replaced = routes.get(topic)
        if replaced is not None:
            weight -= weight_of(topic, replaced)
        self._own += weight
        self._total.count += weight
        routes[topic] = route
        if len(routes) >= self._look_at:
            self._forget_stale(routes, route.generation)

    def _forget_stale(self, routes: dict[bytes, Route], generation: i64) -> None:
        """They hold whom they led to, though that may have gone long ago, until somebody publishes to the topic again."""
        self._backlog.spend(len(routes) // LOOKED_PER_STEP)
        kept: dict[bytes, Route] = {}
        own: i64 = 0
        for topic, route in routes.items():
            if route.generation == generation:
                kept[topic] = route
                own += weight_of(topic, route)
        self._total.count += own - self._own
        self._own = own
        self._routes = kept
        self._look_at = max(LOOKED_MIN, 2 * len(kept))


def weight_of(topic: bytes, route: Route) -> i64:
    return weigh(route, ROUTES_MAX) + len(topic) // TOPIC_UNIT
