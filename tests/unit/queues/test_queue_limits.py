"""What happens when a queue is full."""

from __future__ import annotations

import pytest
from queue_world import QueueWorld

from millstream.model.errors import Reason
from millstream.model.outcome import Outcome
from millstream.queues.limits import SLICE, cost_of_drop
from millstream.queues.queue import Queue

KINDS = ("work", "ephemeral")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def kept(world: QueueWorld, queue: Queue) -> list[bytes]:
    return [payload for payload, _ in world.letters(queue.name)]


def offer(world: QueueWorld, queue: Queue, payload: bytes) -> Reason:
    """As a publish does."""
    message = world.message(queue, payload)
    reason = queue.find_refusal(message)
    if reason is Reason.SUCCESS:
        queue.append(message)
    world.loop()
    return reason


def test_the_oldest_that_no_consumer_has_goes_to_the_exchange(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=2, overflow="drop_head", dead_letter_exchange="dlx")
    target = world.declare("dlx", kind=kind)
    for number in range(4):
        assert offer(world, queue, b"%d" % number) is Reason.SUCCESS
    assert kept(world, queue) == [b"2", b"3"]
    assert kept(world, target) == [b"0", b"1"]
    assert (queue.counters.dead_lettered, queue.counters.dropped) == (2, 0)


def test_a_refused_one_goes_to_the_exchange_where_asked(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=1, overflow="reject_dead_letter", dead_letter_exchange="dlx")
    target = world.declare("dlx", kind=kind)
    assert [offer(world, queue, b"0"), offer(world, queue, b"1")] == [Reason.SUCCESS, Reason.QUOTA_EXCEEDED]
    assert (kept(world, queue), kept(world, target)) == ([b"0"], [b"1"])
    assert queue.counters.refused == 1


def test_a_plain_refusal_makes_no_dead_letter(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=1, overflow="reject", dead_letter_exchange="dlx")
    assert [offer(world, queue, b"0"), offer(world, queue, b"1")] == [Reason.SUCCESS, Reason.QUOTA_EXCEEDED]
    assert world.exchanges.posted == []


def test_only_what_waits_counts_where_the_definition_says_so(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=2, overflow="drop_head", bounds_ready=True)
    consumer = world.join(queue, credit=3)
    world.fill(queue, 6)
    assert consumer.offsets() == [0, 1, 2]
    assert queue.ready() == 2
    consumer.credit = 10
    world.group().dispatch()
    assert consumer.offsets() == [0, 1, 2, 4, 5]


def test_what_a_consumer_can_take_is_not_dropped_while_it_becomes_safe(world: QueueWorld) -> None:
    queue = world.declare(kind="work", length_max=2, overflow="drop_head", bounds_ready=True)
    consumer = world.join(queue)
    world.facts.hold()
    world.fill(queue, 3)
    partly = world.facts.position()
    world.fill(queue, 7, 3)
    world.facts.advance(partly)
    world.safe()
    assert 0 < len(consumer.offsets()) < 10
    world.facts.release()
    world.safe()
    assert consumer.offsets() == list(range(10))
    assert queue.counters.dropped == 0


def test_what_nobody_can_take_is_dropped_while_the_rest_becomes_safe(world: QueueWorld) -> None:
    queue = world.declare(kind="work", length_max=2, overflow="drop_head", bounds_ready=True)
    consumer = world.join(queue, credit=1)
    world.facts.hold()
    world.fill(queue, 3)
    partly = world.facts.position()
    world.fill(queue, 7, 3)
    world.facts.advance(partly)
    world.safe()
    assert (consumer.offsets(), queue.ready(), queue.counters.dropped) == ([0], 2, 7)


def test_only_what_waits_counts_for_a_refusal_too(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=1, bounds_ready=True)
    consumer = world.join(queue, credit=1)
    offers = [offer(world, queue, b"%d" % number) for number in range(3)]
    assert offers == [Reason.SUCCESS, Reason.SUCCESS, Reason.QUOTA_EXCEEDED]
    assert consumer.payloads() == [b"0"]


def test_only_payloads_that_wait_count_as_bytes(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, bytes_max=30, overflow="drop_head", bounds_ready=True)
    consumer = world.join(queue, credit=1)
    for number in range(5):
        world.publish(queue, b"%d" % number * 10, color="red")
        world.loop()
    assert consumer.payloads() == [b"0" * 10]
    assert queue.ready() == 3
    consumer.settle(0)
    world.loop()
    assert queue.size.bytes == 30
    for _ in range(3):
        consumer.settle(-1)
        world.loop()
    assert queue.size.bytes == 0


@pytest.mark.parametrize("folded", [0.0, 1.0])
def test_payload_bytes_are_right_or_about_right_after_a_restart(world: QueueWorld, folded: float) -> None:
    queue = world.declare(bytes_max=1 << 30, bounds_ready=True)
    for _ in range(10):
        world.publish(queue, b"x" * 10, producer_id="p" * 20, sequence=queue.next + 1)
    assert queue.size.bytes == 100
    world.restart(folded)
    queue = world.queue()
    assert queue.size.bytes == 100 if folded == 0 else queue.size.bytes >= 100
    world.join(queue).settle_all()
    world.loop()
    assert queue.size.bytes == 0


def test_a_new_way_to_count_counts_what_is_there(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind)
    world.fill(queue, 3)
    before = int(queue.size.bytes)
    world.declare(kind=kind, bounds_ready=True)
    assert queue.size.bytes == 3
    world.declare(kind=kind)
    assert queue.size.bytes == before


def test_full_queues_that_are_each_others_exchange_come_to_rest(world: QueueWorld, kind: str) -> None:
    fields = {"kind": kind, "length_max": 2, "overflow": "drop_head", "auto_delete": False}
    first = world.declare("a", dead_letter_exchange="b", **fields)
    second = world.declare("b", dead_letter_exchange="a", **fields)
    for number in range(50):
        world.fill(first, 5, number * 5)
        world.fill(second, 5, number * 5)
        assert (first.ready(), second.ready()) == (2, 2)


def test_a_queue_that_is_its_own_exchange_does_not_spin(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=2, overflow="drop_head", dead_letter_exchange="q")
    world.fill(queue, 20)
    assert kept(world, queue) == [b"18", b"19"]
    assert queue.counters.dropped == 18


def test_a_long_row_of_full_queues_is_followed_only_so_far(world: QueueWorld) -> None:
    for number in range(100):
        queue = world.declare(
            f"q{number}",
            length_max=1,
            overflow="reject_dead_letter",
            dead_letter_exchange=f"q{number + 1}",
        )
        world.publish(queue, b"there")
    assert offer(world, world.queue("q0"), b"x") is Reason.QUOTA_EXCEEDED
    assert len(world.exchanges.posted) <= 16


def test_queues_of_dead_letters_and_exchanges_mixed_come_to_rest(world: QueueWorld, kind: str) -> None:
    fields = {"kind": kind, "length_max": 2}
    first = world.declare("a", overflow="drop_head", dead_letter_exchange="b", **fields)
    world.declare("b", overflow="dead_letter", dead_letter="a", **fields)
    world.fill(first, 20)
    assert world.queue("a").depth() >= 2


def test_what_came_back_is_the_oldest_that_waits(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=1, overflow="drop_head", bounds_ready=True, backoff_ms=0)
    consumer = world.join(queue, credit=3)
    world.fill(queue, 3)
    world.publish(queue, b"3")
    world.loop()
    consumer.credit = 0
    consumer.settle(1, Outcome.MODIFIED)
    world.publish(queue, b"4")
    world.loop()
    late = world.get(queue)
    assert late.payloads() == [b"4"]
    assert queue.counters.dropped == 2


def test_what_consumers_have_stays_however_much_is_dropped_behind_it(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, length_max=2, overflow="drop_head", bounds_ready=True)
    consumer = world.join(queue, credit=3)
    world.fill(queue, 10)
    assert consumer.payloads() == [b"0", b"1", b"2"]
    consumer.credit = 5
    world.move(50)
    assert consumer.payloads() == [b"0", b"1", b"2", b"8", b"9"]


def test_a_queue_with_very_many_groups_makes_room_a_few_records_at_a_time(world: QueueWorld) -> None:
    """Each of them lets go of every record."""
    queue = world.declare(kind="ephemeral", length_max=10, overflow="drop_head")
    for number in range(1000):
        queue.get_group(f"g{number}", b"")
    for number in range(200):
        queue.append(world.message(queue, b"%d" % number))
    assert queue.depth() == 200
    before = queue.depth()
    turns = 0
    while queue.depth() > 10:
        world.scheduler.work_off()
        assert before - queue.depth() <= SLICE // cost_of_drop(queue)
        before = queue.depth()
        turns += 1
    assert turns >= 10
    assert queue.counters.dropped == 190
