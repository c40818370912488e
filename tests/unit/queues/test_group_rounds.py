"""What queues do in one turn is bounded, whatever queues, groups, consumers and records there are; and nobody is passed over."""

from __future__ import annotations

import pytest
from queue_world import FakeConsumer, QueueWorld

from millstream.model.outcome import Outcome
from millstream.queues.dead_letter import DELIVERIES_PER_LETTER
from millstream.queues.delayed import FILLED_MAX
from millstream.queues.group import PASSED_MAX
from millstream.queues.scheduler import PER_TURN


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def handed_out(consumers: list[FakeConsumer]) -> int:
    return sum(len(consumer.got) for consumer in consumers)


def test_many_groups_of_one_queue_share_the_turns(world: QueueWorld) -> None:
    queue = world.declare()
    consumers = [world.join(queue, f"g{number}", credit=1000) for number in range(100)]
    for number in range(200):
        world.publish(queue, b"%d" % number)
    turns = 0
    while True:
        before = handed_out(consumers)
        is_more = world.scheduler.work_off()
        assert handed_out(consumers) - before <= PER_TURN
        turns += 1
        if not is_more:
            break
    assert turns >= 100 * 200 // PER_TURN
    assert {len(consumer.got) for consumer in consumers} == {200}


def test_a_round_that_was_cut_short_goes_on_where_it_stopped(world: QueueWorld) -> None:
    """The first groups are always ready for more; the last one gets its first record all the same."""
    queue = world.declare()
    consumers = [world.join(queue, f"g{number}", credit=100_000) for number in range(40)]
    number = 0
    for _ in range(5):
        for _ in range(400):
            world.publish(queue, b"%d" % number)
            number += 1
        world.scheduler.work_off()
    assert all(consumer.got for consumer in consumers)
    world.loop()
    assert {len(consumer.got) for consumer in consumers} == {2000}


def test_what_comes_in_the_middle_of_a_round_reaches_the_groups_that_had_their_turn(
    world: QueueWorld,
) -> None:
    queue = world.declare()
    consumers = [world.join(queue, f"g{number}", credit=100_000) for number in range(40)]
    for number in range(300):
        world.publish(queue, b"%d" % number)
    assert world.scheduler.work_off()
    world.publish(queue, b"last")
    world.loop()
    assert [consumer.payloads()[-1] for consumer in consumers] == [b"last"] * 40


def test_many_queues_share_the_turns(world: QueueWorld) -> None:
    queues = [world.declare(f"q{number}") for number in range(30)]
    consumers = [world.join(queue, credit=10_000) for queue in queues]
    for queue in queues:
        for number in range(500):
            world.publish(queue, b"%d" % number)
    assert world.scheduler.work_off()
    assert handed_out(consumers) <= PER_TURN
    served = [bool(consumer.got) for consumer in consumers]
    assert served == sorted(served, reverse=True)  # the others are next
    world.scheduler.work_off()
    assert sum(bool(consumer.got) for consumer in consumers) > sum(served)
    world.loop()
    assert handed_out(consumers) == 15_000


def test_filters_that_match_nothing_are_carried_out_in_turns(world: QueueWorld) -> None:
    queue = world.declare()
    for number in range(2000):
        world.publish(queue, b"%d" % number, b"a")
    world.loop()
    groups = []
    for number in range(60):
        group = queue.get_group(f"g{number}", b"b%d" % number)
        group.join(FakeConsumer())
        groups.append(group)
    while True:
        before = sum(int(group.cursor) for group in groups)
        is_more = world.scheduler.work_off()
        assert sum(int(group.cursor) for group in groups) - before <= PER_TURN + PASSED_MAX
        if not is_more:
            break
    assert {int(group.cursor) for group in groups} == {2000}


def test_very_many_records_that_are_too_old_become_dead_letters_a_few_at_a_time(world: QueueWorld) -> None:
    queues = [world.declare(f"q{number}", message_ttl_ms=1000, dead_letter="dead") for number in range(20)]
    dead = world.declare("dead")
    for queue in queues:
        for number in range(200):
            world.publish(queue, b"%d" % number)
    world.loop()
    world.clock.now_ns += 2_000_000_000
    ticks = 0
    while dead.next < 4000:
        before = dead.next
        world.scheduler.begin_turn()
        world.catalog.on_tick(world.clock.now_ns)
        assert dead.next - before <= PER_TURN // DELIVERIES_PER_LETTER + 32
        ticks += 1
    assert 10 <= ticks <= 40


def test_deliveries_that_were_held_too_long_come_back_a_slice_at_a_time(world: QueueWorld) -> None:
    queue = world.declare(visibility_ms=1000)
    consumer = world.join(queue, credit=5000)
    world.fill(queue, 3000)
    consumer.is_connected = False
    world.clock.now_ns += 2_000_000_000
    world.catalog.on_tick(world.clock.now_ns)
    assert len(world.group().pending) == 3000 - PASSED_MAX
    world.move(50)
    world.move(50)
    assert len(world.group().pending) == 0


def test_who_asks_for_one_record_is_not_told_that_there_is_none_before_all_were_looked_at(
    world: QueueWorld,
) -> None:
    """Records out of turn that are settled already are passed over in slices."""
    queue = world.declare(priority_max=9)
    asking = world.join(queue, credit=5000)
    for number in range(3000):
        world.publish(queue, b"%d" % number, priority=5)
    world.loop()
    asking.settle_all(Outcome.RELEASED)
    asking.is_connected = False
    world.group().finish(0, 2998)
    world.leave(queue, asking)
    getter = world.get(queue)
    world.loop()
    assert (getter.payloads(), getter.empty) == ([b"2999"], 0)


def test_a_group_that_begins_takes_over_very_many_records_out_of_turn_in_parts(world: QueueWorld) -> None:
    queue = world.declare(priority_max=10)
    count = 2 * FILLED_MAX + 10
    for number in range(count):
        world.publish(queue, b"%d" % number, priority=1 + number % 2)
    world.loop()
    queue.get_group("g", b"").join(consumer := FakeConsumer("c", 2 * count))
    for part in range(2):
        queue.dispatch()
        assert (queue.groups["g"].delayed.is_filling(), consumer.got) == (True, []), part
        assert world.scheduler.is_awake(queue)
    world.loop()
    odd = list(range(1, count, 2))
    assert consumer.offsets() == odd + list(range(0, count, 2))


def test_who_asks_for_one_record_of_a_new_group_waits_until_it_has_taken_over_what_there_is(
    world: QueueWorld,
) -> None:
    queue = world.declare(priority_max=10)
    for number in range(FILLED_MAX + 1):
        world.publish(queue, b"%d" % number, priority=1)
    world.loop()
    consumer = world.get(queue)
    assert (consumer.got, consumer.empty) == ([], 0)
    world.loop()
    assert consumer.offsets() == [0]
