"""One record on demand, for a consumer that is no member; and records that come back to their place."""

from __future__ import annotations

import pytest
from queue_world import FakeConsumer, QueueWorld

from millstream.model.outcome import Outcome
from millstream.queues.queue import Queue

KINDS = ("work", "ephemeral")


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def declare(world: QueueWorld, kind: str = "work") -> Queue:
    return world.declare(kind=kind, auto_delete=False, backoff_ms=0, max_deliveries=0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_record_is_handed_to_who_asks_for_one(world: QueueWorld, kind: str) -> None:
    queue = declare(world, kind)
    world.fill(queue, 2)
    first, second, third = (world.get(queue) for _ in range(3))
    assert (first.payloads(), second.payloads(), third.payloads()) == ([b"0"], [b"1"], [])
    assert (first.empty, second.empty, third.empty) == (0, 0, 1)
    assert (queue.ready(), queue.unsettled(), queue.consumer_count()) == (0, 2, 0)
    first.settle(0)
    second.settle(0, Outcome.MODIFIED)
    assert (queue.ready(), queue.unsettled()) == (1, 0)
    assert world.get(queue).got[0].attempts == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_queue_says_so_at_once(world: QueueWorld, kind: str) -> None:
    assert world.get(declare(world, kind)).empty == 1


def test_what_was_appended_before_is_waited_for_until_it_is_safe(world: QueueWorld) -> None:
    queue = declare(world)
    world.facts.hold()
    world.publish(queue, b"0")
    consumer = world.get(queue)
    world.publish(queue, b"1")
    assert (consumer.got, consumer.empty) == ([], 0)
    world.facts.release()
    world.safe()
    assert consumer.payloads() == [b"0"]
    assert queue.ready() == 1


def test_it_is_told_empty_when_another_gets_what_it_waited_for(world: QueueWorld) -> None:
    queue = declare(world)
    world.facts.hold()
    world.publish(queue, b"0")
    first, second = world.get(queue), world.get(queue)
    world.facts.release()
    world.safe()
    assert (first.payloads(), second.got, second.empty) == ([b"0"], [], 1)


def test_an_old_record_comes_when_it_is_read(world: QueueWorld) -> None:
    queue = declare(world)
    world.fill(queue, 5)
    world.restart(1.0)
    world.segments.is_slow = True
    consumer = world.get(world.queue())
    assert (consumer.got, consumer.empty) == ([], 0)
    world.segments.answer()
    assert consumer.payloads() == [b"0"]


@pytest.mark.parametrize("is_left", [True, False])
def test_one_that_went_while_it_waited_gets_nothing(world: QueueWorld, is_left: bool) -> None:
    queue = declare(world)
    world.facts.hold()
    world.publish(queue, b"0")
    consumer = world.get(queue)
    if is_left:
        world.group().leave(consumer)
    else:
        consumer.is_connected = False
    world.facts.release()
    world.safe()
    assert (consumer.got, consumer.empty, queue.ready()) == ([], 0, 1)


def test_what_it_has_open_goes_back_when_it_leaves(world: QueueWorld) -> None:
    queue = declare(world)
    world.fill(queue, 3)
    consumer = FakeConsumer("g")
    group = queue.get_group("g", b"")
    for _ in range(3):
        group.get(consumer)
    group.leave(consumer)
    assert (consumer.open, queue.ready()) == (0, 3)
    assert world.join(queue).payloads() == [b"0", b"1", b"2"]


def test_who_waits_is_told_when_the_queue_goes(world: QueueWorld) -> None:
    queue = declare(world)
    world.facts.hold()
    world.publish(queue, b"0")
    consumer = world.get(queue)
    world.catalog.delete(queue)
    assert consumer.empty == 1


def test_one_record_of_many_that_a_filter_or_age_passes_over_is_found(world: QueueWorld) -> None:
    queue = world.declare()
    for number in range(3000):
        world.publish(queue, b"%d" % number, expiry_ms=5)
    world.publish(queue, b"last")
    world.clock.now_ns += 10_000_000
    consumer = world.get(queue)
    world.loop()
    assert (consumer.payloads(), consumer.empty) == ([b"last"], 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_comes_back_stands_before_the_later_ones(world: QueueWorld, kind: str) -> None:
    queue = declare(world, kind)
    consumer = world.join(queue, credit=3)
    world.fill(queue, 6)
    consumer.credit = 0
    for at in (2, 0, 1):
        consumer.settle(at, Outcome.MODIFIED)
    consumer.got = []
    consumer.credit = 6
    world.group().dispatch()
    assert consumer.offsets() == [0, 1, 2, 3, 4, 5]
    assert [pending.attempts for pending in consumer.got] == [2, 2, 2, 1, 1, 1]


def test_a_released_record_does_not_count(world: QueueWorld) -> None:
    queue = declare(world)
    consumer = world.join(queue, credit=1)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.RELEASED)
    assert len(consumer.got) == 2
    assert consumer.got[-1].attempts == 1


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_leaves_gives_back_everything_in_order(world: QueueWorld, kind: str) -> None:
    queue = declare(world, kind)
    gone = world.join(queue, credit=4)
    other = world.join(queue, credit=0)
    world.fill(queue, 6)
    other.credit = 10
    world.leave(queue, gone)
    assert other.offsets() == [0, 1, 2, 3, 4, 5]
    assert [pending.attempts for pending in other.got] == [2, 2, 2, 2, 1, 1]


def test_with_priorities_it_comes_back_to_its_place_among_them(world: QueueWorld) -> None:
    queue = world.declare(backoff_ms=0, max_deliveries=0)
    consumer = world.join(queue, credit=1)
    world.publish(queue, b"low")
    world.loop()
    world.publish(queue, b"high", priority=5)
    world.publish(queue, b"lower")
    world.loop()
    consumer.settle(0, Outcome.MODIFIED)
    assert consumer.payloads() == [b"low", b"high"]
    consumer.settle(1, Outcome.MODIFIED)
    assert consumer.payloads() == [b"low", b"high", b"high"]
    consumer.settle(2)
    consumer.settle(3)
    assert consumer.payloads()[3:] == [b"low", b"lower"]


def test_many_answers_count_before_anything_is_handed_out(world: QueueWorld) -> None:
    queue = declare(world)
    consumer = world.join(queue, credit=3)
    world.fill(queue, 4)
    answered, consumer.got = consumer.got, []
    world.group().settle_many([answered[2], answered[0]], Outcome.MODIFIED, "")
    assert consumer.offsets() == [0, 2]
    world.group().settle_many([answered[1], *consumer.got], Outcome.ACCEPTED, "")
    assert consumer.offsets() == [0, 2, 3]
    assert queue.depth() == 1
