"""Group commit: what gathers while a batch is written goes in the next one, and nothing is durable too early."""

from __future__ import annotations

from fakes import ManualWakeup

from millstream.storage.log import Batch, BatchWriter, Log


class SlowWriter(BatchWriter):
    """Keeps the batch until the test says what became of it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def submit(self, batch: Batch, log: Log) -> None:
        self.batches.append(batch)


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
    log.on_written(writer.batches[0])
    assert not log.is_full
    assert log.durable == 1


def test_the_loop_is_asked_once_per_batch() -> None:
    wakeup = ManualWakeup()
    log = Log(SlowWriter(), wakeup, 1)
    for _ in range(5):
        log.append(1, b"a")
    assert wakeup.requests == 1
