"""Sealing on request: the log ends its file, the checkpoint folds it, and everything durable is in segments."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from stored_millstream import make_millstream, make_stream

from millstream.app.server import Millstream
from millstream.app.storage import DurableStore
from millstream.broker.conditions import STORAGE_DAMAGED
from millstream.model.errors import Unavailable
from millstream.model.message import Message
from millstream.queues.queue import Queue
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.files import RealDisk
from millstream.storage.records.queue_records import record_offset
from millstream.storage.segments.reader import SegmentReader


@pytest_asyncio.fixture
async def millstream(tmp_path: Path) -> AsyncIterator[Millstream]:
    async with make_millstream(tmp_path) as running:
        yield running


def durable_of(millstream: Millstream) -> DurableStore:
    assert millstream._durable is not None
    return millstream._durable


async def publish(millstream: Millstream, queue: Queue, count: int) -> None:
    """Until they are durable."""
    for _ in range(count):
        queue.append(Message(b"$queue/readings/a", b"21.5", 1, False, b"", 0, "sensor"))
    durable = durable_of(millstream)
    durable.log.flush()
    async with asyncio.timeout(30):
        while queue.visible < queue.next:  # noqa: ASYNC110 a thread of the log moves it: there is no event
            await asyncio.sleep(0.001)


def offsets(data_dir: Path, queue: Queue) -> list[int]:
    reader = SegmentReader(RealDisk(data_dir))
    try:
        found = reader.read(queue.number, 0, queue.next, 1_000_000, 1 << 30)
    finally:
        reader.close()
    assert not found.damage
    return [record_offset(body) for body in found.bodies]


async def test_everything_durable_is_in_segments_afterwards(millstream: Millstream, tmp_path: Path) -> None:
    queue = make_stream(millstream)
    for _ in range(3):
        await publish(millstream, queue, 700)
        await durable_of(millstream).seal()
        assert queue.sealed() == queue.visible == queue.next
        assert offsets(tmp_path, queue) == list(range(queue.next))


async def test_without_anything_new_the_files_stay_as_they_are(
    millstream: Millstream, tmp_path: Path
) -> None:
    queue = make_stream(millstream)
    await publish(millstream, queue, 1)
    await durable_of(millstream).seal()
    files = sorted((tmp_path / "log").iterdir())
    await durable_of(millstream).seal()
    assert sorted((tmp_path / "log").iterdir()) == files


async def test_many_who_ask_at_once_share_one_run(millstream: Millstream, tmp_path: Path) -> None:
    queue = make_stream(millstream)
    await publish(millstream, queue, 10)
    before = durable_of(millstream)._files.current()
    await asyncio.gather(*[durable_of(millstream).seal() for _ in range(50)])
    assert durable_of(millstream)._files.current() == before + 1
    assert queue.sealed() == 10


async def test_records_are_appended_and_sealed_at_the_same_time(
    millstream: Millstream, tmp_path: Path
) -> None:
    queue = make_stream(millstream)
    is_done = asyncio.Event()

    async def seal() -> None:
        while not is_done.is_set():
            visible = int(queue.visible)
            await durable_of(millstream).seal()
            assert queue.sealed() >= visible
            await asyncio.sleep(0)  # with nothing to do it comes back at once

    sealing = [asyncio.create_task(seal()) for _ in range(3)]
    for _ in range(30):
        await publish(millstream, queue, 50)
    is_done.set()
    await asyncio.gather(*sealing)
    await durable_of(millstream).seal()
    assert offsets(tmp_path, queue) == list(range(1500))


async def test_small_files_that_fill_by_themselves_do_not_disturb(tmp_path: Path) -> None:
    async with make_millstream(tmp_path, log_file_size="64KiB", segment_size="64KiB") as millstream:
        queue = make_stream(millstream)
        for _ in range(10):
            await publish(millstream, queue, 300)
            await durable_of(millstream).seal()
        assert queue.sealed() == 3000
        assert offsets(tmp_path, queue) == list(range(3000))


async def test_what_an_earlier_run_left_in_the_log_is_sealed_as_well(tmp_path: Path) -> None:
    async with make_millstream(tmp_path) as millstream:
        await publish(millstream, make_stream(millstream), 5)
    async with make_millstream(tmp_path) as millstream:
        queue = make_stream(millstream)
        await durable_of(millstream).seal()
        assert queue.sealed() == 5


async def test_without_a_sync_per_batch_it_works_the_same(tmp_path: Path) -> None:
    async with make_millstream(tmp_path, durability="os") as millstream:
        queue = make_stream(millstream)
        for _ in range(3):
            await publish(millstream, queue, 100)
            await durable_of(millstream).seal()
        assert queue.sealed() == 300
        assert offsets(tmp_path, queue) == list(range(300))


async def test_while_a_backup_holds_the_files_it_waits(millstream: Millstream, tmp_path: Path) -> None:
    queue = make_stream(millstream)
    await publish(millstream, queue, 5)
    await durable_of(millstream).seal()
    await publish(millstream, queue, 5)
    with hold_checkpoints(tmp_path):
        sealing = asyncio.create_task(durable_of(millstream).seal())
        await publish(millstream, queue, 5)
        assert queue.sealed() == 5
    await sealing
    assert queue.sealed() >= 10


async def test_a_disk_without_room_for_the_next_file_refuses(
    millstream: Millstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_stream(millstream)
    await publish(millstream, queue, 5)

    def refuse(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(Unavailable, match="no space left"):
        await durable_of(millstream).seal()
    monkeypatch.undo()
    await publish(millstream, queue, 5)
    await durable_of(millstream).seal()
    assert queue.sealed() == 10


async def test_a_log_that_has_failed_refuses(millstream: Millstream) -> None:
    queue = make_stream(millstream)
    await publish(millstream, queue, 5)
    durable_of(millstream).log.on_failed("the log cannot be synced")
    with pytest.raises(Unavailable, match="cannot be synced"):
        await durable_of(millstream).seal()


async def test_a_checkpoint_that_dies_is_told_and_the_next_one_does_its_work(millstream: Millstream) -> None:
    queue = make_stream(millstream)
    await publish(millstream, queue, 5)
    durable = durable_of(millstream)
    await durable.seal()
    await publish(millstream, queue, 5)
    process = durable._checkpoints._process
    assert process is not None
    process.kill()
    await process.wait()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(durable._checkpoints), "_start", _refuse_start)
        with pytest.raises(Unavailable, match="no process"):
            await durable.seal()
    await durable.seal()
    assert queue.sealed() == 10


async def _refuse_start(checkpoints: object) -> None:
    raise OSError("no process")


async def test_damage_is_named_once_however_often_its_checkpoint_fails(
    millstream: Millstream, tmp_path: Path
) -> None:
    queue = make_stream(millstream)
    durable = durable_of(millstream)
    await publish(millstream, queue, 3)
    path = sorted((tmp_path / "log").glob("*.log"))[-1]
    data = path.read_bytes()
    at = data.rindex(b"sensor")
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    folder = tmp_path / "queues" / str(queue.number)
    folder.parent.mkdir(exist_ok=True)
    folder.touch()  # no segment can be made in it
    for _ in range(3):
        with pytest.raises(Unavailable, match="could not be folded"):
            await durable.seal()
    named = durable._health.find(STORAGE_DAMAGED)
    assert named is not None
    assert named.count == 0  # no more than the first
    folder.unlink()
    await durable.seal()
    named = durable._health.find(STORAGE_DAMAGED)
    assert named is not None
    assert named.count == 0
