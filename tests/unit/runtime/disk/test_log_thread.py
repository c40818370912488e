"""The thread of the log on a simulated disk: answers come on the loop, in order; faults fence, a full disk waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import ManualWakeup
from mypy_extensions import i64

from millstream.runtime.disk import log_thread
from millstream.runtime.disk.files import RealDisk, RealFile
from millstream.runtime.disk.folder_watch import FolderWatch, open_folder_watch
from millstream.runtime.disk.kernel_sync import KernelSync, open_kernel_sync
from millstream.runtime.disk.log_thread import LogThread, Pace
from millstream.storage.disk import DiskFile
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.recovery import read_file
from millstream.storage.log.write_ahead_log import Log
from simulation.disk import Mood, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

FILE_SIZE = 4096


class Bench:
    """A log with its thread; `wait` returns after the next answer."""

    def __init__(self, with_sync: bool = True, linger_sync_ns: int = log_thread.LINGER_SYNC_NS) -> None:
        self.left: list[int] = []  # bytes still gathering at each answer
        self.disk = SimulatedDisk(1)
        self.disk.make_folder(FOLDER)
        files = LogFiles(self.disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, with_sync)
        self._answered = asyncio.Event()
        pace = Pace(0.001, 0.001, linger_sync_ns)
        self.loss = ""
        self.thread = LogThread(files, self._on_answer, None, pace, lambda: self.loss)
        self.log = Log(self.thread, ManualWakeup(), 1)

    def _on_answer(self) -> None:
        self.left.append(int(self.log.unsafe_bytes()))
        self._answered.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._answered.wait(), 10)
        self._answered.clear()

    async def wait_durable(self, position: int) -> None:
        while self.log.durable < position:
            await self.wait()

    async def wait_fault(self) -> None:
        while not self.log.fault:
            await self.wait()


async def test_facts_become_durable_in_order() -> None:
    bench = Bench()
    seen: list[int] = []
    for number in range(1, 101):
        bench.log.append(1, b"%d" % number)
        bench.log.flush()
        if number % 7 == 0:
            await bench.wait()
            seen.append(int(bench.log.durable))
    await bench.wait_durable(100)
    assert seen == sorted(seen)
    bench.thread.close()
    found = read_file(bench.disk.crash(Mood.NOTHING), file_name(1), True)
    assert [record.body for record in found.records] == [b"%d" % number for number in range(1, 101)]


async def test_closing_writes_what_was_handed_over() -> None:
    bench = Bench()
    bench.log.append(1, b"a")
    bench.log.flush()
    bench.thread.close()
    assert len(read_file(bench.disk.crash(Mood.NOTHING), file_name(1), True).records) == 1


async def test_a_failed_sync_fences_and_is_never_tried_again() -> None:
    bench = Bench()
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)
    bench.disk.fail_next("sync")
    bench.log.append(1, b"b")
    bench.log.flush()
    await bench.wait_fault()
    steps = bench.disk.steps
    bench.log.append(1, b"c")
    bench.log.flush()
    bench.thread.close()
    assert bench.log.durable == 1
    assert "Input/output error" in bench.log.fault
    assert bench.disk.steps == steps


async def test_a_full_disk_is_told_and_the_batch_is_written_when_there_is_room() -> None:
    bench = Bench()
    bench.disk.fill(10)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait()
    assert bench.log.is_full
    assert bench.log.durable == 0
    bench.disk.fill(None)
    await bench.wait_durable(1)
    assert not bench.log.is_full
    assert not bench.log.fault
    bench.thread.close()


async def test_a_full_disk_does_not_keep_the_broker_from_stopping() -> None:
    bench = Bench()
    bench.disk.fill(10)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait()
    bench.thread.close()
    assert bench.log.durable == 0


async def test_without_a_sync_per_batch_what_is_written_gets_synced_soon() -> None:
    bench = Bench(with_sync=False)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)
    bench.thread.close()
    assert len(read_file(bench.disk.crash(Mood.NOTHING), file_name(1), True).records) == 1


async def test_without_a_sync_per_batch_a_failed_sync_fences_too() -> None:
    bench = Bench(with_sync=False)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)
    bench.disk.fail_next("sync")
    number = 1
    while not bench.log.fault:
        number += 1
        bench.log.append(1, b"b")
        bench.log.flush()
        await bench.wait()
    assert "Input/output error" in bench.log.fault
    bench.thread.close()


async def test_after_a_long_sync_a_batch_waits_for_those_just_confirmed_and_then_goes_without_them() -> None:
    bench = Bench(linger_sync_ns=0)  # every sync counts as long
    bench.log.append(1, b"a")
    bench.log.append(1, b"b")
    bench.log.flush()
    bench.log.append(1, b"c")
    await bench.wait_durable(3)  # the timer let it go
    assert bench.left[0] > 0  # "c" was not handed over at the first answer
    bench.thread.close()


async def test_after_a_disk_that_stood_still_the_wait_for_company_is_still_short() -> None:
    bench = Bench()
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)
    now_ns = time.monotonic_ns()
    bench.thread._started_ns = now_ns - 10_000_000_000
    assert bench.thread._lingers(bench.log)
    assert bench.thread._linger_end_ns - time.monotonic_ns() <= log_thread.LINGER_ALL_NS_MAX
    bench.thread.close()


async def test_a_log_whose_files_are_gone_is_fenced_without_a_publish() -> None:
    bench = Bench()
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)
    bench.loss = "the log was removed"
    await bench.wait_fault()
    assert bench.log.fault == "the log was removed"
    bench.thread.close()


async def test_a_log_whose_files_are_gone_is_fenced_while_it_cannot_be_written() -> None:
    bench = Bench()
    bench.disk.fill(0)
    bench.log.append(1, b"a")
    bench.log.flush()
    while not bench.log.is_full:
        await bench.wait()
    assert bench.log.lacks_room
    assert bench.log.full_cause
    bench.loss = "the log was removed"
    await bench.wait_fault()
    assert bench.log.durable == 0
    bench.thread.close()


class Unforeseen(SimulatedDisk):
    """Makes no file, for a reason that no part of the code has thought of."""

    def create(self, name: str, size: i64) -> DiskFile:
        raise OSError(5, "Input/output error (unforeseen)")


async def test_a_fault_nobody_answers_for_fences_and_does_not_end_the_thread() -> None:
    bench = Bench()
    disk = Unforeseen(1)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0)
    thread = LogThread(files, bench._on_answer, None, Pace(0.001, 0.001))
    bench.log = Log(thread, ManualWakeup(), 1)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_fault()
    assert "unforeseen" in bench.log.fault
    assert thread._worker.is_alive()
    assert not thread.close()
    assert bench.log.durable == 0


@pytest.mark.parametrize("with_sync", [True, False])
async def test_nothing_in_a_file_that_was_removed_is_confirmed(tmp_path: Path, with_sync: bool) -> None:
    """The next batch, not only after the next look at the folders."""
    bench = Bench()
    bench.thread.close()
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, with_sync)
    thread = LogThread(files, bench._on_answer, None, Pace(sync_interval_s=3600), lambda: "")
    bench.log = Log(thread, ManualWakeup(), 1)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)
    (tmp_path / file_name(1)).unlink()
    bench.log.append(1, b"b")
    bench.log.flush()
    await bench.wait_fault()
    assert bench.log.fault == "the file of the log was removed while the broker runs"
    assert bench.log.durable == 1
    thread.close()


@pytest.mark.parametrize("is_watched", [True, False])
async def test_what_the_kernel_has_synced_into_a_file_that_was_removed_is_not_confirmed(
    tmp_path: Path, is_watched: bool
) -> None:
    kernel = open_kernel_sync(tmp_path)
    if kernel is None:
        pytest.skip("the kernel does not sync by itself here")
    bench = Bench()
    bench.thread.close()
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0)
    watch = open_folder_watch(tmp_path / FOLDER) if is_watched else None
    pace = Pace(sync_interval_s=3600)
    thread = LogThread(files, bench._on_answer, kernel, pace, lambda: "", watch)
    bench.log = Log(thread, ManualWakeup(), 1)
    for number in (1, 2, 3):  # the first ones make the file, and have looked at it
        bench.log.append(1, b"a")
        bench.log.flush()
        await bench.wait_durable(number)
    (tmp_path / file_name(1)).unlink()
    bench.log.append(1, b"b")
    bench.log.flush()
    await bench.wait_fault()
    assert bench.log.fault == "the file of the log was removed while the broker runs"
    assert bench.log.durable == 3
    thread.close()


class DeafWatch(FolderWatch):
    """Hears of nothing."""

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        pass


async def test_a_file_is_looked_at_again_only_when_its_folder_has_changed(tmp_path: Path) -> None:
    """What a look takes is a tenth of a durable message."""
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    bench = Bench()
    bench.thread.close()
    files = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, False)
    watch = DeafWatch(tmp_path / FOLDER)
    thread = LogThread(files, bench._on_answer, None, Pace(sync_interval_s=3600), lambda: "", watch)
    bench.log = Log(thread, ManualWakeup(), 1)
    for number in (1, 2):
        bench.log.append(1, b"a")
        bench.log.flush()
        await bench.wait_durable(number)
    assert not watch.has_changed
    (tmp_path / file_name(1)).unlink()
    bench.log.append(1, b"b")
    bench.log.flush()
    await bench.wait_durable(3)
    watch.has_changed = True
    bench.log.append(1, b"c")
    bench.log.flush()
    await bench.wait_fault()
    assert bench.log.durable == 3
    thread.close()


async def test_the_files_are_looked_for_an_interval_after_the_start_and_not_at_the_first_batch() -> None:
    looks: list[int] = []

    def find_loss() -> str:
        looks.append(1)
        return ""

    for interval_s in (3600.0, 1e-9):  # never 0: the thread would wait without giving others their turn
        bench = Bench()
        bench.thread.close()
        files = LogFiles(bench.disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, False)
        thread = LogThread(files, bench._on_answer, None, Pace(sync_interval_s=interval_s), find_loss)
        bench.log = Log(thread, ManualWakeup(), 1)
        bench.log.append(1, b"a")
        bench.log.flush()
        await bench.wait_durable(1)
        thread.close()  # what it was about to do is done
        assert bool(looks) == (interval_s < 1)


class SlowSync(KernelSync):
    """Has synced when the test says so."""

    def __init__(self) -> None:
        self.on_done: Callable[[int], None] | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        pass

    def start(self, descriptor: int, on_done: Callable[[int], None]) -> bool:
        self.on_done = on_done
        return True

    def close(self) -> None:
        pass


class WatchedFile(RealFile):
    """Asked for its descriptor while the thread may end it, it answers when the thread has: the worst of all moments."""

    def __init__(self, file: DiskFile, name: str, bench: Bench) -> None:
        super().__init__(int(file.descriptor()), name)
        self._bench = bench
        self._is_closed = threading.Event()

    def descriptor(self) -> i64:
        if self._bench.thread._is_ending:
            assert self._is_closed.wait(10)
        return super().descriptor()

    def close(self) -> None:
        super().close()
        self._is_closed.set()


class WatchedDisk(RealDisk):
    def __init__(self, root: Path, bench: Bench) -> None:
        super().__init__(root)
        self._bench = bench

    def create(self, name: str, size: i64) -> DiskFile:
        return WatchedFile(super().create(name, size), name, self._bench)


async def test_a_batch_that_is_synced_while_its_file_is_to_end_is_confirmed_before_the_file_is_closed(
    tmp_path: Path,
) -> None:
    bench = Bench()
    bench.thread.close()
    disk = WatchedDisk(tmp_path, bench)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, DeadlyFailpoints(), FILE_SIZE, 1, 0)
    kernel = SlowSync()
    bench.thread = LogThread(files, bench._on_answer, kernel, Pace(sync_interval_s=3600), lambda: "")
    bench.log = Log(bench.thread, ManualWakeup(), 1)
    bench.log.append(1, b"a")
    bench.log.flush()
    await bench.wait_durable(1)  # the first goes through the thread, which makes the file
    bench.log.append(1, b"b")
    bench.log.flush()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    bench.thread.end_file(ended.set_result)
    while not bench.thread._is_end_due:
        await bench.wait()
    assert kernel.on_done is not None
    kernel.on_done(0)
    assert bench.log.durable == 2
    assert await asyncio.wait_for(ended, 10) == ""
    assert files.sealed == [(1, 2)]
    bench.thread.close()
