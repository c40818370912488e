"""How much is handed out in one iteration, and of whom."""

from __future__ import annotations

from queue_world import FakeConsumer, QueueWorld

from millstream.model.outcome import Outcome
from millstream.queues.queue import Queue
from millstream.queues.scheduler import PER_TURN, PER_TURN_MAX, PER_TURN_MIN, TURN_NS


def make_backlogs(world: QueueWorld, count: int, records: int) -> list[FakeConsumer]:
    """Queues with so many records each, and a consumer that joins each of them in this iteration."""
    queues: list[Queue] = []
    for number in range(count):
        queues.append(world.declare(f"q{number}"))
        world.fill(queues[-1], records)
    consumers = [FakeConsumer("g", 10_000) for _ in queues]
    for queue, consumer in zip(queues, consumers, strict=True):
        queue.get_group("g", b"").join(consumer)
    return consumers


def test_an_iteration_hands_out_a_bounded_number_however_many_queues_have_something() -> None:
    world = QueueWorld()
    consumers = make_backlogs(world, 20, 300)
    assert world.scheduler.work_off()
    handed_out = sum(len(consumer.got) for consumer in consumers)
    assert 0 < handed_out <= PER_TURN
    while world.scheduler.work_off():
        pass
    assert all(len(consumer.got) == 300 for consumer in consumers)


def test_queues_take_turns() -> None:
    world = QueueWorld()
    consumers = make_backlogs(world, 4, 3000)
    world.scheduler.work_off()
    assert max(len(consumer.got) for consumer in consumers) < 1000
    assert min(len(consumer.got) for consumer in consumers) > 0


def test_a_queue_that_waits_goes_before_one_that_has_had_its_slice() -> None:
    world = QueueWorld()
    consumers = make_backlogs(world, 20, 3000)
    world.scheduler.work_off()
    waiting = [consumer for consumer in consumers if not consumer.got]
    assert waiting
    world.scheduler.work_off()
    world.scheduler.work_off()
    assert all(consumer.got for consumer in waiting)


def test_one_queue_gets_all_of_an_iteration_when_no_other_wants_it() -> None:
    world = QueueWorld()
    (consumer,) = make_backlogs(world, 1, 3000)
    world.scheduler.work_off()
    assert len(consumer.got) > PER_TURN - 100


def test_what_became_safe_in_very_many_queues_is_not_handed_out_at_once() -> None:
    world = QueueWorld()
    queues = [world.declare(f"q{number}") for number in range(20)]
    consumers = [world.join(queue, credit=10_000) for queue in queues]
    world.facts.hold()
    for queue in queues:
        world.fill(queue, 300)
    world.facts.release()
    world.scheduler.on_durable(world.store.durable())
    assert sum(len(consumer.got) for consumer in consumers) <= PER_TURN
    world.loop()
    assert all(len(consumer.got) == 300 for consumer in consumers)


def test_settling_does_not_hand_out_more_than_an_iteration_may() -> None:
    world = QueueWorld()
    consumers = make_backlogs(world, 1, 5000)
    world.scheduler.work_off()
    first = consumers[0]
    handed_out = len(first.got)
    for pending in list(first.got[:50]):
        pending.group.settle_many([pending], Outcome.ACCEPTED, "")
    assert len(first.got) - handed_out <= PER_TURN


def test_an_iteration_is_as_much_as_takes_its_time() -> None:
    world = QueueWorld()
    scheduler = world.scheduler
    make_backlogs(world, 1, 5000)
    scheduler.work_off()
    scheduler.adapt(2 * TURN_NS)
    assert scheduler.per_turn == PER_TURN // 2
    scheduler.adapt(TURN_NS // 100)
    assert scheduler.per_turn == PER_TURN
    for _ in range(10):
        scheduler.adapt(1)
    assert scheduler.per_turn == PER_TURN_MAX
    scheduler.adapt(1_000_000 * TURN_NS)
    assert scheduler.per_turn == PER_TURN_MIN


def test_an_iteration_with_little_to_do_tells_nothing() -> None:
    world = QueueWorld()
    make_backlogs(world, 1, 10)
    world.scheduler.work_off()
    world.scheduler.adapt(1)
    assert world.scheduler.per_turn == PER_TURN
