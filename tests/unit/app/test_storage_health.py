"""Each state of the log that makes the broker refuse work is one condition, and what was refused is counted in it."""

from __future__ import annotations

import pytest
from fakes import ManualWakeup, World

from millstream.app.storage_health import StorageHealth
from millstream.broker.conditions import (
    LOG_NOT_WRITABLE,
    STORAGE_BEHIND,
    STORAGE_FAILED,
    STORAGE_FULL,
    STORAGE_STALLED,
    Condition,
)
from millstream.storage.log.write_ahead_log import Batch, BatchWriter, Log
from millstream.storage.log_store import BACKLOG_BYTES_MAX


class Writer(BatchWriter):
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def submit(self, batch: Batch, log: Log) -> None:
        self.batches.append(batch)


class Bench:
    def __init__(self) -> None:
        self.world = World()
        self.writer = Writer()
        self.log = Log(self.writer, ManualWakeup(), 1)
        self.watch = StorageHealth(self.world.broker.health, self.log, 600, self.world.broker)

    def tick(self) -> list[Condition]:
        self.watch.on_tick()
        return [active.condition for active in self.world.broker.health.active()]

    def refuse(self, count: int) -> None:
        self.world.account.counters.dropped_no_storage += count

    def submit(self) -> None:
        self.log.append(1, b"a")
        self.log.flush()

    def count(self, condition: Condition) -> int:
        active = self.world.broker.health.find(condition)
        assert active is not None
        return int(active.count)


def test_a_full_disk_is_one_condition_until_the_batch_is_written() -> None:
    bench = Bench()
    assert bench.tick() == []
    bench.submit()
    bench.log.on_full("log/1: No space left on device")
    bench.refuse(3)
    bench.log.is_stalled = True  # it takes long, too; that says less
    assert bench.tick() == [STORAGE_FULL]
    bench.refuse(4)
    bench.tick()
    assert bench.count(STORAGE_FULL) == 7
    bench.log.on_written(bench.writer.batches[0])
    assert bench.tick() == []


@pytest.mark.parametrize("cause", ["Read-only file system", "Input/output error", "Too many open files"])
def test_a_log_that_cannot_be_written_names_the_cause(cause: str) -> None:
    bench = Bench()
    bench.submit()
    bench.log.on_full(cause, lacks_room=False)
    assert bench.tick() == [LOG_NOT_WRITABLE]
    active = bench.world.broker.health.find(LOG_NOT_WRITABLE)
    assert active is not None
    assert active.cause == cause


def test_a_stalled_disk() -> None:
    bench = Bench()
    bench.log.is_stalled = True
    assert bench.tick() == [STORAGE_STALLED]
    bench.log.is_stalled = False
    assert bench.tick() == []


def test_a_fault_replaces_what_came_before_and_stays() -> None:
    bench = Bench()
    bench.submit()
    bench.log.on_full("full")
    assert bench.tick() == [STORAGE_FULL]
    bench.log.on_failed("sync: Input/output error")
    assert bench.tick() == [STORAGE_FAILED]
    assert bench.world.broker.health.status() == "failed"
    bench.log.on_written(bench.writer.batches[0])
    assert bench.tick() == [STORAGE_FAILED]


def test_a_log_that_is_far_behind() -> None:
    bench = Bench()
    bench.submit()
    bench.log.append(1, bytes(BACKLOG_BYTES_MAX + 1))
    assert bench.tick() == [STORAGE_BEHIND]
