"""Messages that a queue takes as one: the same records as of each alone, and none of them out of turn."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from queue_world import QueueWorld

from millstream.model.message import Message
from millstream.model.message_batch import MessageBatch
from millstream.queues.queue import Queue
from millstream.queues.unsynced import MARK_EVERY, UnsyncedRecords

PAYLOADS = [b"first", b"", b"x" * 300, b"last"]


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def make_burst(message: Message, payloads: list[bytes]) -> MessageBatch:
    buffer, places = b"before", b""
    for payload in payloads:
        places += struct.pack("<ii", len(buffer), len(buffer) + len(payload))
        buffer += payload + b"between"
    return MessageBatch(message, buffer, places, len(payloads))


def records(queue: Queue) -> list[bytes]:
    return [queue.find_record(offset) for offset in range(int(queue.first), int(queue.next))]


@pytest.mark.parametrize("kind", ["work", "stream"])
@pytest.mark.parametrize("terms", [{}, {"expiry_ms": 500}, {"colour": "red"}, {"key": b"k"}])
def test_a_burst_leaves_the_same_records_as_its_messages_one_by_one(
    world: QueueWorld, kind: str, terms: dict[str, Any]
) -> None:
    together = world.declare(kind=kind)
    for payload in [b"before", *PAYLOADS]:
        together.append(world.message(together, payload, **terms))
    alone = records(together)
    other = QueueWorld()
    queue = other.declare(kind=kind)
    queue.append(other.message(queue, b"before", **terms))
    assert queue.deliver_batch(make_burst(other.message(queue, b"any", **terms), PAYLOADS))
    assert records(queue) == alone
    assert queue.next == together.next == 5
    assert queue.counters.appended == 5
    assert queue.size.bytes == together.size.bytes
    assert other.facts.log == world.facts.log


def test_a_burst_is_handed_out_when_it_is_safe_and_survives_a_restart(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue)
    world.facts.hold()
    assert queue.deliver_batch(make_burst(world.message(queue, b""), PAYLOADS))
    world.safe()
    assert consumer.payloads() == []
    world.facts.release()
    world.safe()
    assert consumer.payloads() == PAYLOADS
    world.restart()
    assert world.join(world.queue()).payloads() == PAYLOADS


def test_of_a_burst_that_is_half_safe_only_safe_records_are_handed_out(world: QueueWorld) -> None:
    queue = world.declare()
    consumer = world.join(queue, credit=1000)
    world.facts.hold()
    payloads = [b"%d" % number for number in range(200)]
    assert queue.deliver_batch(make_burst(world.message(queue, b""), payloads))
    world.facts.advance(int(world.facts.position()) - 50)
    world.safe()
    handed_out = consumer.payloads()
    assert 0 < len(handed_out) <= 150
    assert handed_out == payloads[: len(handed_out)]
    world.facts.release()
    world.safe()
    assert consumer.payloads() == payloads


@pytest.mark.parametrize(
    "fields",
    [{"kind": "ephemeral"}, {"length_max": 2}, {"bytes_max": 10_000}],
    ids=["memory", "length", "bytes"],
)
def test_a_queue_that_must_look_at_each_message_takes_no_burst(
    world: QueueWorld, fields: dict[str, object]
) -> None:
    queue = world.declare(**fields)
    assert not queue.deliver_batch(make_burst(world.message(queue, b""), PAYLOADS))
    assert queue.next == 0


@pytest.mark.parametrize("words", [{"producer_id": "p", "sequence": 1}, {"priority": 2}, {"delay_ms": 10}])
def test_messages_that_ask_something_of_the_queue_are_taken_one_by_one(
    world: QueueWorld, words: dict[str, Any]
) -> None:
    queue = world.declare(priority_max=9)
    assert not queue.deliver_batch(make_burst(world.message(queue, b"", **words), PAYLOADS))
    assert queue.next == 0


def test_a_burst_that_ends_sooner_or_later_makes_the_queue_look_for_expired_records(
    world: QueueWorld,
) -> None:
    queue = world.declare()
    consumer = world.join(queue, credit=0)
    assert queue.deliver_batch(make_burst(world.message(queue, b"", expiry_ms=10), PAYLOADS))
    world.move(20)
    consumer.credit = 10
    queue.dispatch()
    assert consumer.payloads() == []
    assert queue.depth() == 0


def test_what_is_on_its_way_arrives_in_order_and_never_early() -> None:
    transit = UnsyncedRecords()
    for offset in range(3 * int(MARK_EVERY)):
        transit.add(offset + 1000, offset)
    visible = 0
    for durable in range(990, 1000 + 3 * int(MARK_EVERY)):
        visible = int(transit.arrive(durable, visible, 3 * int(MARK_EVERY)))
        assert visible <= max(0, durable - 999)
        assert transit.is_over(durable) == (durable >= 999 + 3 * int(MARK_EVERY))
    assert visible == 3 * MARK_EVERY
