"""The catalog: queues are declared, changed, bound, deleted, and come back as they were."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest
from queue_world import MILLISECONDS, QueueWorld

from millstream.model.errors import Reason, Refused
from millstream.queues.backlog import Backlog
from millstream.queues.catalog import RELEASE_MAX, TICK_MAX
from millstream.queues.definition import Definition, make_definition
from millstream.queues.group import Group
from millstream.queues.queue import Queue
from millstream.storage.records import queue_records


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def route_names(world: QueueWorld, topic: bytes) -> list[str]:
    return [target.outlet.name for target in world.router.find_route(topic).targets]  # type: ignore[attr-defined]


def test_to_declare_again_changes_nothing_and_writes_nothing(world: QueueWorld) -> None:
    queue = world.declare(length_max=5)
    count = len(world.facts.log)
    assert world.declare(length_max=5) is queue
    assert len(world.facts.log) == count


def test_a_new_definition_holds_at_once_and_after_a_restart(world: QueueWorld) -> None:
    queue = world.declare(length_max=5)
    world.fill(queue, 3)
    assert world.declare(length_max=7, single_active=True) is queue
    assert queue.definition.length_max == 7
    world.restart()
    assert (
        world.queue().definition.to_fields()
        == make_definition({"length_max": 7, "single_active": True}).to_fields()
    )
    assert world.queue().depth() == 3


def test_the_kind_of_a_queue_never_changes(world: QueueWorld) -> None:
    world.declare()
    with pytest.raises(Refused, match="cannot become a stream queue") as caught:
        world.declare(kind="stream")
    assert caught.value.reason is Reason.IN_USE


def test_a_queue_is_not_its_own_dead_letter_queue(world: QueueWorld) -> None:
    with pytest.raises(Refused, match="own dead-letter queue"):
        world.declare(dead_letter="q")
    assert world.catalog.find("q") is None


def test_an_unknown_queue_is_named_with_the_next_command(world: QueueWorld) -> None:
    with pytest.raises(Refused, match="millstream queue list"):
        world.catalog.get("nowhere")


@pytest.mark.parametrize("name", ["", "$x", "$dlq/", "$dlq/$dlq/x", "a\x00", "a\x7f", "n" * 256])
def test_bad_names_are_refused(world: QueueWorld, name: str) -> None:
    with pytest.raises(Refused):
        world.catalog.declare(name, Definition("work"))
    assert world.facts.log == []


def test_a_bound_queue_gets_what_is_published_to_its_filters(world: QueueWorld) -> None:
    queue = world.declare(bindings=["plant/+/temp", "alarm"])
    assert route_names(world, b"plant/1/temp") == ["q"]
    assert world.router.find_route(b"alarm").is_stored
    assert route_names(world, b"plant/1/rpm") == []
    world.catalog.bind(queue, "plant/+/rpm")
    assert route_names(world, b"plant/1/rpm") == ["q"]
    assert world.catalog.unbind(queue, "alarm")
    assert not world.catalog.unbind(queue, "alarm")
    assert route_names(world, b"alarm") == []


def test_filters_that_overlap_give_one_copy(world: QueueWorld) -> None:
    world.declare(bindings=["a/#", "a/+", "a/b"])
    assert route_names(world, b"a/b") == ["q"]


def test_bindings_survive_a_restart(world: QueueWorld) -> None:
    queue = world.declare(bindings=["a", "b"])
    world.catalog.bind(queue, "c")
    world.catalog.unbind(queue, "a")
    world.restart()
    assert [route_names(world, topic) for topic in (b"a", b"b", b"c")] == [[], ["q"], ["q"]]


def test_redefining_replaces_the_bindings(world: QueueWorld) -> None:
    world.declare(bindings=["a", "b"])
    world.declare(bindings=["b", "c"])
    assert [route_names(world, topic) for topic in (b"a", b"b", b"c")] == [[], ["q"], ["q"]]


def test_a_deleted_queue_is_gone_with_everything_in_it(world: QueueWorld) -> None:
    queue = world.declare(bindings=["a"])
    consumer = world.join(queue)
    world.fill(queue, 3)
    consumer.settle(0)
    world.catalog.delete(queue)
    world.loop()
    assert consumer.is_removed
    assert (consumer.open, route_names(world, b"a")) == (0, [])
    consumer.settle_all()
    world.move(1_000_000)
    assert world.facts.kinds()[-1] == queue_records.QUEUE_REMOVED
    world.restart()
    assert world.catalog.queues == {}


def test_the_number_of_a_deleted_queue_is_never_given_again(world: QueueWorld) -> None:
    world.declare("a")
    number = int(world.declare("b").number)
    world.catalog.delete(world.queue("b"))
    for folded in (0.0, 1.0):
        world.restart(folded)
        assert world.declare(f"new{folded}").number > number


def test_a_queue_of_the_same_name_begins_empty(world: QueueWorld) -> None:
    queue = world.declare()
    world.fill(queue, 3)
    world.catalog.delete(queue)
    again = world.declare()
    world.publish(again, b"new")
    world.restart()
    assert world.join(world.queue()).payloads() == [b"new"]


def test_a_declare_that_was_not_safe_is_gone(world: QueueWorld) -> None:
    world.facts.hold()
    world.declare()
    world.restart()
    assert world.catalog.find("q") is None


def test_groups_and_what_they_settled_come_back(world: QueueWorld) -> None:
    queue = world.declare()
    first, second = world.join(queue, "a"), world.join(queue, "b", filter=b"x/#")
    world.publish(queue, b"0", b"x/1")
    world.publish(queue, b"1", b"y")
    world.loop()
    first.settle_all()
    world.loop()
    assert second.payloads() == [b"0"]
    world.restart()
    assert list(world.queue().groups) == ["a", "b@x/#"]
    assert world.join(world.queue(), "a").payloads() == []
    assert world.join(world.queue(), "b", filter=b"x/#").payloads() == [b"0"]


def test_what_the_segments_hold_need_not_stay_in_memory(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    world.fill(queue, 600)
    for _, kind, body in world.facts.log:
        if kind == queue_records.RECORD_APPENDED:
            world.segments.put(body)
    size = int(queue.size.bytes)
    world.catalog.forget_folded(int(world.store.position()))
    assert queue.memtable.first == 512
    assert queue.size.bytes == size
    world.segments.count_max = 100
    consumer = world.join(queue, credit=1000)
    assert consumer.offsets() == list(range(600))


def test_a_queue_that_was_deleted_in_this_turn_writes_nothing_more(world: QueueWorld) -> None:
    queue = world.declare(length_max=1, overflow="drop_head", bounds_ready=True, dead_letter_exchange="dlx")
    for payload in (b"1", b"2", b"3"):
        world.publish(queue, payload)
    world.catalog.delete(queue)
    world.safe()
    assert world.facts.kinds()[-1] == queue_records.QUEUE_REMOVED
    assert world.exchanges.posted == []


def test_so_many_queues_that_one_tick_cannot_look_at_them_all_get_their_turn(world: QueueWorld) -> None:
    for number in range(TICK_MAX + 2):
        world.publish(world.declare(str(number), kind="ephemeral", message_ttl_ms=1), b"x")
    world.loop()
    world.clock.now_ns += 5 * MILLISECONDS
    left = []
    for _ in range(2):
        world.catalog.on_tick(world.clock.now_ns)
        left.append(sum(int(queue.depth()) for queue in world.catalog.queues.values()))
    assert left == [2, 0]


def test_what_a_deleted_transient_queue_held_is_let_go_in_slices(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    count = RELEASE_MAX + 300
    world.fill(queue, count)
    first, last = queue.memtable.get_message(0), queue.memtable.get_message(count - 1)
    held = sys.getrefcount(first), sys.getrefcount(last)
    world.catalog.delete(queue)
    world.catalog.on_tick(1)
    world.loop()
    assert sys.getrefcount(first) == held[0] - 1
    assert sys.getrefcount(last) == held[1]
    world.catalog.on_tick(2)
    world.loop()
    assert sys.getrefcount(last) == held[1] - 1


@pytest.fixture
def unfreed() -> Iterator[list[object]]:
    """What only the garbage collector could free: filled by `gc.collect`."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("kind", ["ephemeral", "work", "stream"])
def test_a_removed_queue_is_freed_at_once(world: QueueWorld, unfreed: list[object], kind: str) -> None:
    """Very many that are declared and deleted would hold the loop for as long as the collector looks at them."""
    queue = world.declare(kind=kind)
    world.fill(queue, 3)
    world.join(queue, credit=1)
    parts = {
        id(part) for part in (queue, queue.backlog, *queue.groups.values())
    }  # others may leave garbage too
    queue.nobody()
    world.catalog.delete(queue)
    del queue
    world.loop()
    world.catalog.on_tick(world.clock.now_ns)
    gc.collect()
    assert [each for each in unfreed if id(each) in parts and isinstance(each, (Queue, Group, Backlog))] == []
