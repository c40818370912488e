"""A change that makes very many routes stale frees them a part at a time."""

from __future__ import annotations

from fakes import World

from millstream.model.limits import Limits
from millstream.queues.catalog import RELEASE_MAX
from millstream.routing.old_routes import AT_ONCE, OldRoutes
from millstream.routing.router import Route


def make_routes(world: World, count: int, prefix: bytes) -> None:
    for number in range(count):
        world.account.router.find_route(b"%s/%d" % (prefix, number))


def test_very_many_forgotten_routes_are_freed_tick_by_tick() -> None:
    world = World()
    session, _ = world.connect("c")
    router = world.account.router
    count = int(RELEASE_MAX) + 500
    make_routes(world, count, b"t")
    world.subscribe(session, b"+/other")
    assert (router.old.count, router.cache_weight()) == (count, 0)
    world.move(1)
    assert router.old.count == 500
    world.move(1)
    assert router.old.count == 0


def test_targets_of_very_many_subscriptions_are_freed_the_same_way() -> None:
    world = World(Limits(subscriptions_max=100_000))
    session, line = world.connect("c")
    count = AT_ONCE + 10
    for number in range(count):
        world.subscribe(session, b"t/%d" % number)
    make_routes(world, count, b"t")
    router = world.account.router
    router.forget_all()
    assert router.old.count == 2 * count
    world.publish(b"t/1")
    assert len(line.deliveries) == 1
    world.move(1)
    world.move(1)
    assert router.old.count == 0


def test_few_routes_and_more_than_may_wait_are_freed_at_once() -> None:
    world = World()
    make_routes(world, AT_ONCE, b"t")
    world.account.router.forget_all()
    assert world.account.router.old.count == 0
    old = OldRoutes(2 * AT_ONCE)
    route = Route(b"t", 0)
    first = {b"%d" % number: route for number in range(AT_ONCE + 1)}
    assert old.take_routes(first) is not first
    second = {b"%d" % number: route for number in range(AT_ONCE + 1)}
    assert old.take_routes(second) is second
    assert (old.count, second) == (AT_ONCE + 1, {})
