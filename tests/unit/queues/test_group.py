"""A group: who gets a record, who gets it next, and when it is done."""

from __future__ import annotations

import pytest
from queue_world import FactStore, FakeConsumer, QueueWorld

from millstream.model.errors import Refused
from millstream.model.outcome import Outcome
from millstream.queues.queue import Queue
from millstream.storage.records import queue_records

EVERYTHING = [b"0", b"1", b"2"]


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


@pytest.fixture
def queue(world: QueueWorld) -> Queue:
    return world.declare()


def test_records_come_in_the_order_they_were_published(world: QueueWorld, queue: Queue) -> None:
    world.fill(queue, 3)
    assert world.join(queue).payloads() == EVERYTHING


def test_a_consumer_that_was_there_before_gets_what_is_published_later(
    world: QueueWorld, queue: Queue
) -> None:
    consumer = world.join(queue)
    world.fill(queue, 3)
    assert consumer.payloads() == EVERYTHING


def test_nothing_is_handed_out_before_it_is_safe(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.facts.hold()
    world.fill(queue, 3)
    world.move(10)
    assert consumer.got == []
    world.facts.advance(int(world.store.durable()) + 2)
    world.safe()
    assert b"2" not in consumer.payloads()
    world.facts.release()
    world.safe()
    assert consumer.payloads() == EVERYTHING


def test_a_priority_does_not_overtake_safety(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.facts.hold()
    world.publish(queue, b"urgent", priority=9)
    world.loop()
    assert consumer.got == []
    world.facts.release()
    world.safe()
    assert consumer.payloads() == [b"urgent"]


def test_a_consumer_never_has_more_open_than_its_credit(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, credit=2)
    world.fill(queue, 5)
    assert consumer.payloads() == [b"0", b"1"]
    consumer.settle(0)
    assert consumer.payloads() == [b"0", b"1", b"2"]
    assert consumer.open == 2


def test_consumers_with_credit_take_turns(world: QueueWorld, queue: Queue) -> None:
    consumers = [world.join(queue) for _ in range(3)]
    world.fill(queue, 9)
    assert [len(consumer.got) for consumer in consumers] == [3, 3, 3]


def test_one_without_credit_does_not_hold_up_the_others(world: QueueWorld, queue: Queue) -> None:
    idle, busy = world.join(queue, credit=0), world.join(queue)
    world.fill(queue, 3)
    assert (idle.payloads(), busy.payloads()) == ([], EVERYTHING)


def test_two_groups_each_get_everything(world: QueueWorld, queue: Queue) -> None:
    first = world.join(queue, "a")
    world.fill(queue, 3)
    second = world.join(queue, "b")
    assert first.payloads() == second.payloads() == EVERYTHING


def test_a_record_stays_until_the_slower_group_has_settled_it(world: QueueWorld, queue: Queue) -> None:
    fast, slow = world.join(queue, "a"), world.join(queue, "b")
    world.fill(queue, 3)
    fast.settle_all()
    assert queue.depth() == 3
    slow.settle_all()
    world.loop()
    assert (queue.depth(), queue.size.bytes) == (0, 0)


def test_a_new_group_begins_where_the_slowest_one_stands(world: QueueWorld, queue: Queue) -> None:
    first = world.join(queue, "a")
    world.fill(queue, 3)
    first.settle(0)
    assert world.join(queue, "b").payloads() == [b"1", b"2"]


def test_what_is_accepted_never_comes_again(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.fill(queue, 3)
    consumer.settle(1)
    world.leave(queue, consumer)
    assert world.join(queue).payloads() == [b"0", b"2"]


def test_released_comes_back_at_once_and_is_not_counted(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, credit=1)
    world.fill(queue, 2)
    for _ in range(20):
        consumer.settle(-1, Outcome.RELEASED)
    assert set(consumer.payloads()) == {b"0"}
    assert consumer.got[-1].attempts == 1


def test_modified_comes_back_after_a_wait_that_doubles_up_to_its_bound(world: QueueWorld) -> None:
    queue = world.declare(backoff_ms=100, backoff_max_ms=300, max_deliveries=0)
    consumer = world.join(queue)
    world.fill(queue, 1)
    for wait_ms in (100, 200, 300, 300):
        consumer.settle(-1, Outcome.MODIFIED)
        count = len(consumer.got)
        world.move(wait_ms - 1)
        assert len(consumer.got) == count
        world.move(1)
        assert len(consumer.got) == count + 1
    assert consumer.got[-1].attempts == 5


def test_without_a_back_off_modified_comes_back_at_once(world: QueueWorld) -> None:
    queue = world.declare(backoff_ms=0)
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.MODIFIED)
    assert consumer.payloads() == [b"0", b"0"]
    assert consumer.got[1].attempts == 2


def test_one_that_waits_does_not_hold_up_the_next(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, credit=1)
    world.fill(queue, 2)
    consumer.settle(0, Outcome.MODIFIED)
    assert consumer.payloads() == [b"0", b"1"]


def test_what_is_not_settled_in_time_goes_to_another(world: QueueWorld) -> None:
    queue = world.declare(visibility_ms=1000)
    silent = world.join(queue)
    world.fill(queue, 2)
    silent.credit = 0
    other = world.join(queue)
    world.move(999)
    assert other.got == []
    world.move(1)
    assert other.payloads() == [b"0", b"1"]
    assert (silent.open, other.open, queue.counters.timed_out) == (0, 2, 2)


def test_a_late_answer_counts_for_nothing(world: QueueWorld) -> None:
    queue = world.declare(visibility_ms=1000)
    silent = world.join(queue)
    world.fill(queue, 1)
    late = silent.got[0]
    world.move(1000)
    assert len(silent.got) == 2
    late.group.settle(late, Outcome.ACCEPTED, "")
    assert world.group().lag() == 1
    silent.settle(1)
    assert world.group().lag() == 0


def test_a_shorter_visibility_time_holds_at_once(world: QueueWorld) -> None:
    queue = world.declare(visibility_ms=600_000)
    consumer = world.join(queue)
    world.fill(queue, 2)
    consumer.settle(0)
    world.declare(visibility_ms=1000)
    world.move(1000)
    assert consumer.payloads() == [b"0", b"1", b"1"]


def test_the_pending_of_one_that_left_goes_to_the_others(world: QueueWorld, queue: Queue) -> None:
    leaver, other = world.join(queue, credit=2), world.join(queue, credit=2)
    world.fill(queue, 4)
    other.settle_all()
    held = leaver.payloads()
    world.leave(queue, leaver)
    assert other.payloads() == held
    assert [int(pending.attempts) for pending in other.got] == [2, 2]


def test_a_dead_consumer_that_stays_a_member_gives_back_what_it_had(world: QueueWorld, queue: Queue) -> None:
    dead, other = world.join(queue, credit=1), world.join(queue, credit=5)
    world.fill(queue, 1)
    held, waiting = (dead, other) if dead.got else (other, dead)
    held.is_connected = False
    world.group().take_back(held)
    assert waiting.payloads() == [b"0"]
    assert held.open == 0


def test_single_active_gives_everything_to_one_until_it_leaves(world: QueueWorld) -> None:
    queue = world.declare(single_active=True)
    first, second = world.join(queue, credit=2), world.join(queue)
    world.fill(queue, 3)
    assert (first.payloads(), second.payloads()) == ([b"0", b"1"], [])
    world.leave(queue, first)
    assert second.payloads() == EVERYTHING


def test_single_active_moves_on_from_one_that_is_away(world: QueueWorld) -> None:
    queue = world.declare(single_active=True)
    away, second = world.join(queue), world.join(queue)
    away.is_connected = False
    world.fill(queue, 3)
    assert second.payloads() == EVERYTHING


def test_single_active_goes_on_when_the_active_one_leaves_with_nothing_open(world: QueueWorld) -> None:
    queue = world.declare(single_active=True)
    first, second = world.join(queue, credit=0), world.join(queue)
    world.fill(queue, 1)
    queue.groups["g"].leave(first)
    assert second.payloads() == [b"0"]


def test_a_filter_chooses_by_the_key_behind_the_name(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, filter=b"orders/+")
    for key in (b"orders/eu", b"invoices/eu", b"orders/us/east", b"orders/us", b""):
        world.publish(queue, key, key)
    world.loop()
    assert consumer.payloads() == [b"orders/eu", b"orders/us"]


def test_what_a_filter_passes_over_is_not_kept_for_its_group(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, filter=b"a")
    for key in (b"b", b"a", b"b"):
        world.publish(queue, key, key)
    world.loop()
    consumer.settle_all()
    world.loop()
    assert (world.group("g@a").lag(), queue.depth(), queue.size.bytes) == (0, 0, 0)


def test_a_filter_over_priorities_lets_go_of_what_it_does_not_want(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue, filter=b"a")
    world.publish(queue, b"no", b"b", priority=5)
    world.publish(queue, b"yes", b"a", priority=1)
    world.loop()
    assert consumer.payloads() == [b"yes"]
    consumer.settle_all()
    assert world.group("g@a").lag() == 0


def test_the_same_name_with_another_filter_is_another_group(world: QueueWorld, queue: Queue) -> None:
    world.join(queue, "g")
    world.join(queue, "g", filter=b"a/#")
    assert list(queue.groups) == ["g", "g@a/#"]
    assert queue.groups["g@a/#"].title() == "g@a/#"


def test_a_message_that_came_by_a_binding_is_filtered_by_its_whole_topic(world: QueueWorld) -> None:
    queue = world.declare(bindings=["plant/#"])
    consumer = world.join(queue, filter=b"plant/+/temp")
    for topic in (b"plant/1/temp", b"plant/1/rpm"):
        message = world.message(queue, topic)
        message.topic = topic
        queue.append(message)
    world.loop()
    assert consumer.payloads() == [b"plant/1/temp"]


def test_a_consumer_may_answer_while_it_is_handed_a_record(world: QueueWorld, queue: Queue) -> None:
    consumer = FakeConsumer("c", 1)
    consumer.answers = Outcome.ACCEPTED
    queue.get_group("g", b"").join(consumer)
    world.fill(queue, 3)
    assert consumer.payloads() == EVERYTHING
    assert world.group().lag() == 0


def test_one_that_answers_at_once_does_not_get_the_whole_queue_in_one_go(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = FakeConsumer("c", 1)
    consumer.answers = Outcome.ACCEPTED
    for number in range(3000):
        world.publish(queue, b"%d" % number)
    queue.get_group("g", b"").join(consumer)
    assert world.scheduler.work_off()
    assert 0 < len(consumer.got) < 3000
    world.loop()
    assert len(consumer.got) == 3000


def test_settled_in_order_is_written_once_per_iteration(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.fill(queue, 50)
    before = world.facts.kinds().count(queue_records.RECORDS_SETTLED)
    consumer.settle_all()
    world.loop()
    assert world.facts.kinds().count(queue_records.RECORDS_SETTLED) == before + 1


def test_settled_out_of_order_survives_a_restart(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.fill(queue, 4)
    consumer.settle(2)
    consumer.settle(0)
    world.loop()
    world.restart()
    assert world.join(world.queue()).payloads() == [b"1", b"3"]


def test_what_was_not_safely_settled_comes_again_after_a_restart(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    world.fill(queue, 2)
    world.facts.hold()
    consumer.settle_all()
    world.loop()
    world.restart()
    assert world.join(world.queue()).payloads() == [b"0", b"1"]


def test_attempts_and_back_off_survive_a_restart(world: QueueWorld) -> None:
    queue = world.declare(backoff_ms=10_000)
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.MODIFIED)
    world.restart()
    consumer = world.join(world.queue())
    assert consumer.got == []
    world.move(10_000)
    assert [int(pending.attempts) for pending in consumer.got] == [2]


@pytest.mark.parametrize("folded", [0.0, 0.5, 1.0])
def test_records_in_segments_are_handed_out_like_the_others(world: QueueWorld, folded: float) -> None:
    queue = world.declare()
    world.fill(queue, 10)
    world.restart(folded)
    consumer = world.join(world.queue())
    assert consumer.payloads() == [b"%d" % number for number in range(10)]


def test_a_gap_in_the_segments_counts_as_settled(world: QueueWorld, queue: Queue) -> None:
    world.fill(queue, 6)
    world.restart(1.0)
    for offset in (1, 2):
        del world.segments.records[int(world.queue().number)][offset]
    consumer = world.join(world.queue())
    assert consumer.offsets() == [0, 3, 4, 5]
    consumer.settle_all()
    assert world.group().lag() == 0


def test_a_seek_back_while_segments_are_read_loses_nothing(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    world.fill(queue, 6)
    world.restart(1.0)
    world.segments.is_slow = True
    queue = world.queue()
    group = queue.get_group("g", b"")
    group.seek(4)
    consumer = world.join(queue)
    assert len(world.segments.waiting) == 1
    group.seek(0)
    world.segments.is_slow = False
    world.segments.answer()
    world.loop()
    assert consumer.offsets() == [0, 1, 2, 3, 4, 5]


def test_a_commit_settles_all_below_for_a_reader_of_a_stream(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    consumer = world.join(queue, credit=3)
    world.fill(queue, 6)
    world.group().commit(2)
    assert consumer.offsets() == [0, 1, 2, 3, 4, 5]
    assert (world.group().committed, consumer.open) == (3, 3)


def test_a_commit_never_goes_back_nor_beyond_the_end(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    world.join(queue)
    world.fill(queue, 6)
    group = world.group()
    group.commit(4)
    group.commit(1)
    assert group.committed == 5
    with pytest.raises(Refused):
        group.commit(6)


def test_a_seek_goes_back_and_forward_and_survives_a_restart(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    consumer = world.join(queue)
    world.fill(queue, 5)
    consumer.settle_all()
    world.group().seek(3)
    assert consumer.offsets() == [3, 4]
    world.group().seek(5)
    world.group().seek(1)
    world.restart()
    assert world.join(world.queue()).offsets() == [1, 2, 3, 4]


def test_an_answer_to_a_delivery_from_before_a_seek_means_nothing(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    consumer = world.join(queue)
    world.fill(queue, 2)
    old = consumer.got[0]
    world.group().seek(0)
    old.group.settle(old, Outcome.ACCEPTED, "")
    assert world.group().committed == 0


def test_a_stream_is_read_in_order_whatever_the_priority(world: QueueWorld) -> None:
    queue = world.declare(kind="stream")
    world.publish(queue, b"0", delay_ms=5000)
    world.publish(queue, b"1", priority=9)
    world.loop()
    assert world.join(queue).payloads() == [b"0", b"1"]


def test_a_stream_gives_a_failed_record_again_however_often(world: QueueWorld) -> None:
    queue = world.declare(kind="stream", max_deliveries=2, backoff_ms=0)
    consumer = world.join(queue)
    world.fill(queue, 1)
    for _ in range(5):
        consumer.settle(-1, Outcome.MODIFIED)
    assert len(consumer.got) == 6
    assert world.letters() == []


def test_memory_is_given_back_with_what_is_settled() -> None:
    world = QueueWorld(FactStore())
    queue = world.declare()
    consumer = world.join(queue, credit=10_000)
    world.fill(queue, 2000)
    consumer.settle_all()
    world.loop()
    assert queue.size.bytes == 0
    assert queue.memtable.first >= 1792
    assert not world.group().pending
