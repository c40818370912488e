"""The router's memory of topics: stale routes are known by their generation. Matching is in properties/test_router."""

from __future__ import annotations

from fakes import FakeOutlet

from millstream.routing.router import LIGHT, LONG, SHARED, Router
from millstream.routing.subscription import Subscription


def plain(outlet: FakeOutlet, filter: bytes, guarantee: int = 0, group: bytes = b"") -> Subscription:
    return Subscription(outlet, filter, group, guarantee, False, False, 0)


def test_a_topic_is_matched_once_until_something_changes() -> None:
    router = Router(10)
    router.subscribe(plain(FakeOutlet(), b"a"))
    assert router.find_route(b"a") is router.find_route(b"a")


def test_an_exact_subscription_makes_only_its_own_topic_stale() -> None:
    router = Router(10)
    a, b = router.find_route(b"a"), router.find_route(b"b")
    router.subscribe(plain(FakeOutlet(), b"a"))
    assert a.generation != router.generation
    assert b.generation == router.generation
    assert router.find_route(b"b") is b
    assert len(router.find_route(b"a").targets) == 1


def test_a_wildcard_subscription_makes_every_route_stale() -> None:
    router = Router(10)
    routes = [router.find_route(topic) for topic in (b"a", b"b")]
    outlet = FakeOutlet()
    router.subscribe(plain(outlet, b"+"))
    assert all(route.generation != router.generation for route in routes)
    fresh = router.find_route(b"a")
    router.unsubscribe(b"+", b"", outlet)
    assert fresh.generation != router.generation


def test_a_full_cache_is_emptied_and_routes_held_elsewhere_are_stale() -> None:
    router = Router(3)
    held = [router.find_route(b"%d" % number) for number in range(3)]
    router.find_route(b"one more")
    assert all(route.generation != router.generation for route in held)
    for number in range(100):
        router.find_route(b"%d" % number)
        assert len(router._routes) <= 3


def test_members_of_share_groups_count_in_the_cache() -> None:
    """Each has a target of its own in every route."""
    router = Router(1000)
    members = 10 * int(LIGHT) // int(SHARED)
    for _ in range(members):
        router.subscribe(plain(FakeOutlet(), b"+", 0, b"g"))
    for number in range(300):
        router.find_route(b"%d" % number)
        assert len(router._routes) <= 1 + 1000 // (1 + 10)
    assert router.cache_weight() <= 1000 + 11


def test_the_route_of_a_very_long_topic_is_not_remembered() -> None:
    router = Router(10)
    topic = b"x" * (LONG + 1)
    router.subscribe(plain(FakeOutlet(), topic))
    route = router.find_route(topic)
    assert len(route.targets) == 1
    assert route.generation != router.generation
    assert not router._routes
    assert router.find_route(topic[:-1]) is router.find_route(topic[:-1])


def test_a_reader_of_one_wildcard_has_the_same_target_for_all_topics() -> None:
    router = Router(10)
    router.subscribe(plain(FakeOutlet(), b"#"))
    assert router.find_route(b"a").single is router.find_route(b"b").single is not None


def test_a_replaced_subscription_does_not_live_on_in_its_target() -> None:
    router = Router(10)
    outlet = FakeOutlet()
    router.subscribe(plain(outlet, b"a", 0))
    router.find_route(b"a")
    router.subscribe(plain(outlet, b"a", 2))
    (target,) = router.find_route(b"a").targets
    assert target.guarantee == 2
    assert router.tree.count == 1


def test_unsubscribing_what_is_not_there_changes_nothing() -> None:
    router = Router(10)
    outlet = FakeOutlet()
    router.subscribe(plain(outlet, b"a"))
    route = router.find_route(b"a")
    assert router.unsubscribe(b"a", b"g", outlet) is None
    assert router.unsubscribe(b"a", b"", FakeOutlet()) is None
    assert router.unsubscribe(b"b/+", b"", outlet) is None
    assert router.find_route(b"a") is route


def test_who_may_not_see_a_topic_is_not_in_its_route() -> None:
    router = Router(10)
    outlet = FakeOutlet()
    outlet.hidden = {b"secret"}
    router.subscribe(plain(outlet, b"+"))
    assert router.find_route(b"secret").targets == []
    assert len(router.find_route(b"open").targets) == 1
    outlet.hidden = {b"open"}
    router.forget_all()
    assert len(router.find_route(b"secret").targets) == 1
    assert router.find_route(b"open").targets == []
