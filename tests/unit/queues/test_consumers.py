"""Whose turn it is: priorities among those with credit, and the one that gets everything."""

from __future__ import annotations

import pytest
from queue_world import FakeConsumer, QueueWorld

from millstream.model.outcome import Outcome
from millstream.queues.consumers import CROWD
from millstream.queues.queue import Queue


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


@pytest.fixture
def queue(world: QueueWorld) -> Queue:
    return world.declare()


def test_the_highest_priority_with_credit_is_served_first(world: QueueWorld, queue: Queue) -> None:
    low = world.join(queue, credit=10)
    high = world.join(queue, credit=2, priority=5)
    middle = world.join(queue, credit=1, priority=1)
    world.fill(queue, 5)
    assert high.payloads() == [b"0", b"1"]
    assert middle.payloads() == [b"2"]
    assert low.payloads() == [b"3", b"4"]


def test_one_that_has_credit_again_goes_before_the_lower(world: QueueWorld, queue: Queue) -> None:
    low = world.join(queue, credit=10)
    high = world.join(queue, credit=1, priority=1)
    world.fill(queue, 1)
    high.settle(0)
    world.fill(queue, 2, 1)
    assert high.payloads() == [b"0", b"1"]
    assert low.payloads() == [b"2"]


def test_equal_priorities_take_turns(world: QueueWorld, queue: Queue) -> None:
    low = world.join(queue)
    first, second = world.join(queue, priority=3), world.join(queue, priority=3)
    world.fill(queue, 6)
    assert low.got == []
    assert sorted([len(first.got), len(second.got)]) == [3, 3]


def test_a_negative_priority_comes_after_those_without(world: QueueWorld, queue: Queue) -> None:
    last = world.join(queue, priority=-1)
    first = world.join(queue, credit=1)
    world.fill(queue, 2)
    assert (first.payloads(), last.payloads()) == ([b"0"], [b"1"])


def test_when_only_one_priority_is_left_they_take_turns_again(world: QueueWorld, queue: Queue) -> None:
    consumers = [world.join(queue), world.join(queue)]
    world.leave(queue, world.join(queue, priority=9))
    world.fill(queue, 4)
    assert [len(consumer.got) for consumer in consumers] == [2, 2]


def test_one_that_joins_waits_until_all_others_had_their_turn(world: QueueWorld, queue: Queue) -> None:
    first, second = world.join(queue), world.join(queue)
    world.fill(queue, 1)
    third = world.join(queue)
    world.fill(queue, 3, 1)
    assert first.payloads() == [b"0", b"2"]
    assert second.payloads() == [b"1"]
    assert third.payloads() == [b"3"]


def test_one_that_joins_a_single_one_does_not_go_before_it(world: QueueWorld, queue: Queue) -> None:
    first = world.join(queue)
    world.fill(queue, 1)
    second = world.join(queue)
    world.fill(queue, 2, 1)
    assert (first.payloads(), second.payloads()) == ([b"0", b"1"], [b"2"])


def test_one_that_joins_equals_of_a_priority_waits_for_its_turn(world: QueueWorld, queue: Queue) -> None:
    world.join(queue)
    first, second = world.join(queue, priority=3), world.join(queue, priority=3)
    world.fill(queue, 1)
    third = world.join(queue, priority=3)
    world.fill(queue, 3, 1)
    assert [consumer.payloads() for consumer in (first, second, third)] == [[b"0", b"2"], [b"1"], [b"3"]]


def test_one_that_leaves_takes_nobody_s_turn(world: QueueWorld, queue: Queue) -> None:
    first, second, third = world.join(queue), world.join(queue), world.join(queue)
    world.fill(queue, 1)
    first.settle(0)
    world.leave(queue, first)
    world.fill(queue, 2, 1)
    assert (second.payloads(), third.payloads()) == ([b"1"], [b"2"])


def test_who_takes_over_as_the_active_one_is_who_came_next(world: QueueWorld) -> None:
    queue = world.declare(single_active=True)
    first, second = world.join(queue), world.join(queue)
    world.fill(queue, 1)
    third = world.join(queue)
    first.settle(0)
    world.leave(queue, first)
    world.fill(queue, 1, 1)
    assert (second.payloads(), third.payloads()) == ([b"1"], [])


def test_the_active_one_stays_when_a_higher_priority_joins(world: QueueWorld) -> None:
    queue = world.declare(single_active=True)
    first = world.join(queue)
    low, high = world.join(queue), world.join(queue, priority=5)
    world.fill(queue, 1)
    assert first.payloads() == [b"0"]
    group = world.group()
    assert [group.is_active(consumer) for consumer in (first, low, high)] == [True, False, False]
    world.leave(queue, first)
    assert [group.is_active(consumer) for consumer in (low, high)] == [False, True]
    assert (low.payloads(), high.payloads()) == ([], [b"0"])


def test_without_single_active_every_member_is_active(world: QueueWorld, queue: Queue) -> None:
    consumers = [world.join(queue), world.join(queue, priority=1)]
    group = world.group()
    assert all(group.is_active(consumer) for consumer in consumers)
    world.leave(queue, consumers[0])
    assert not group.is_active(consumers[0])


def test_the_active_one_waits_for_credit_and_nobody_takes_over(world: QueueWorld) -> None:
    queue = world.declare(single_active=True)
    first, second = world.join(queue, credit=1), world.join(queue)
    world.fill(queue, 2)
    assert (first.payloads(), second.payloads()) == ([b"0"], [])
    first.settle(0, Outcome.ACCEPTED)
    assert first.payloads() == [b"0", b"1"]


def test_an_exclusive_group_is_free_again_when_its_consumer_has_left(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    group = world.group()
    group.is_exclusive = True
    group.withdraw(consumer)
    assert not group.is_exclusive


def test_one_that_withdrew_gets_nothing_and_may_settle_what_it_has(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, credit=1)
    world.fill(queue, 2)
    group = world.group()
    group.withdraw(consumer)
    consumer.settle(0)
    world.loop()
    assert consumer.payloads() == [b"0"]
    assert (group.lag(), consumer.open, queue.consumer_count()) == (1, 0, 0)


def test_one_that_withdrew_may_still_lose_what_it_has(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.fill(queue, 2)
    world.group().withdraw(consumer)
    other = world.join(queue)
    world.group().take_back(consumer)
    assert other.payloads() == [b"0", b"1"]
    assert consumer.open == 0


class AskedConsumer(FakeConsumer):
    asked = 0

    def has_credit(self) -> bool:
        AskedConsumer.asked += 1
        return super().has_credit()


def test_many_answers_among_very_many_consumers_are_one_look_for_the_next() -> None:
    world = QueueWorld()
    queue = world.declare()
    first = world.join(queue, credit=50)
    world.fill(queue, 51)
    for _ in range(CROWD):
        queue.groups["g"].join(AskedConsumer("idle", 0))
    world.loop()
    AskedConsumer.asked = 0
    for at in range(50):
        first.settle(at)
    assert (AskedConsumer.asked, len(first.got)) == (0, 50)
    world.loop()
    assert len(first.got) == 51
    assert AskedConsumer.asked <= 4 * CROWD
