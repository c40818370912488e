"""Dead letters: what becomes one, what it says about itself, and that none is ever lost on the way."""

from __future__ import annotations

import pytest
from queue_world import WALL_OFFSET_NS, FakeConsumer, QueueWorld, words_of

from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.queues.dead_letter import drop_publish_options
from millstream.queues.publish_options import encode_user_property
from millstream.queues.queue import Queue
from millstream.storage.records import queue_records


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def fail(world: QueueWorld, consumer: FakeConsumer, times: int) -> None:
    for _ in range(times):
        consumer.settle(-1, Outcome.MODIFIED)
        world.move(60_000)


def test_a_rejected_message_goes_to_the_usual_place_with_its_story(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.publish(queue, b"poison", b"orders/eu", color="red")
    world.loop()
    world.move(2500)
    consumer.settle(0, Outcome.REJECTED, "cannot be read")
    [(payload, words)] = world.letters()
    sent_ms = (WALL_OFFSET_NS + 1_000_000_000_000) // 1_000_000
    assert payload == b"poison"
    assert words == {
        "color": "red",
        "_dlq_reason": "cannot be read",
        "_dlq_original_queue": "q",
        "_dlq_original_topic": "$queue/q/orders/eu",
        "_dlq_original_id": "q:0",
        "_dlq_original_group": "g",
        "_dlq_original_time": str(sent_ms),
        "_dlq_delivery_count": "1",
        "_dlq_moved_at": str(sent_ms + 2500),
    }
    assert queue.depth() == 0
    assert queue.counters.dead_lettered == 1


def test_rejected_without_words_says_so(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue, filter=b"a/#")
    world.publish(queue, b"x", b"a/b")
    world.loop()
    consumer.settle(0, Outcome.REJECTED)
    assert world.letters()[0][1]["_dlq_reason"] == "rejected"
    assert world.letters()[0][1]["_dlq_original_group"] == "g@a/#"


def test_too_many_failures_make_a_dead_letter(world: QueueWorld) -> None:
    queue = world.declare(max_deliveries=3)
    consumer = world.join(queue)
    world.fill(queue, 1)
    fail(world, consumer, 2)
    assert world.letters() == []
    fail(world, consumer, 1)
    words = world.letters()[0][1]
    assert (words["_dlq_reason"], words["_dlq_delivery_count"]) == ("max_deliveries", "3")
    assert len(consumer.got) == 3


def test_too_many_time_outs_make_a_dead_letter(world: QueueWorld) -> None:
    queue = world.declare(max_deliveries=2, visibility_ms=1000)
    consumer = world.join(queue)
    world.fill(queue, 1)
    world.move(1000)
    world.move(1000)
    assert len(consumer.got) == 2
    assert world.letters()[0][1]["_dlq_reason"] == "max_deliveries"


def test_too_many_deaths_make_a_dead_letter(world: QueueWorld) -> None:
    queue = world.declare(max_deliveries=2)
    world.fill(queue, 1)
    for _ in range(2):
        world.leave(queue, world.join(queue))
    assert world.join(queue).got == []
    assert world.letters()[0][1]["_dlq_delivery_count"] == "2"


def test_without_a_bound_a_failure_is_tried_for_ever(world: QueueWorld) -> None:
    queue = world.declare(max_deliveries=0)
    consumer = world.join(queue)
    world.fill(queue, 1)
    fail(world, consumer, 20)
    assert len(consumer.got) == 21
    assert world.letters() == []


def test_attempts_are_counted_over_a_restart(world: QueueWorld) -> None:
    queue = world.declare(max_deliveries=3)
    consumer = world.join(queue)
    world.fill(queue, 1)
    fail(world, consumer, 2)
    world.restart()
    consumer = world.join(world.queue())
    world.move(60_000)
    fail(world, consumer, 1)
    assert world.letters()[0][1]["_dlq_delivery_count"] == "3"


def test_off_means_dropped_and_counted(world: QueueWorld) -> None:
    queue = world.declare(dead_letter="off")
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.REJECTED)
    assert (queue.depth(), queue.counters.dropped, queue.counters.dead_lettered) == (0, 1, 0)
    assert list(world.catalog.queues) == ["q"]


def test_a_queue_may_name_its_dead_letter_queue(world: QueueWorld) -> None:
    world.declare("graveyard", kind="stream")
    queue = world.declare(dead_letter="graveyard")
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.REJECTED)
    assert world.letters() == []
    assert [payload for payload, _ in world.letters("graveyard")] == [b"0"]


def test_a_dead_letter_may_die_again(world: QueueWorld) -> None:
    world.declare("$dlq/q", dead_letter="last")
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.REJECTED)
    world.loop()
    second = world.join(world.queue("$dlq/q"), "undertaker")
    second.settle(0, Outcome.REJECTED, "twice")
    words = world.letters("last")[0][1]
    assert words["_dlq_reason"] == "twice"
    assert words["_dlq_original_queue"] == "$dlq/q"
    assert words["_dlq_original_group"] == "undertaker"


def test_the_usual_dead_letter_queue_has_none_of_its_own(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.REJECTED)
    world.loop()
    letters = world.queue("$dlq/q")
    world.join(letters).settle(0, Outcome.REJECTED)
    assert (letters.depth(), letters.counters.dropped) == (0, 1)
    assert sorted(world.catalog.queues) == ["$dlq/q", "q"]


def test_queues_that_are_each_others_dead_letters_do_not_spin(world: QueueWorld) -> None:
    first = world.declare("a", dead_letter="b", length_max=2, overflow="dead_letter")
    world.declare("b", dead_letter="a", length_max=2, overflow="dead_letter")
    world.fill(first, 10)
    kept = [payload for name in ("a", "b") for payload, _ in world.letters(name)]
    assert sorted(kept) == [b"%d" % number for number in range(10)]


def test_what_overflows_goes_to_the_dead_letters_where_asked(world: QueueWorld) -> None:
    queue = world.declare(length_max=2, overflow="dead_letter")
    world.fill(queue, 4)
    letters = world.letters()
    assert [payload for payload, _ in letters] == [b"0", b"1"]
    assert letters[0][1]["_dlq_reason"] == "overflow"
    assert letters[0][1]["_dlq_delivery_count"] == "0"
    assert (queue.depth(), queue.counters.dead_lettered) == (2, 2)


def test_a_full_dead_letter_queue_takes_a_dead_letter_all_the_same(world: QueueWorld) -> None:
    world.declare("$dlq/q", length_max=1)
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 3)
    consumer.settle_all(Outcome.REJECTED)
    assert len(world.letters()) == 3


@pytest.mark.parametrize("length", [195, 196, 200])
def test_a_long_name_has_its_dead_letters_too(world: QueueWorld, length: int) -> None:
    name = "n" * length
    queue = world.declare(name)
    consumer = world.join(queue)
    world.fill(queue, 1)
    consumer.settle(0, Outcome.REJECTED)
    assert len(world.letters("$dlq/" + name)) == 1


def test_the_letter_is_written_before_its_source_goes(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.fill(queue, 3)
    for at in (1, 0, 2):
        consumer.settle(at, Outcome.REJECTED)
        world.loop()
    count = len(world.facts.log)
    for length in range(count):
        assert_nothing_lost(world, queue, length)


def assert_nothing_lost(world: QueueWorld, queue: Queue, length: int) -> None:
    """Whatever part of the log is safe: a record is still there or has its letter."""
    alive: set[int] = set()
    letters: set[int] = set()
    for _, kind, body in world.facts.log[:length]:
        if kind == queue_records.RECORD_APPENDED:
            number, offset = queue_records.record_place(body)
            if number == queue.number:
                alive.add(offset)
            else:
                words = words_of(queue_records.decode_record_message(body, 0))
                letters.add(int(words["_dlq_original_id"].removeprefix("q:")))
        elif kind == queue_records.RECORDS_SETTLED:
            _, _, first, last = queue_records.decode_settled(body)
            assert set(range(first, last + 1)) <= letters
            alive -= set(range(first, last + 1))


def test_the_letter_does_not_carry_the_directions_of_the_first_queue(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.publish(queue, b"x", expiry_ms=5000, producer_id="p", sequence=4, priority=3, color="red")
    world.loop()
    consumer.settle(0, Outcome.REJECTED)
    world.move(60_000)
    letters = world.queue("$dlq/q")
    assert not {"producer-id", "sequence", "priority"} & set(world.letters()[0][1])
    assert world.join(letters).payloads() == [b"x"]


def test_only_whole_properties_are_taken_out() -> None:
    hidden = encode_user_property(b"priority", b"3")
    correlation = b"\x09" + len(hidden).to_bytes(2, "big") + hidden
    kept = correlation + encode_user_property(b"color", b"red")
    assert drop_publish_options(kept + hidden) == kept
    assert drop_publish_options(hidden + kept) == kept
    assert drop_publish_options(kept) == kept


def test_a_letter_keeps_topic_payload_and_publisher(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    queue.append(Message(b"plant/1", b"\x00\xff", 2, False, b"", 0, "device-7"))
    world.loop()
    consumer.settle(0, Outcome.REJECTED)
    letter = world.join(world.queue("$dlq/q")).got[0].message
    assert (letter.topic, letter.payload, letter.publisher) == (b"plant/1", b"\x00\xff", "device-7")


# ----------------------------------------------------------------- too old


@pytest.mark.parametrize("how", ["queue", "message"])
@pytest.mark.parametrize("has_consumer", [True, False])
def test_what_is_too_old_goes_by_policy(world: QueueWorld, how: str, has_consumer: bool) -> None:
    queue = world.declare(message_ttl_ms=1000 if how == "queue" else 0)
    consumer = world.join(queue, credit=0)
    world.publish(queue, b"old", expiry_ms=1000 if how == "message" else 0)
    if not has_consumer:
        world.leave(queue, consumer)
    world.move(999)
    assert queue.depth() == 1
    world.move(1)
    consumer.credit = 10
    world.move(1)
    assert consumer.got == []
    assert (queue.depth(), queue.counters.expired, queue.counters.dropped) == (0, 1, 0)
    assert world.letters() == []


@pytest.mark.parametrize("groups", [0, 1])
def test_what_is_too_old_goes_to_the_dead_letters_a_queue_names(world: QueueWorld, groups: int) -> None:
    queue = world.declare(message_ttl_ms=1000, dead_letter="old")
    if groups:
        world.leave(queue, world.join(queue, credit=0))
    world.fill(queue, 2)
    world.move(2000)
    letters = world.letters("old")
    assert [payload for payload, _ in letters] == [b"0", b"1"]
    assert letters[0][1]["_dlq_reason"] == "expired"
    assert queue.depth() == 0


def test_what_was_handed_out_may_be_settled_after_its_time(world: QueueWorld) -> None:
    queue = world.declare(message_ttl_ms=1000)
    consumer = world.join(queue)
    world.fill(queue, 1)
    world.move(2000)
    consumer.settle(0)
    assert (queue.depth(), queue.counters.expired) == (0, 0)


def test_one_that_comes_back_too_old_is_not_handed_out_again(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.publish(queue, b"x", expiry_ms=1000)
    world.loop()
    world.move(2000)
    consumer.settle(0, Outcome.RELEASED)
    assert len(consumer.got) == 1
    assert queue.counters.expired == 1


def test_a_full_queue_without_groups_takes_again_when_its_records_are_too_old(world: QueueWorld) -> None:
    queue = world.declare(message_ttl_ms=1000, length_max=2)
    world.fill(queue, 2)
    world.move(2000)
    assert queue.depth() == 0


def test_an_expiry_runs_on_while_the_broker_is_down(world: QueueWorld) -> None:
    queue = world.declare()
    world.publish(queue, b"short", expiry_ms=1000)
    world.publish(queue, b"long", expiry_ms=100_000)
    world.restart(down_ms=2000)
    assert world.join(world.queue()).payloads() == [b"long"]
