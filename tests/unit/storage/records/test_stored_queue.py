"""What survives of a queue: facts folded one after the other, and the state a checkpoint keeps."""

from __future__ import annotations

import json

import pytest

from millstream.model.message import Message
from millstream.storage.records import queue_records as facts
from millstream.storage.records.queue_records import QueueRecord
from millstream.storage.records.session_records import FactFault
from millstream.storage.records.stored_queue import (
    PRODUCERS_MAX,
    QueueFold,
    StoredQueue,
    decode_state,
    encode_state,
)

MESSAGE = Message(b"$queue/q/a", b"payload", 1, False, b"\x26\x00\x01a\x00\x01b", 0, "client")
WORK = b'{"kind":"work"}'
STREAM = b'{"kind":"stream"}'


def record(
    offset: int, queue: int = 1, priority: int = 0, producer: bytes = b"", sequence: int = 0, due: int = 0
) -> bytes:
    return facts.encode_record(
        queue, QueueRecord(offset, 1000 + offset, due, priority, producer, sequence), MESSAGE, 77
    )


def fold_of(definition: bytes = WORK, count: int = 0) -> QueueFold:
    fold = QueueFold()
    fold.apply(facts.QUEUE_SAVED, facts.encode_queue(1, "default", "q", definition))
    for offset in range(count):
        fold.apply(facts.RECORD_APPENDED, record(offset))
    return fold


def add_group(fold: QueueFold, number: int = 1, committed: int = 0) -> None:
    fold.apply(facts.GROUP_SAVED, facts.encode_group(1, number, committed, f"g{number}", b"a/#"))


def settle(fold: QueueFold, first: int, last: int, group: int = 1) -> None:
    fold.apply(facts.RECORDS_SETTLED, facts.encode_settled(1, group, first, last))


# --------------------------------------------------------------------- facts


def test_a_record_is_read_as_it_was_written() -> None:
    body = record(7, 3, priority=9, producer=b"p" * 255, sequence=1 << 60, due=5)
    found = facts.decode_record(body)
    assert (found.offset, found.time_wall_ns, found.not_before_wall_ns, found.priority) == (7, 1007, 5, 9)
    assert (found.producer, found.producer_sequence) == (b"p" * 255, 1 << 60)
    assert facts.record_place(body) == (3, 7)
    assert facts.record_time(body) == 1007
    message = facts.decode_record_message(body, -70)
    assert (message.topic, message.payload, message.properties) == (
        b"$queue/q/a",
        b"payload",
        MESSAGE.properties,
    )
    assert (message.expires_ns, message.publisher, message.guarantee) == (7, "client", 1)


def test_only_what_is_out_of_turn_is_special() -> None:
    assert not facts.decode_record(record(1, producer=b"p", sequence=1)).has_priority_or_delay()
    assert facts.decode_record(record(1, priority=1)).has_priority_or_delay()
    assert facts.decode_record(record(1, due=1)).has_priority_or_delay()


def test_a_record_that_is_too_short_is_a_fault() -> None:
    body = record(1, producer=b"producer", sequence=4)
    for size in (0, 10, 33, 36, 43):
        with pytest.raises(FactFault):
            facts.decode_record(body[:size])


def test_the_other_facts_are_read_as_they_were_written() -> None:
    assert facts.decode_queue(facts.encode_queue(9, "acme", "é", b"{}")) == (9, "acme", "é", b"{}")
    assert facts.decode_group(facts.encode_group(1, 2, 3, "é@", b"a/+")) == (1, 2, 3, "é@", b"a/+")
    assert facts.decode_settled(facts.encode_settled(1, 2, 3, 4)) == (1, 2, 3, 4)
    assert facts.decode_returned(facts.encode_returned(1, 2, 3, 4, 5)) == (1, 2, 3, 4, 5)
    assert facts.decode_pair(facts.encode_pair(1, 2)) == (1, 2)
    assert facts.decode_number(facts.encode_number(1 << 62)) == 1 << 62


# ---------------------------------------------------------------------- fold


def test_appends_move_the_end() -> None:
    queue = fold_of(count=3).queues[1]
    assert (queue.first, queue.next, queue.name, queue.account) == (0, 3, "q", "default")
    assert queue.bytes == 3 * len(record(0))


def test_a_definition_may_change() -> None:
    fold = fold_of(count=2)
    fold.apply(facts.QUEUE_SAVED, facts.encode_queue(1, "default", "q", STREAM))
    assert (fold.queues[1].definition, fold.queues[1].next) == (STREAM, 2)


def test_settled_in_any_order_moves_committed_when_the_gap_closes() -> None:
    fold = fold_of(count=6)
    add_group(fold)
    group = fold.queues[1].groups[1]
    settle(fold, 2, 3)
    assert (group.committed, group.settled.ranges()) == (0, [(2, 3)])
    settle(fold, 0, 1)
    assert (group.committed, group.settled.ranges()) == (4, [])
    settle(fold, 1, 2)
    assert group.committed == 4


def test_a_seek_forgets_what_was_settled_above() -> None:
    fold = fold_of(STREAM, 6)
    add_group(fold)
    settle(fold, 0, 1)
    settle(fold, 4, 4)
    add_group(fold, committed=1)
    group = fold.queues[1].groups[1]
    assert (group.committed, group.settled.ranges(), group.filter) == (1, [], b"a/#")


def test_what_came_back_is_remembered_until_it_is_settled() -> None:
    fold = fold_of(count=3)
    add_group(fold)
    fold.apply(facts.RECORD_RETURNED, facts.encode_returned(1, 1, 1, 2, 99))
    group = fold.queues[1].groups[1]
    assert group.returned == {1: (2, 99)}
    settle(fold, 0, 2)
    assert group.returned == {}
    fold.apply(facts.RECORD_RETURNED, facts.encode_returned(1, 1, 1, 3, 99))
    assert group.returned == {}


def test_a_trim_moves_begin_groups_and_specials() -> None:
    fold = fold_of()
    for offset in range(6):
        fold.apply(facts.RECORD_APPENDED, record(offset, priority=1))
    add_group(fold)
    fold.apply(facts.QUEUE_TRIMMED, facts.encode_pair(1, 4))
    queue = fold.queues[1]
    assert (queue.first, queue.groups[1].committed, list(queue.specials)) == (4, 4, [4, 5])
    assert queue.bytes == 2 * len(record(0))
    fold.apply(facts.QUEUE_TRIMMED, facts.encode_pair(1, 2))
    assert queue.first == 4


@pytest.mark.parametrize(("definition", "low"), [(WORK, 2), (STREAM, 0)])
def test_the_low_mark_of_a_work_queue_is_that_of_its_slowest_group(definition: bytes, low: int) -> None:
    fold = fold_of(definition, 6)
    assert fold.queues[1].low_mark() == 0
    add_group(fold, 1)
    add_group(fold, 2)
    settle(fold, 0, 4, 1)
    settle(fold, 0, 1, 2)
    assert fold.queues[1].low_mark() == low
    fold.apply(facts.GROUP_REMOVED, facts.encode_pair(1, 2))
    assert fold.queues[1].low_mark() == (5 if definition is WORK else 0)


def test_bytes_shrink_with_what_is_settled_by_all() -> None:
    fold = fold_of(count=10)
    add_group(fold)
    settle(fold, 0, 4)
    assert fold.queues[1].bytes == 5 * len(record(0))
    settle(fold, 5, 9)
    assert fold.queues[1].bytes == 0


def test_a_removed_queue_is_gone_and_its_number_remembered() -> None:
    fold = fold_of(count=2)
    fold.apply(facts.QUEUE_REMOVED, facts.encode_number(1))
    assert (fold.queues, list(fold.changed), list(fold.removed), fold.last_number) == ({}, [], [1], 1)


def test_facts_about_what_is_gone_are_counted_and_not_believed() -> None:
    fold = fold_of()
    fold.apply(facts.RECORD_APPENDED, record(0, queue=5))
    settle(fold, 0, 3, group=9)
    fold.apply(facts.QUEUE_TRIMMED, facts.encode_pair(5, 1))
    assert fold.orphans == 3
    assert list(fold.queues) == [1]


def test_the_last_number_of_a_producer_counts() -> None:
    fold = fold_of()
    for offset, sequence in enumerate((4, 5, 9)):
        fold.apply(facts.RECORD_APPENDED, record(offset, producer=b"p", sequence=sequence))
    assert fold.queues[1].producers == {b"p": 9}


def test_producers_are_bounded_and_the_oldest_goes() -> None:
    queue = StoredQueue(1, "default", "q", WORK)
    for offset in range(PRODUCERS_MAX):
        queue.append(record(offset, producer=b"p%d" % offset, sequence=1))
    queue.append(record(PRODUCERS_MAX, producer=b"p0", sequence=2))
    queue.append(record(PRODUCERS_MAX + 1, producer=b"new", sequence=1))
    assert len(queue.producers) == PRODUCERS_MAX
    assert b"p0" in queue.producers
    assert b"p1" not in queue.producers


# --------------------------------------------------------------------- state


def test_the_state_of_a_checkpoint_is_read_as_it_was_written() -> None:
    fold = fold_of(count=8)
    fold.apply(facts.RECORD_APPENDED, record(8, priority=3, producer=b"\xc3", sequence=5))
    fold.apply(facts.RECORD_APPENDED, record(9, due=123))
    add_group(fold, 1)
    add_group(fold, 2, committed=2)
    settle(fold, 4, 5)
    fold.apply(facts.RECORD_RETURNED, facts.encode_returned(1, 1, 1, 2, 99))
    queue = fold.queues[1]
    again = decode_state(1, encode_state(queue))
    assert encode_state(again) == encode_state(queue)
    assert (again.first, again.next, again.bytes) == (0, 10, queue.bytes)
    assert again.producers == {b"\xc3": 5}
    assert again.specials == {8: (3, 0), 9: (0, 123)}
    group = again.groups[1]
    assert (group.name, group.filter, group.committed) == ("g1", b"a/#", 0)
    assert (group.settled.ranges(), group.returned) == ([(4, 5)], {1: (2, 99)})
    assert again.groups[2].committed == 2


def test_the_state_does_not_grow_with_what_is_done() -> None:
    fold = fold_of()
    add_group(fold)
    for offset in range(500):
        fold.apply(facts.RECORD_APPENDED, record(offset, priority=1))
        fold.apply(facts.RECORD_RETURNED, facts.encode_returned(1, 1, offset, 1, 0))
        settle(fold, offset, offset)
    fields = json.loads(encode_state(fold.queues[1]))
    assert fields["specials"] == []
    assert fields["groups"][0][4:] == [[], []]
