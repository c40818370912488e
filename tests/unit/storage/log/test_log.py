"""Group commit: what gathers while a batch is written goes in the next one, and nothing is durable too early."""

from __future__ import annotations

import pytest
from fakes import ManualWakeup

from millstream.storage.log.format import BatchHead, decode_records
from millstream.storage.log.write_ahead_log import LARGE, STALL_NS, Batch, BatchWriter, Log


class SlowWriter(BatchWriter):
    """Keeps the batch until the test says what became of it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def submit(self, batch: Batch, log: Log) -> None:
        self.batches.append(batch)

    def facts(self) -> list[tuple[int, bytes]]:
        """Sequence and body of everything that was handed over, batch by batch."""
        found: list[tuple[int, bytes]] = []
        for batch in self.batches:
            head = BatchHead(len(batch.records), batch.count, 1, batch.first, 0)
            records, bad_at = decode_records(batch.records, 0, head)
            assert bad_at == -1
            found += [(int(record.sequence), record.body) for record in records]
        return found


def test_facts_that_come_while_a_batch_is_written_share_the_next_one() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.flush()
    log.append(1, b"b")
    log.append(1, b"c")
    log.flush()
    assert [int(batch.count) for batch in writer.batches] == [1]
    log.on_written(writer.batches[0])
    assert [int(batch.count) for batch in writer.batches] == [1, 2]


def test_every_fact_is_handed_over_once_in_order_under_its_own_sequence() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 5)
    for body in (b"a", b"b", b"c"):
        log.append(1, body)
    log.flush()
    log.append(1, b"d")
    log.on_written(writer.batches[0])
    log.append(1, b"e")
    log.on_written(writer.batches[1])
    assert writer.facts() == [(5, b"a"), (6, b"b"), (7, b"c"), (8, b"d"), (9, b"e")]
    assert [int(batch.last()) for batch in writer.batches] == [7, 8, 9]


def test_a_flush_with_nothing_gathered_writes_nothing() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.flush()
    log.append(1, b"a")
    log.flush()
    log.on_written(writer.batches[0])
    log.flush()
    assert len(writer.batches) == 1


def test_the_bytes_that_gather_are_told_until_they_are_handed_over() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    assert log.unsafe_bytes() == 0
    log.append(1, bytes(100))
    gathered = log.unsafe_bytes()
    assert gathered > 100
    log.append(1, bytes(100))
    assert log.unsafe_bytes() == 2 * gathered
    log.flush()
    assert log.unsafe_bytes() == 0
    assert len(writer.batches[0].records) == 2 * gathered


def test_nothing_is_durable_before_its_batch_is_written() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 10)
    assert log.append(1, b"a") == 10
    log.flush()
    assert log.append(1, b"b") == 11
    assert log.durable == 9
    log.on_written(writer.batches[0])
    assert log.durable == 10
    log.on_written(writer.batches[1])
    assert log.durable == 11


def test_after_a_failed_sync_nothing_more_is_tried_or_durable() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.flush()
    log.on_failed("the disk is broken")
    log.append(1, b"b")
    log.flush()
    assert len(writer.batches) == 1
    assert log.durable == 0
    assert log.fault == "the disk is broken"


def test_a_full_disk_is_told_until_the_batch_is_written() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.flush()
    log.on_full()
    assert log.is_full
    assert log.durable == 0
    log.append(1, b"b")
    log.flush()
    assert len(writer.batches) == 1  # the first still waits for room, and nothing may pass it
    log.on_written(writer.batches[0])
    assert not log.is_full
    assert log.durable == 1
    assert len(writer.batches) == 2


def test_the_loop_is_asked_once_per_batch() -> None:
    wakeup = ManualWakeup()
    writer = SlowWriter()
    log = Log(writer, wakeup, 1)
    for round_number in range(3):
        for _ in range(5):
            log.append(1, b"a")
        assert wakeup.requests == round_number + 1
        log.flush()
        log.on_written(writer.batches[-1])


@pytest.mark.parametrize("stall_ns", [int(STALL_NS), 5 * int(STALL_NS)])
def test_a_disk_that_does_not_answer_is_noticed_and_forgiven_when_it_does(stall_ns: int) -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1, stall_ns)
    log.append(1, b"one")
    log.flush()
    log.on_tick(1)
    log.on_tick(stall_ns)
    assert not log.is_stalled
    log.on_tick(stall_ns + 1)
    assert log.is_stalled
    log.on_written(writer.batches[0])
    assert not log.is_stalled
    log.on_tick(3 * stall_ns)
    assert not log.is_stalled


def test_a_lingering_log_waits_until_those_it_confirmed_have_come_back() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.append(1, b"b")
    log.flush()
    log.append(1, b"c")  # from somebody who was not in that batch
    log.on_written(writer.batches[0], True)
    assert log.durable == 2
    log.append(1, b"a2")
    log.flush()
    assert len(writer.batches) == 1
    log.append(1, b"b2")
    log.flush()
    assert [int(batch.count) for batch in writer.batches] == [2, 3]


def test_a_lingering_log_goes_on_without_those_who_do_not_come_back() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.append(1, b"b")
    log.flush()
    log.append(1, b"c")
    log.on_written(writer.batches[0], True)
    log.flush()
    assert len(writer.batches) == 1
    log.go_on()
    assert [int(batch.count) for batch in writer.batches] == [2, 1]


def test_a_publisher_alone_is_never_made_to_wait_by_a_lingering_log() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.flush()
    log.on_written(writer.batches[0], True)
    log.append(1, b"a2")
    log.flush()
    assert [int(batch.count) for batch in writer.batches] == [1, 1]


def test_the_end_of_a_wait_that_is_over_already_disturbs_nothing() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.flush()
    log.on_written(writer.batches[0], True)
    log.append(1, b"b")
    log.flush()
    log.append(1, b"c")
    log.go_on()
    assert [int(batch.count) for batch in writer.batches] == [1, 1]


def test_a_batch_that_was_under_way_when_the_log_was_fenced_is_not_durable() -> None:
    """Its sync may have succeeded, in a file that has no name any more."""
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    log.append(1, b"a")
    log.flush()
    log.on_failed("the log was removed")
    log.on_written(writer.batches[0])
    assert log.durable == 0


def test_a_batch_that_cannot_be_written_tells_why() -> None:
    log = Log(SlowWriter(), ManualWakeup(), 1)
    log.on_full("log/1.log: Read-only file system", lacks_room=False)
    assert log.is_full
    assert (log.full_cause, log.lacks_room) == ("log/1.log: Read-only file system", False)


def test_large_facts_stand_between_the_small_ones_as_they_came() -> None:
    writer = SlowWriter()
    log = Log(writer, ManualWakeup(), 1)
    sizes = [3, LARGE - 1, LARGE, 5, 0, LARGE + 7, LARGE, 1]
    bodies = [bytes([at]) * size for at, size in enumerate(sizes)]
    for at, body in enumerate(bodies):
        log.append(1, body)
        assert log.unsafe_bytes() == sum(len(each) + 9 for each in bodies[: at + 1])
    log.flush()
    assert log.unsafe_bytes() == 0
    assert writer.facts() == [(at + 1, body) for at, body in enumerate(bodies)]
    log.on_written(writer.batches[0])
    log.append(1, b"next")
    log.flush()
    assert writer.facts()[-1] == (9, b"next")
