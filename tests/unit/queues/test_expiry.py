"""Records that grow too old, with and without somebody to hand them to."""

from __future__ import annotations

import pytest
from queue_world import QueueWorld

from millstream.queues.queue import Queue

KINDS = ("work", "ephemeral")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def test_without_a_group_they_go_at_the_tick_after_their_time(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=300)
    world.fill(queue, 2)
    world.move(50)
    world.fill(queue, 1)
    world.move(200)
    assert queue.ready() == 3
    world.move(50)
    assert (queue.ready(), queue.counters.expired) == (1, 2)
    world.move(50)
    assert queue.ready() == 0


def test_a_record_behind_one_that_stays_waits_for_it(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind)
    world.publish(queue, b"long", expiry_ms=1000)
    world.publish(queue, b"short", expiry_ms=10)
    world.move(500)
    assert queue.ready() == 2
    world.move(500)
    assert queue.ready() == 0


def test_the_shorter_of_both_times_counts(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=100)
    world.publish(queue, b"x", expiry_ms=1000)
    world.move(100)
    assert queue.counters.expired == 1
    world.publish(queue, b"y", expiry_ms=10)
    world.move(10)
    assert queue.counters.expired == 2


def test_a_new_time_to_live_counts_for_what_is_there(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=60_000)
    world.fill(queue, 1)
    world.move(100)
    world.declare(kind=kind, message_ttl_ms=50)
    world.move(1)
    assert queue.ready() == 0


def test_they_grow_old_while_consumers_have_no_credit(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=100)
    consumer = world.join(queue, credit=1)
    world.fill(queue, 3)
    world.move(100)
    assert consumer.payloads() == [b"0"]
    assert (queue.ready(), queue.unsettled(), queue.counters.expired) == (0, 1, 2)


def test_what_a_consumer_has_does_not_expire(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=100)
    consumer = world.join(queue)
    world.fill(queue, 1)
    world.move(1000)
    consumer.settle(0)
    assert queue.counters.expired == 0


def test_what_has_no_time_at_all_is_for_who_is_ready_for_it(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=-1, dead_letter_exchange="dlx")
    consumer = world.join(queue, credit=1)
    world.fill(queue, 2)
    assert consumer.payloads() == [b"0"]
    assert (queue.ready(), len(world.exchanges.posted)) == (0, 1)
    consumer.settle(0)
    assert consumer.payloads() == [b"0"]


def test_without_a_consumer_what_has_no_time_is_gone_at_once(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, message_ttl_ms=-1, auto_delete=False)
    world.fill(queue, 2)
    assert (queue.ready(), queue.counters.expired) == (0, 2)
    assert world.get(queue).empty == 1
    world.fill(queue, 1)
    assert (queue.ready(), queue.counters.expired) == (0, 3)


def test_who_is_ready_gets_it_when_it_is_safe_however_long_that_takes(world: QueueWorld) -> None:
    queue = world.declare(message_ttl_ms=-1)
    consumer = world.join(queue)
    world.facts.hold()
    world.publish(queue, b"0")
    world.move(100)
    world.facts.release()
    world.safe()
    assert consumer.payloads() == [b"0"]


def test_who_asks_for_one_record_does_not_get_what_has_no_time(world: QueueWorld) -> None:
    queue = world.declare(message_ttl_ms=-1)
    world.facts.hold()
    world.publish(queue, b"0")
    consumer = world.get(queue)
    world.facts.release()
    world.safe()
    assert (consumer.got, consumer.empty) == ([], 1)


def test_a_message_that_gives_itself_no_time_is_treated_the_same(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, auto_delete=False)
    consumer = world.join(queue, credit=1)
    for payload in (b"0", b"1"):
        message = world.message(queue, payload)
        message.expires_ns = world.clock.now_ns
        queue.append(message)
    world.loop()
    assert consumer.payloads() == [b"0"]
    consumer.settle(0)
    assert (consumer.payloads(), queue.counters.expired) == ([b"0"], 1)


def test_messages_without_any_time_are_offered_however_many_come_at_once(
    world: QueueWorld, kind: str
) -> None:
    queue = world.declare(kind=kind, auto_delete=False)
    consumer = world.join(queue, credit=1000)
    for number in range(600):  # more than a queue hands out before others have their turn
        message = world.message(queue, str(number).encode())
        message.expires_ns = world.clock.now_ns
        queue.append(message)
    for _ in range(5):
        world.loop()
    assert (len(consumer.payloads()), queue.counters.expired) == (600, 0)


def retry(world: QueueWorld, kind: str) -> tuple[Queue, Queue]:
    """The pattern: wait here without consumers, then go back to work."""
    work = world.declare("work", kind=kind, auto_delete=False, dead_letter_exchange="wait")
    wait = world.declare(
        "wait", kind=kind, auto_delete=False, message_ttl_ms=200, dead_letter_exchange="work"
    )
    return work, wait


def test_a_queue_to_wait_in_sends_back_what_waited_long_enough(world: QueueWorld, kind: str) -> None:
    work, wait = retry(world, kind)
    world.fill(wait, 2)
    world.move(150)
    world.fill(wait, 1, 2)
    world.move(50)
    assert (wait.ready(), work.ready()) == (1, 2)
    world.move(150)
    assert (wait.ready(), work.ready()) == (0, 3)
    assert world.join(work).payloads() == [b"0", b"1", b"2"]
    assert wait.counters.dead_lettered == 3


def test_what_waited_in_segments_is_read_once_not_at_every_tick(world: QueueWorld) -> None:
    queue = world.declare(message_ttl_ms=1000)
    world.fill(queue, 2)
    world.restart(1.0)
    queue = world.queue()
    reads: list[int] = []
    read = world.segments.read
    world.segments.read = lambda *place: reads.append(1) or read(*place)  # type: ignore[assignment, func-returns-value]
    for _ in range(10):
        world.move(10)
    assert len(reads) == 1
    world.move(1000)
    assert queue.ready() == 0
