"""Queues and exchanges with very many bindings are removed at once, and their bindings in slices."""

from __future__ import annotations

import pytest
from fakes import START_NS, World, make_message
from logged_store import LoggedStore

from millstream.broker.binding_removal import FEW
from millstream.broker.exchange_access import ExchangeAccess
from millstream.broker.tasks import STEPS_PER_TURN
from millstream.model.errors import Reason, Refused
from millstream.model.routing_key import topic_of_publish
from millstream.queues.definition import WORK, Definition
from millstream.queues.queue import Queue

MANY = int(20 * FEW)


class Bound(World):
    @property
    def access(self) -> ExchangeAccess:
        return self.account.exchanges

    def queue(self, name: str, source: str = "", count: int = 0) -> Queue:
        queue = self.account.queues.catalog.declare(name, Definition(WORK))
        for number in range(count):
            self.access.bind_queue(queue, source, b"k%d.#" % number, {})
        return queue

    def exchange(self, name: str, kind: str = "topic", auto_delete: bool = False) -> None:
        self.access.declare(name, kind, True, auto_delete, False, {})

    def delete(self, queue: Queue) -> None:
        self.account.queues.catalog.delete(queue)

    def reached(self, exchange: str, key: bytes) -> list[str]:
        route = self.access.find_route(exchange, key, topic_of_publish(exchange.encode(), key), None, "")
        return sorted(target.outlet.name for target in route.targets if isinstance(target.outlet, Queue))

    def count(self) -> int:
        return int(self.access.binding_count())

    def finish(self) -> None:
        while self.broker.work_off():
            pass


@pytest.fixture
def world() -> Bound:
    return Bound()


def test_the_bindings_of_a_deleted_queue_go_in_slices_and_bring_nothing_from_the_start(world: Bound) -> None:
    world.exchange("x")
    queue = world.queue("q", "x", MANY)
    world.queue("other", "x", 3)
    assert world.reached("x", b"k1.a") == ["other", "q"]
    world.delete(queue)
    assert world.count() >= MANY - FEW
    for key in (b"k1.a", b"k%d.a" % (MANY - 1)):
        assert "q" not in world.reached("x", key)
    turns = 0
    while world.broker.tasks.count():
        before = world.count()
        world.broker.tasks.work_off()
        assert before - world.count() <= STEPS_PER_TURN
        turns += 1
    assert turns > 1
    assert world.count() == 3
    assert world.reached("x", b"k1.a") == ["other"]


def test_the_bindings_of_a_deleted_exchange_go_in_slices(world: Bound) -> None:
    world.exchange("front")
    world.exchange("x")
    world.queue("q", "x", MANY)
    world.access.bind_exchange("x", "front", b"#", {})
    assert world.reached("front", b"k1.a") == ["q"]
    assert world.access.delete("x", False)
    assert world.access.find("x") is None
    assert world.reached("front", b"k1.a") == []
    assert world.count() > 0
    world.finish()
    assert world.count() == 0


def test_what_was_deleted_can_be_declared_again_when_its_last_binding_is_gone(world: Bound) -> None:
    """Else a restart in between would give the old bindings to the new one."""
    world.exchange("x")
    world.delete(world.queue("q", "x", MANY))
    with pytest.raises(Refused, match="just deleted", check=lambda each: each.reason is Reason.UNAVAILABLE):
        world.queue("q")
    world.finish()
    assert world.access.bindings_of_queue(world.queue("q")) == []
    world.queue("p", "x", MANY)
    world.access.delete("x", False)
    with pytest.raises(Refused, match="just deleted"):
        world.exchange("x")
    world.finish()
    world.exchange("x")
    assert world.reached("x", b"k1.a") == []


def test_few_bindings_go_at_once_although_others_are_being_removed(world: Bound) -> None:
    world.exchange("x")
    world.exchange("own", auto_delete=True)
    large = world.queue("large", "x", MANY)
    small = world.queue("small", "own", 5)
    world.delete(large)
    world.delete(small)
    assert world.access.find("own") is None
    assert world.queue("small").name == "small"
    assert world.broker.tasks.count() == 1


def test_exchanges_that_go_with_their_last_binding_go_however_long_their_chain(world: Bound) -> None:
    world.exchange("c0")
    for number in range(1, 3000):
        world.exchange(f"c{number}", auto_delete=True)
        world.access.bind_exchange(f"c{number - 1}", f"c{number}", b"#", {})
    before = len(world.access.all())
    assert world.access.delete("c0", False)
    world.finish()
    assert len(world.access.all()) == before - 3000
    assert world.count() == 0


def test_an_exchange_with_nothing_but_bindings_to_what_is_gone_is_not_in_use(world: Bound) -> None:
    world.exchange("x")
    world.delete(world.queue("q", "x", MANY))
    assert world.access.delete("x", True)
    world.finish()
    assert world.count() == 0


def test_a_dead_letter_queue_that_was_just_deleted_comes_back_without_its_old_bindings() -> None:
    store = LoggedStore()
    world = Bound(store=store)
    world.exchange("x")
    world.delete(world.queue("dead", "x", MANY))
    world.queue("other", "x", 3)
    source = world.queue("q")
    source.definition.dead_letter = "dead"
    source.append(make_message(b"$queue/q"))
    rejected = source.find_pending(None, 0)
    assert rejected is not None
    assert world.account.queues.catalog.dead_letter(source, "", rejected, "rejected")
    assert world.account.queues.catalog.get("dead").depth() == 1
    again = Bound(store=store)  # a crash in this moment
    again.broker.restore(START_NS)
    assert again.account.queues.catalog.get("dead").depth() == 1
    assert again.reached("x", b"k1.a") == ["other"]
    assert again.count() == world.count() == 3


def test_a_restart_in_between_leaves_nothing_of_them() -> None:
    store = LoggedStore()
    world = Bound(store=store)
    world.exchange("x")
    world.delete(world.queue("q", "x", MANY))
    again = Bound(store=store)
    again.broker.restore(START_NS)
    assert again.count() == 0
    assert again.access.find("x") is not None
