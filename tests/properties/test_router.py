"""The router against brute force: every route must hold exactly what matching each subscription by itself gives."""

from __future__ import annotations

from fakes import FakeOutlet
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.model.outlet import Target
from millstream.model.topic import matches, split_share
from millstream.routing.router import Route, Router
from millstream.routing.subscription import Subscription

LEVELS = st.sampled_from([b"a", b"b", b"", b"$s"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map(b"/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> bytes:
    levels = draw(st.lists(LEVELS | st.just(b"+"), max_size=3))
    if not levels or draw(st.integers(0, 3)) == 0:
        levels.append(b"#")
    return b"/".join(levels) or b"#"


names = st.one_of(filters(), filters(), filters().map(lambda filter: b"$share/g/" + filter))
shared_names = filters().map(lambda filter: b"$share/h/" + filter)
outlets = st.integers(0, 3)

Terms = tuple[int, tuple[int, ...]]


def split(name: bytes) -> tuple[bytes, bytes]:
    return split_share(name) or (b"", name)


def terms_of(target: Target | None) -> Terms | None:
    return None if target is None else (int(target.guarantee), tuple(sorted(target.identifiers)))


def folded(subscriptions: list[Subscription]) -> Terms | None:
    """One copy at the highest guarantee, with every identifier [MQTT-3.3.4-2]."""
    if not subscriptions:
        return None
    identifiers = sorted(int(one.identifier) for one in subscriptions if one.identifier)
    return max(int(one.guarantee) for one in subscriptions), tuple(identifiers)


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.outlets = [FakeOutlet(str(number)) for number in range(4)]
        self.known: dict[tuple[int, bytes], Subscription] = {}
        self.held: dict[bytes, list[Route]] = {}
        self.router = Router(100)

    @initialize(cache_max=st.sampled_from([1, 2, 5, 100]))
    def start(self, cache_max: int) -> None:
        self.router = Router(cache_max)

    @rule(
        number=outlets,
        name=names | shared_names,
        guarantee=st.integers(0, 2),
        no_local=st.booleans(),
        identifier=st.integers(0, 3),
    )
    def subscribe(self, number: int, name: bytes, guarantee: int, no_local: bool, identifier: int) -> None:
        group, filter = split(name)
        outlet = self.outlets[number]
        subscription = Subscription(
            outlet, filter, group, guarantee, no_local and not group, False, identifier
        )
        replaced = self.router.subscribe(subscription)
        assert replaced is self.known.get((number, name))
        self.known[number, name] = subscription

    @rule(number=outlets, name=names | shared_names)
    def unsubscribe_any(self, number: int, name: bytes) -> None:
        group, filter = split(name)
        removed = self.router.unsubscribe(filter, group, self.outlets[number])
        assert removed is self.known.pop((number, name), None)

    @rule(data=st.data())
    def unsubscribe_known(self, data: st.DataObject) -> None:
        if self.known:
            number, name = data.draw(st.sampled_from(sorted(self.known)))
            self.unsubscribe_any(number, name)

    @rule(number=outlets, topic=TOPICS)
    def rights_change(self, number: int, topic: bytes) -> None:
        self.outlets[number].hidden ^= {topic}
        self.router.forget_all()

    @rule(topic=TOPICS)
    def publish(self, topic: bytes) -> None:
        route = self.router.find_route(topic)
        self.check(topic, route)
        if all(route is not one for one in self.held.setdefault(topic, [])):
            self.held[topic].append(route)

    def check(self, topic: bytes, route: Route) -> None:
        assert route.topic == topic
        plain: dict[int, list[Subscription]] = {}
        groups: dict[bytes, dict[int, Subscription]] = {}
        for (number, name), subscription in self.known.items():
            if not matches(subscription.filter, topic):
                continue
            if subscription.group:
                groups.setdefault(name, {})[number] = subscription
            elif topic not in self.outlets[number].hidden:
                plain.setdefault(number, []).append(subscription)
        found = {self.outlets.index(target.outlet): target for target in route.targets}  # type: ignore[arg-type]
        assert len(found) == len(route.targets)
        assert set(found) == set(plain)
        for number, subscriptions in plain.items():
            assert terms_of(found[number]) == folded(subscriptions)
            others = [one for one in subscriptions if not one.no_local]
            assert found[number].has_no_local == (len(others) < len(subscriptions))
            if found[number].has_no_local:
                assert terms_of(found[number].for_own) == folded(others)
        self.check_groups(topic, route, groups)
        alone = len(plain) == 1 and not groups and not next(iter(found.values())).has_no_local
        assert (route.single is not None) == alone

    def check_groups(self, topic: bytes, route: Route, groups: dict[bytes, dict[int, Subscription]]) -> None:
        wanted = [
            {
                number: (name, int(one.guarantee), one.identifier)
                for number, one in members.items()
                if topic not in self.outlets[number].hidden
            }
            for name, members in groups.items()
        ]
        seen = [
            {
                self.outlets.index(target.outlet): (  # type: ignore[arg-type]
                    target.share,
                    int(target.guarantee),
                    target.identifiers[0] if target.identifiers else 0,
                )
                for target in share.targets
            }
            for share in route.shares or []
        ]
        assert sorted(map(repr, map(sorted_items, seen))) == sorted(map(repr, map(sorted_items, wanted)))

    @invariant()
    def a_route_somebody_holds_is_stale_or_right(self) -> None:
        for topic, routes in self.held.items():
            valid = [route for route in routes if route.generation == self.router.generation]
            assert len(valid) <= 1
            for route in valid:
                self.check(topic, route)

    @invariant()
    def the_tree_counts_what_is_there(self) -> None:
        assert self.router.tree.count == len(self.known)

    def teardown(self) -> None:
        for number, name in list(self.known):
            self.unsubscribe_any(number, name)
        assert self.router.tree.count == 0
        assert self.router.tree.is_empty()
        assert not self.router._targets


def sorted_items(members: dict[int, tuple[bytes, int, int]]) -> list[tuple[int, tuple[bytes, int, int]]]:
    return sorted(members.items())


TestRouter = RouterMachine.TestCase
TestRouter.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
