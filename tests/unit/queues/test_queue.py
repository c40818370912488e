"""A queue: what it takes, in which order it hands it out, and what it lets go by policy."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeRun
from queue_world import QueueWorld, purge

from millstream.model.errors import Reason
from millstream.model.outcome import Outcome
from millstream.model.outlet import Target
from millstream.queues.purge import RECORDS_PER_STEP, Purge
from millstream.queues.queue import Queue
from millstream.storage.memory_store import MemoryStore
from millstream.storage.records.stored_queue import PRODUCERS_MAX


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def kept(world: QueueWorld, queue: Queue) -> list[bytes]:
    """What a new group would get."""
    return world.join(queue, "looking", credit=10_000).payloads()


# ------------------------------------------------------------------------ kinds


@pytest.mark.parametrize("kind", ["work", "stream"])
def test_records_survive_a_restart(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind)
    world.fill(queue, 3)
    world.restart()
    assert world.queue().next == 3
    assert kept(world, world.queue()) == [b"0", b"1", b"2"]


def test_an_ephemeral_queue_writes_nothing(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    consumer = world.join(queue)
    world.facts.hold()
    world.fill(queue, 2)
    consumer.settle(0, Outcome.RELEASED)
    consumer.settle_all()
    world.loop()
    assert consumer.payloads() == []
    assert world.facts.log == []


def test_an_ephemeral_queue_goes_with_its_last_consumer(world: QueueWorld) -> None:
    queue = world.declare(kind="ephemeral")
    first, second = world.join(queue, "a"), world.join(queue, "b")
    world.leave(queue, first, "a")
    assert world.catalog.find("q") is queue
    world.leave(queue, second, "b")
    assert world.catalog.find("q") is None
    assert queue.is_removed


def test_a_work_queue_stays_without_consumers(world: QueueWorld) -> None:
    queue = world.declare()
    world.leave(queue, world.join(queue))
    assert world.catalog.find("q") is queue


def test_a_stream_keeps_what_was_read(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    consumer = world.join(queue)
    world.fill(queue, 3)
    consumer.settle_all()
    world.move(3_600_000)
    assert (queue.depth(), queue.first) == (3, 0)
    assert kept(world, queue) == [b"0", b"1", b"2"]


def test_offsets_go_on_where_they_were_after_a_restart(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 3)
    consumer.settle_all()
    world.loop()
    world.restart(1.0)
    assert world.publish(world.queue(), b"x") == 3


def test_a_record_that_was_not_safe_is_gone_and_its_offset_free(world: QueueWorld) -> None:
    queue = world.declare()
    world.fill(queue, 1)
    world.facts.hold()
    world.fill(queue, 2)
    world.restart()
    assert world.publish(world.queue(), b"new") == 1


def test_it_works_on_a_store_in_memory() -> None:
    world = QueueWorld(MemoryStore())
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 2)
    assert consumer.payloads() == [b"0", b"1"]


def test_a_run_is_taken_apart(world: QueueWorld) -> None:
    queue = world.declare()
    messages = [world.message(queue, payload) for payload in (b"a", b"b")]
    queue.deliver_run(FakeRun(messages), Target(queue, 2, True, (), b""))
    assert kept(world, queue) == [b"a", b"b"]


# --------------------------------------------------------- priority and delay


def test_the_more_urgent_comes_first_and_equals_in_order(world: QueueWorld) -> None:
    queue = world.declare()
    for payload, priority in ((b"0", 0), (b"5", 5), (b"9", 9), (b"5b", 5), (b"0b", 0)):
        world.publish(queue, payload, priority=priority)
    world.loop()
    assert kept(world, queue) == [b"9", b"5", b"5b", b"0", b"0b"]


def test_priorities_above_the_highest_are_the_highest(world: QueueWorld) -> None:
    queue = world.declare(priority_max=3)
    for payload, priority in ((b"a", 3), (b"b", 200), (b"c", 99_999)):
        world.publish(queue, payload, priority=priority)
    world.loop()
    assert kept(world, queue) == [b"a", b"b", b"c"]


def test_a_queue_without_priorities_keeps_the_order(world: QueueWorld) -> None:
    queue = world.declare(priority_max=0)
    world.publish(queue, b"a")
    world.publish(queue, b"b", priority=9)
    world.loop()
    assert kept(world, queue) == [b"a", b"b"]


def test_a_delayed_message_comes_when_its_time_is_over(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.publish(queue, b"later", delay_ms=500)
    world.publish(queue, b"now")
    world.loop()
    world.move(499)
    assert consumer.payloads() == [b"now"]
    world.move(1)
    assert consumer.payloads() == [b"now", b"later"]


@pytest.mark.parametrize("folded", [0.0, 1.0])
def test_priority_and_delay_survive_a_restart(world: QueueWorld, folded: float) -> None:
    queue = world.declare()
    world.publish(queue, b"plain")
    world.publish(queue, b"urgent", priority=5)
    world.publish(queue, b"later", delay_ms=20_000)
    world.restart(folded, down_ms=15_000)
    consumer = world.join(world.queue())
    assert consumer.payloads() == [b"urgent", b"plain"]
    world.move(4999)
    assert len(consumer.got) == 2
    world.move(1)
    assert consumer.payloads()[2:] == [b"later"]


def test_a_delayed_message_in_segments_that_is_damaged_does_not_hold_up_the_group(world: QueueWorld) -> None:
    queue = world.declare()
    world.publish(queue, b"lost", priority=5)
    world.publish(queue, b"there")
    world.restart(1.0)
    queue = world.queue()
    del world.segments.records[int(queue.number)][0]
    consumer = world.join(queue)
    consumer.settle_all()
    assert world.group().lag() == 0


# ------------------------------------------------------------ de-duplication


def test_a_repeat_of_a_producer_is_dropped_and_counted(world: QueueWorld) -> None:
    queue = world.declare()
    assert world.publish(queue, b"1", producer_id="p", sequence=1) == 0
    assert world.publish(queue, b"1", producer_id="p", sequence=1) == -1
    assert world.publish(queue, b"0", producer_id="p", sequence=0) == -1
    assert world.publish(queue, b"2", producer_id="p", sequence=2) == 1
    assert world.publish(queue, b"1", producer_id="other", sequence=1) == 2
    assert queue.counters.repeated == 2


@pytest.mark.parametrize("folded", [0.0, 1.0])
def test_repeats_are_known_after_a_restart(world: QueueWorld, folded: float) -> None:
    queue = world.declare()
    world.publish(queue, b"1", producer_id="p", sequence=7)
    world.restart(folded)
    assert world.publish(world.queue(), b"1", producer_id="p", sequence=7) == -1


def test_a_repeat_of_what_the_crash_forgot_is_taken(world: QueueWorld) -> None:
    queue = world.declare()
    world.facts.hold()
    world.publish(queue, b"1", producer_id="p", sequence=7)
    world.restart()
    world.declare()
    assert world.publish(world.queue(), b"1", producer_id="p", sequence=7) == 0


@pytest.mark.parametrize(
    "words", [{"producer_id": "p"}, {"producer_id": "p", "sequence": "x"}, {"sequence": 1}]
)
def test_without_producer_and_number_nothing_is_a_repeat(world: QueueWorld, words: dict[str, Any]) -> None:
    queue = world.declare()
    assert [world.publish(queue, b"x", **words) for _ in range(2)] == [0, 1]


def test_long_producers_that_begin_alike_are_told_apart(world: QueueWorld) -> None:
    queue = world.declare()
    assert world.publish(queue, b"1", producer_id="é" * 200 + "a", sequence=1) == 0
    assert world.publish(queue, b"1", producer_id="é" * 200 + "b", sequence=1) == 1
    world.restart(1.0)
    assert world.publish(world.queue(), b"1", producer_id="é" * 200 + "b", sequence=1) == -1


def test_the_producer_silent_for_longest_is_forgotten_first(world: QueueWorld) -> None:
    queue = world.declare()
    for number in range(PRODUCERS_MAX):
        world.publish(queue, b"", producer_id=f"p{number}", sequence=1)
    world.publish(queue, b"", producer_id="p0", sequence=2)
    world.publish(queue, b"", producer_id="new", sequence=1)
    assert len(queue.producers) == PRODUCERS_MAX
    assert world.publish(queue, b"", producer_id="p0", sequence=2) == -1
    assert world.publish(queue, b"", producer_id="p1", sequence=1) >= 0


# -------------------------------------------------------------------- limits


def refusal(world: QueueWorld, queue: Queue, payload: bytes = b"x", **words: Any) -> Reason:
    return queue.find_refusal(world.message(queue, payload, **words))


def test_a_full_queue_refuses_and_counts_it(world: QueueWorld) -> None:
    queue = world.declare(length_max=2)
    consumer = world.join(queue)
    world.fill(queue, 2)
    assert refusal(world, queue) is Reason.QUOTA_EXCEEDED
    assert queue.counters.refused == 1
    consumer.settle(0)
    assert refusal(world, queue) is Reason.SUCCESS


def test_a_repeat_to_a_full_queue_is_not_refused(world: QueueWorld) -> None:
    queue = world.declare(length_max=1)
    world.publish(queue, b"x", producer_id="p", sequence=1)
    assert refusal(world, queue, producer_id="p", sequence=1) is Reason.SUCCESS
    assert refusal(world, queue, producer_id="p", sequence=2) is Reason.QUOTA_EXCEEDED


def test_bytes_max_holds(world: QueueWorld) -> None:
    queue = world.declare(bytes_max=10_000)
    while refusal(world, queue, b"x" * 1000) is Reason.SUCCESS:
        world.publish(queue, b"x" * 1000)
    assert 8 <= queue.depth() <= 10
    assert queue.size.bytes <= 10_000
    assert refusal(world, queue, b"") is Reason.SUCCESS


def test_bytes_are_given_back_once_for_all_groups(world: QueueWorld) -> None:
    queue = world.declare(bytes_max=10_000)
    consumers = [world.join(queue, name) for name in ("a", "b")]
    for _ in range(5):
        world.publish(queue, b"x" * 1000)
        world.loop()
        for consumer in consumers:
            consumer.settle_all()
        world.loop()
        assert queue.size.bytes == 0


@pytest.mark.parametrize("folded", [0.0, 0.5, 1.0])
def test_bytes_are_about_right_after_a_restart(world: QueueWorld, folded: float) -> None:
    queue = world.declare()
    consumer = world.join(queue, credit=10)
    for _ in range(20):
        world.publish(queue, b"x" * 1000)
    world.loop()
    consumer.settle_all()
    world.loop()
    before = int(queue.size.bytes)
    world.restart(folded)
    assert abs(int(world.queue().size.bytes) - before) <= before // 100
    consumer = world.join(world.queue())
    consumer.settle_all()
    world.loop()
    assert world.queue().size.bytes == 0


def test_drop_head_makes_room_for_the_newest(world: QueueWorld) -> None:
    queue = world.declare(length_max=2, overflow="drop_head")
    world.fill(queue, 5)
    assert refusal(world, queue) is Reason.SUCCESS
    assert queue.counters.dropped == 3
    assert kept(world, queue) == [b"3", b"4"]


def test_drop_head_spares_what_a_consumer_has(world: QueueWorld) -> None:
    queue = world.declare(length_max=3, overflow="drop_head")
    consumer = world.join(queue, credit=1)
    world.fill(queue, 1)
    world.fill(queue, 4, 1)
    assert consumer.payloads() == [b"0"]
    consumer.credit = 10
    consumer.settle(0)
    assert consumer.payloads() == [b"0", b"3", b"4"]


def test_drop_head_by_bytes(world: QueueWorld) -> None:
    queue = world.declare(bytes_max=5000, overflow="drop_head")
    for number in range(10):
        world.publish(queue, b"%d" % number * 1000)
    world.loop()
    assert queue.size.bytes <= 5000
    assert kept(world, queue)[-1] == b"9" * 1000


def test_a_message_larger_than_the_queue_is_refused_whatever_the_policy(world: QueueWorld) -> None:
    queue = world.declare(bytes_max=1000, overflow="drop_head")
    world.fill(queue, 2)
    assert refusal(world, queue, b"x" * 2000) is Reason.QUOTA_EXCEEDED
    assert queue.depth() == 2


@pytest.mark.parametrize("is_read", [False, True])
def test_drop_head_on_a_stream_trims_its_begin(world: QueueWorld, is_read: bool) -> None:
    queue = world.declare(kind="stream", length_max=3, overflow="drop_head")
    if is_read:
        world.join(queue).answers = Outcome.ACCEPTED
    world.fill(queue, 10)
    assert (queue.first, queue.next, queue.depth()) == (7, 10, 3)


def test_what_was_dropped_stays_dropped_after_a_restart(world: QueueWorld) -> None:
    queue = world.declare(length_max=2, overflow="drop_head")
    world.join(queue, credit=0)
    world.fill(queue, 5)
    world.restart()
    assert world.join(world.queue()).payloads() == [b"3", b"4"]


# --------------------------------------------------------------------- purge


def test_a_purge_spares_what_a_consumer_has(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue, credit=1)
    world.fill(queue, 5)
    assert purge(queue) == 4
    assert queue.depth() == 1
    consumer.settle(0)
    assert queue.depth() == 0
    world.loop()
    world.restart()
    assert world.join(world.queue()).payloads() == []


def test_a_purge_without_a_group_empties_the_queue(world: QueueWorld) -> None:
    queue = world.declare()
    world.fill(queue, 5)
    assert purge(queue) == 5
    assert (queue.depth(), queue.size.bytes) == (0, 0)
    world.publish(queue, b"new")
    world.restart()
    assert kept(world, world.queue()) == [b"new"]


def test_a_purge_takes_what_is_delayed_urgent_or_came_back(world: QueueWorld) -> None:
    queue = world.declare(backoff_ms=100)
    consumer = world.join(queue, credit=1)
    world.publish(queue, b"failed")
    world.loop()
    consumer.credit = 0
    consumer.settle(0, Outcome.MODIFIED)
    world.publish(queue, b"later", delay_ms=100)
    world.publish(queue, b"urgent", priority=9)
    assert purge(queue) == 3
    consumer.credit = 10
    world.move(1000)
    assert consumer.payloads() == [b"failed"]


@pytest.mark.parametrize("kind", ["work", "ephemeral"])
@pytest.mark.parametrize("has_head", [True, False])
def test_a_purge_of_very_many_takes_no_more_in_a_slice_than_its_steps(
    world: QueueWorld, kind: str, has_head: bool
) -> None:
    queue = world.declare(kind=kind)
    consumer = world.join(queue, credit=1 if has_head else 0)
    world.fill(queue, 3000)
    begun = Purge(queue)
    slices = 0
    while begun.run(100) <= 0:
        slices += 1
        assert begun.count <= slices * 100 * RECORDS_PER_STEP
    assert slices >= 3000 // (100 * RECORDS_PER_STEP)
    assert begun.count == 3000 - int(consumer.open)
    assert queue.depth() == int(consumer.open) == (1 if has_head else 0)


def test_what_comes_while_a_purge_goes_on_stays(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue, credit=0)
    world.fill(queue, 100)
    begun = Purge(queue)
    assert begun.run(10) <= 0
    world.publish(queue, b"new")
    while begun.run(10) <= 0:
        pass
    assert begun.count == 100
    consumer.credit = 10
    world.loop()
    assert consumer.payloads() == [b"new"]


def test_what_comes_back_while_a_purge_goes_on_is_handed_out_once_at_most(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue, credit=100)
    world.fill(queue, 100)
    consumer.credit = 0
    begun = Purge(queue)
    assert begun.run(10) <= 0
    consumer.settle_all(Outcome.MODIFIED)
    while begun.run(10) <= 0:
        pass
    consumer.credit = 1000
    world.move(60_000)
    again = consumer.payloads()
    assert len(again) == len(set(again)) == 100 - begun.count
    assert queue.depth() == len(again)


def test_a_removed_group_leaves_what_it_did_not_settle(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 3)
    consumer.settle(0)
    world.leave(queue, consumer)
    queue.remove_group(world.group())
    assert (queue.depth(), list(queue.groups)) == (2, [])
    world.restart()
    assert kept(world, world.queue()) == [b"1", b"2"]
