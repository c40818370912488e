"""What a queue says about itself: how much waits, how much is out, who is there, since when nobody is."""

from __future__ import annotations

import pytest
from queue_world import QueueWorld, purge

from millstream.model.outcome import Outcome
from millstream.queues.consumers import AMQP_GROUP

KINDS = ("work", "ephemeral")


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_and_what_is_out_are_told_apart(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind)
    world.fill(queue, 5)
    assert (queue.ready(), queue.unsettled(), queue.consumer_count()) == (5, 0, 0)
    consumer = world.join(queue, AMQP_GROUP, credit=2)
    assert (queue.ready(), queue.unsettled(), queue.consumer_count()) == (3, 2, 1)
    consumer.credit = 0
    consumer.settle(1)
    assert (queue.ready(), queue.unsettled()) == (3, 1)
    consumer.settle(0, Outcome.RELEASED)
    assert (queue.ready(), queue.unsettled()) == (4, 0)


def test_what_is_not_safe_yet_counts_as_waiting(world: QueueWorld) -> None:
    queue = world.declare()
    world.facts.hold()
    world.publish(queue, b"x")
    assert (queue.ready(), queue.visible) == (1, 0)


def test_what_waits_for_amqp_is_not_what_waits_for_others(world: QueueWorld) -> None:
    queue = world.declare()
    other = world.join(queue, "other", credit=0)
    world.fill(queue, 4)
    assert queue.ready() == 4
    consumer = world.join(queue, AMQP_GROUP, credit=4)
    consumer.settle_all()
    assert queue.ready() == 0
    other.credit = 1
    world.group("other").dispatch()
    assert queue.unsettled() == 1
    assert queue.consumer_count() == 2


def test_a_stream_counts_what_it_keeps(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    consumer = world.join(queue, AMQP_GROUP)
    world.fill(queue, 3)
    consumer.settle_all()
    assert queue.ready() == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_group", [True, False])
def test_a_purge_tells_how_many_waited(world: QueueWorld, kind: str, has_group: bool) -> None:
    queue = world.declare(kind=kind)
    if has_group:
        consumer = world.join(queue, AMQP_GROUP, credit=2)
    world.fill(queue, 6)
    world.publish(queue, b"urgent", priority=3)
    assert purge(queue) == (5 if has_group else 7)
    assert queue.ready() == 0
    assert queue.unsettled() == (2 if has_group else 0)
    if has_group:
        consumer.settle_all()
        world.loop()
        assert (consumer.got, queue.depth()) == ([], 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_that_nobody_uses_goes_when_its_time_is_over(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, expires_ms=1000)
    world.fill(queue, 1)
    world.move(999)
    assert not queue.is_removed
    world.move(1)
    assert queue.is_removed
    assert world.catalog.find("q") is None
    assert world.exchanges.removed == ["q"]


def test_whatever_has_to_do_with_it_keeps_it(world: QueueWorld) -> None:
    queue = world.declare(expires_ms=1000, auto_delete=False)
    world.move(900)
    queue.touch()
    world.move(900)
    world.get(queue)
    world.move(900)
    consumer = world.join(queue)
    world.move(5000)
    world.leave(queue, consumer)
    world.move(999)
    assert not queue.is_removed
    world.move(1)
    assert queue.is_removed


def test_publishing_alone_does_not_keep_it(world: QueueWorld) -> None:
    queue = world.declare(expires_ms=1000)
    world.move(600)
    world.fill(queue, 1)
    world.move(400)
    assert queue.is_removed


def test_after_a_restart_the_time_begins_anew(world: QueueWorld) -> None:
    world.declare(expires_ms=1000)
    world.restart(down_ms=60_000)
    world.move(999)
    assert world.catalog.find("q") is not None
    world.move(1)
    assert world.catalog.find("q") is None


@pytest.mark.parametrize("kind", KINDS)
def test_only_one_that_says_so_goes_with_its_last_consumer(world: QueueWorld, kind: str) -> None:
    stays = world.declare("stays", kind=kind, auto_delete=False)
    goes = world.declare("goes", kind=kind, auto_delete=True)
    for queue in (stays, goes):
        first, second = world.join(queue), world.join(queue)
        world.leave(queue, first)
        assert not queue.is_removed
        world.leave(queue, second)
    assert (stays.is_removed, goes.is_removed) == (False, True)


def test_one_that_goes_with_its_last_consumer_waits_for_the_first(world: QueueWorld) -> None:
    queue = world.declare(auto_delete=True)
    world.fill(queue, 1)
    world.move(100_000)
    world.get(queue).settle(0)
    assert not queue.is_removed


def test_a_queue_in_memory_hands_out_the_message_it_was_given(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    consumer = world.join(queue)
    message = world.message(queue, b"x", color="red")
    queue.append(message)
    world.loop()
    assert consumer.got[0].message is message
    assert world.facts.log == []


def test_a_queue_in_memory_lets_go_of_what_is_settled(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    consumer = world.join(queue, credit=10_000)
    world.fill(queue, 300)
    kept = queue.memtable.get_message(299)
    assert queue.size.bytes == sum(int(queue.memtable.size_of(offset)) for offset in range(300))
    consumer.settle_all()
    world.loop()
    assert queue.size.bytes == 0
    assert queue.memtable.first == 256
    assert queue.memtable.get_message(299) is not kept
    assert queue.find_record(299) == b""
    assert queue.find_record(3) == b""
