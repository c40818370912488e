"""What all groups of a queue have settled is known without a look at all of them for each of them."""

from __future__ import annotations

import pytest
from queue_world import FakeConsumer, QueueWorld

COUNT = 200


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def test_very_many_groups_that_settle_in_one_turn_are_looked_at_once(world: QueueWorld) -> None:
    queue = world.declare()
    consumers = [world.join(queue, f"g{number}") for number in range(COUNT)]
    world.fill(queue, 1)
    before = queue.low.looked
    for consumer in consumers:
        consumer.settle(0)
    world.loop()
    assert queue.low.looked - before <= 3 * COUNT
    assert queue.low_mark() == queue.next == 1


def test_a_group_that_begins_costs_no_look_at_the_others(world: QueueWorld) -> None:
    queue = world.declare()
    world.fill(queue, 3)
    for number in range(COUNT):
        queue.get_group(f"g{number}", b"")
    assert queue.low.looked <= 2 * COUNT
    assert {int(group.committed) for group in queue.groups.values()} == {0}


def test_what_one_group_has_not_settled_is_asked_of_that_one(world: QueueWorld) -> None:
    """The last of very many holds everything: nothing can be let go of, and that costs the others nothing."""
    queue = world.declare(kind="ephemeral")
    consumers = [world.join(queue, f"g{number}") for number in range(COUNT)]
    world.fill(queue, 3)
    before = queue.low.looked
    for consumer in consumers[:-1]:
        consumer.settle(2)
        consumer.settle(1)
    assert queue.low.looked - before <= 3 * COUNT
    assert not queue.memtable.is_emptied(1)
    consumers[-1].settle(1)
    assert (queue.memtable.is_emptied(1), queue.memtable.is_emptied(2)) == (True, False)


def test_the_lowest_group_is_found_anew_when_it_leaves_or_another_goes_back(world: QueueWorld) -> None:
    queue = world.declare()
    slow, fast = world.join(queue, "slow"), world.join(queue, "fast")
    world.fill(queue, 5)
    fast.settle_all()
    assert queue.low_mark() == 0
    world.catalog.remove_group(queue, queue.groups["slow"])
    assert (slow.is_removed, queue.low_mark()) == (True, 5)
    queue.get_group("again", b"")
    assert queue.low_mark() == 5


def test_a_reader_that_goes_back_is_the_lowest(world: QueueWorld) -> None:
    queue = world.declare()
    a, b = world.join(queue, "a"), world.join(queue, "b")
    world.fill(queue, 5)
    a.settle_all()
    b.settle_all()
    assert queue.low_mark() == 5
    queue.groups["b"].seek(2)
    assert queue.low_mark() == 2


class CountedBlocks(dict[int, object]):
    asked = 0

    def get(self, key: int, default: object = None) -> object:
        CountedBlocks.asked += 1
        return super().get(key, default)


def test_records_that_went_from_behind_one_that_stayed_are_passed_over_in_blocks(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    first = world.join(queue, credit=1)
    for number in range(20_000):
        world.publish(queue, b"%d" % number)
    rest = FakeConsumer("rest", 100_000)
    queue.groups["g"].join(rest)
    world.loop()
    rest.settle_all()
    queue.memtable._blocks = CountedBlocks(queue.memtable._blocks)  # type: ignore[assignment]
    first.settle_all()
    world.loop()
    assert (queue.low_mark(), queue.size.bytes) == (20_000, 0)
    assert CountedBlocks.asked < 1000
