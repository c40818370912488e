"""The kernel syncs without a thread of ours, or a thread does it: the answer is the same."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.kernel_sync import KernelSync, open_kernel_sync
from millstream.runtime.disk.log_thread import LogThread
from millstream.runtime.loop.wakeup import LoopWakeup
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.recovery import read_file
from millstream.storage.log.write_ahead_log import Log

FILE_SIZE = 4096


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSync:
    found = open_kernel_sync(tmp_path)
    if found is None:
        pytest.skip("this system has no such call")
    return found


async def test_a_sync_is_told_on_the_loop(kernel: KernelSync, tmp_path: Path) -> None:
    kernel.listen(asyncio.get_running_loop())
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x" * 1000)
        file.flush()
        for _ in range(20):
            done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            assert kernel.start(file.fileno(), done.set_result)
            assert await done == 0
    kernel.close()


async def test_what_cannot_be_synced_is_not_taken(kernel: KernelSync) -> None:
    kernel.listen(asyncio.get_running_loop())
    one, other = os.pipe()
    answers: list[int] = []
    assert not kernel.start(other, answers.append)
    assert answers == []
    os.close(one)
    os.close(other)
    kernel.close()


@pytest.mark.parametrize("with_sync", [True, False])
async def test_batches_come_in_order_over_files_whoever_syncs_them(tmp_path: Path, with_sync: bool) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, NoFailpoints(), FILE_SIZE, 1, 0, with_sync)
    progress = asyncio.Event()
    thread = LogThread(files, progress.set, open_kernel_sync(tmp_path) if with_sync else None)
    log = Log(thread, LoopWakeup(), 1)
    for number in range(60):
        log.append(5, b"%d" % number * 50)
        progress.clear()
        log.flush()
        while log.durable < log.position:
            await progress.wait()
            progress.clear()
    thread.close()
    names = disk.names(FOLDER)
    assert len(names) > 1
    sequences = [
        int(record.sequence) for name in names for record in read_file(disk, name, name == names[-1]).records
    ]
    assert sequences == list(range(1, 61))
    assert names[0] == file_name(1)


class RefusingKernel(KernelSync):
    """Says at the end of every sync that it failed."""

    def __init__(self) -> None:
        self._answers: list[asyncio.Handle] = []

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._own_loop = loop

    def start(self, descriptor: int, on_done) -> bool:  # type: ignore[no-untyped-def]
        self._answers.append(self._own_loop.call_soon(on_done, errno.EIO))
        return True

    def close(self) -> None:
        return


async def test_a_failed_sync_fences_the_log_for_good(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    files = LogFiles(disk, NoFailpoints(), FILE_SIZE, 1, 0)
    progress = asyncio.Event()
    thread = LogThread(files, progress.set, RefusingKernel())
    log = Log(thread, LoopWakeup(), 1)
    log.append(5, b"one")  # needs a new file: the thread's work
    log.flush()
    await progress.wait()
    assert log.durable == 1
    progress.clear()
    log.append(5, b"two")
    log.flush()
    await progress.wait()
    assert "Input/output error" in log.fault
    log.append(5, b"three")
    log.flush()
    assert log.durable == 1
    thread.close()
