"""From a topic to a ready route: a cache in front of the topic tree.

A route holds its targets folded per outlet, rights included, so a publish does no matching, no
permission check and no allocation. A change that could affect many topics raises the generation, which
makes every route older than it stale; a change of one exact topic only drops that topic's route.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.errors import Reason
from millstream.model.outlet import Outlet, Target
from millstream.model.topic import has_wildcard, split_share
from millstream.routing.arrivals import Arrivals
from millstream.routing.old_routes import OldRoutes
from millstream.routing.shares import Share
from millstream.routing.subscription import Subscription
from millstream.routing.tree import Found, TopicTree

STALE: Final[i64] = -1
LIGHT: Final[i64] = 16  # receivers of a route that counts as one
NODES_PER_STEP: Final[i64] = 8  # nodes and subscriptions that are looked at in about a microsecond
SHARED: Final[i64] = 8  # what a member of a share group counts for: it has a target of its own in every route
OLD_PER_CACHED: Final[i64] = (
    16  # forgotten targets and routes that may wait to be freed, for each that is remembered
)
LONG: Final = 4096  # bytes of a topic above which its route is made for every message: topics are memory too


@final
class Route:
    """Receivers of one topic. Valid while `generation` equals the router's."""

    def __init__(self, topic: bytes, generation: i64) -> None:
        self.topic = topic
        self.generation: i64 = generation
        self.targets: list[Target] = []
        self.shares: list[Share] | None = None
        # the one target when there is nothing else to think about: runs of many topics can then be joined
        self.single: Target | None = None
        self.is_stored = False  # some target keeps what it gets
        self.settles = False  # publishing there answers a delivery of a queue
        self.refusal = Reason.SUCCESS  # why nothing can be published there
        self.is_by_headers = False  # made for one message: the next one may go elsewhere
        self.renames = (
            False  # subscribers know the message by `topic`, however it is called where it was published
        )
        self.derived: list[Route] | None = None  # routes made of this one, stale when it is
        self._named: dict[bytes, Share] | None = (
            None  # the share groups that have receivers, once somebody has asked for one
        )

    def find_share(self, name: bytes) -> Share | None:
        if self.shares is None:
            return None
        if self._named is None:
            self._named = {share.targets[0].share: share for share in self.shares if share.targets}
        return self._named.get(name)


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicBindings(ABC):
    """Who binds queues to topics in another way than by filters. A change there raises the router's generation."""

    @abstractmethod
    def find_outlets(self, topic: bytes) -> list[Outlet]: ...


@final
class Router:
    def __init__(self, cache_max: i64, bindings: TopicBindings | None = None) -> None:
        self.tree = TopicTree()
        self._bindings = bindings
        self.arrivals = Arrivals()
        self.generation: i64 = 0
        self._routes: dict[bytes, Route] = {}
        self._cache_max: i64 = cache_max
        self._turn: i64 = 0
        # a session that matches by one subscription has one Target for all topics, so routes can be compared
        self._targets: dict[Subscription, Target] = {}
        self._bound: dict[Outlet, Target] = {}  # the same of queues that are bound
        self._weight: i64 = 0  # of the routes in the cache
        self.old = OldRoutes(OLD_PER_CACHED * cache_max)
        self.visited: i64 = 0  # nodes and subscriptions looked at so far: what finding routes has cost

    def subscribe(self, subscription: Subscription) -> Subscription | None:
        replaced = self.tree.add(subscription)
        self._forget(subscription.filter, replaced)
        return replaced

    def unsubscribe(self, filter: bytes, group: bytes, outlet: Outlet) -> Subscription | None:
        removed = self.tree.remove(filter, group, outlet)
        if removed is not None:
            self._forget(filter, removed)
        return removed

    def find_route(self, topic: bytes) -> Route:
        """The route of a topic that is known to be legal."""
        route = self._routes.get(topic)
        if route is not None and route.generation == self.generation:
            return route
        return self._resolve(topic)

    def find_share(self, topic: bytes, name: bytes) -> Share | None:
        """One share group as it sees this topic, whatever others there are. `name` is how its members subscribed."""
        route = self._routes.get(topic)
        if route is not None and route.generation == self.generation:
            return route.find_share(name)
        share = split_share(name)
        members = None if share is None else self.tree.find_members(share[1], share[0])
        if members is None:
            return None
        self._turn += 1
        self.visited += len(members)
        return Share(members, topic, self._turn, self.arrivals)

    def cache_weight(self) -> i64:
        return self._weight

    def forget_all(self) -> None:
        """Rights or presence changed in a way that may touch any topic."""
        self.generation += 1
        self._routes = self.old.take_routes(self._routes)
        self._weight = 0
        self._targets = self.old.take_targets(self._targets)
        self._bound.clear()

    def _forget(self, filter: bytes, replaced: Subscription | None) -> None:
        if replaced is not None:
            self._targets.pop(replaced, None)
        if has_wildcard(filter):
            self.generation += 1
            self._routes = self.old.take_routes(self._routes)
            self._weight = 0
            return
        route = self._routes.pop(filter, None)
        if route is not None:
            route.generation = STALE
            self._weight -= weigh(route, self._cache_max)
            if route.derived is not None:
                for derived in route.derived:
                    derived.generation = STALE

    def derive_route(self, topic: bytes, outlets: list[Outlet], is_kept: bool) -> Route:
        """The subscribers of a topic and some queues, each once, in place of the queues that `bindings` would find, for a message
        that was published under another name.
        `is_kept`: whether the caller remembers it, so that it must hear when it is stale."""
        base = self.find_route(topic)
        route = self._make_route(topic, outlets)
        route.renames = True
        if is_kept:
            if base.derived is None:
                base.derived = []
            base.derived.append(route)
        return route

    def _resolve(self, topic: bytes) -> Route:
        if self._weight >= self._cache_max:
            self.forget_all()  # connections hold routes too: only a new generation reaches them
        outlets: list[Outlet] = [] if self._bindings is None else self._bindings.find_outlets(topic)
        route = self._make_route(topic, outlets)
        if len(topic) > LONG:
            route.generation = STALE
            return route
        self._routes[topic] = route
        self._weight += weigh(route, self._cache_max)
        return route

    def _make_route(self, topic: bytes, outlets: list[Outlet]) -> Route:
        found = self.tree.match(topic)
        self.visited += found.visited + len(found.subscriptions) + len(outlets)
        route = Route(topic, self.generation)
        if len(found.subscriptions) == 1:
            subscription = found.subscriptions[0]
            if subscription.outlet.may_receive(topic):
                route.targets.append(self._target_of(subscription))
        elif found.subscriptions:
            self._fold(found, topic, route)
        if outlets:
            self.add_outlets(route, outlets)
        if found.groups:
            self._turn += 1
            route.shares = [Share(members, topic, self._turn, self.arrivals) for members in found.groups]
            for members in found.groups:
                self.visited += len(members)
        elif len(route.targets) == 1 and not route.targets[0].has_no_local:
            route.single = route.targets[0]
        for target in route.targets:
            if target.outlet.is_storing():
                route.is_stored = True
        return route

    def add_outlets(self, route: Route, outlets: list[Outlet]) -> None:
        """Bound queues; one that is there already gets no second copy."""
        known: dict[Outlet, None] = {}
        for target in route.targets:
            known[target.outlet] = None
        for outlet in outlets:
            if outlet not in known:
                bound = self._bound.get(outlet)
                if bound is None:
                    bound = self._bound[outlet] = Target(outlet, 2, True, (), b"")
                route.targets.append(bound)
                if outlet.is_storing():
                    route.is_stored = True

    def _target_of(self, subscription: Subscription) -> Target:
        target = self._targets.get(subscription)
        if target is None:
            target = fold_target(subscription.outlet, [subscription])
            self._targets[subscription] = target
        return target

    def _fold(self, found: Found, topic: bytes, route: Route) -> None:
        by_outlet: dict[Outlet, list[Subscription]] = {}
        for subscription in found.subscriptions:
            same = by_outlet.get(subscription.outlet)
            if same is None:
                by_outlet[subscription.outlet] = [subscription]
            else:
                same.append(subscription)
        for outlet, subscriptions in by_outlet.items():
            if not outlet.may_receive(topic):
                continue
            if len(subscriptions) == 1:
                route.targets.append(self._target_of(subscriptions[0]))
            else:
                route.targets.append(fold_target(outlet, subscriptions))


def weigh(route: Route, cache_max: i64) -> i64:
    """How much of a cache it takes up: one with very many receivers as much as several, but never most of it."""
    return 1 + min(size_of(route) // LIGHT, cache_max // 8)


def size_of(route: Route) -> i64:
    """How many receivers would take up as much memory."""
    size: i64 = len(route.targets)
    if route.shares is not None:
        for share in route.shares:
            size += SHARED * len(share.targets)
    return size


def fold_target(outlet: Outlet, subscriptions: list[Subscription]) -> Target:
    """One copy per outlet at the highest guarantee, with every identifier [MQTT-3.3.4-2, 3.3.4-4]."""
    best = subscriptions[0]
    identifiers: list[int] = []
    others: list[Subscription] = []
    for subscription in subscriptions:
        if subscription.guarantee > best.guarantee:
            best = subscription
        if subscription.identifier:
            identifiers.append(int(subscription.identifier))
        if not subscription.no_local:
            others.append(subscription)
    as_published = best.retain_as_published
    target = Target(outlet, best.guarantee, as_published, tuple(identifiers), b"")
    if len(others) != len(subscriptions):
        target.has_no_local = True
        target.for_own = fold_target(outlet, others) if others else None
    return target
