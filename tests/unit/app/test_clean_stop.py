"""Where the mark of a clean stop comes from and what takes it away, on a real data directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from queue_world import FakeConsumer

from millstream.app.server import Millstream
from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.config.load import config_of
from millstream.maintenance.backup import make_backup, restore_backup
from millstream.maintenance.repair import repair_storage
from millstream.maintenance.survey import survey_storage
from millstream.model.message import Message
from millstream.queues.definition import Definition
from millstream.queues.queue import Queue
from millstream.runtime.disk.data_folder import StorageFault
from millstream.runtime.disk.files import RealDisk
from millstream.storage.log.files import FOLDER
from millstream.storage.marks.stop_mark import NAME, StopMark, find_mark, write_mark

OFF = {"enabled": False}


def make_millstream(data_dir: Path, **sections: object) -> Millstream:
    values = {"data_dir": str(data_dir), "mqtt": {"port": 0}, "websocket": OFF, "amqp": OFF}
    return Millstream(config_of({**values, **sections}))


def find_queue(millstream: Millstream, name: str = "jobs") -> Queue:
    return millstream.broker.get_account(DEFAULT_ACCOUNT).queues.catalog.get(name)


def join(queue: Queue, credit: int = 100) -> FakeConsumer:
    consumer = FakeConsumer(credit=credit)
    queue.get_group("g", b"").join(consumer)
    queue.dispatch()
    return consumer


def marks(consumer: FakeConsumer) -> list[tuple[bytes, bool]]:
    return [(pending.message.payload, pending.is_repeated()) for pending in consumer.got]


async def fill(data_dir: Path) -> None:
    """Two records, one of them open with somebody who is still there when the broker stops."""
    async with make_millstream(data_dir) as millstream:
        catalog = millstream.broker.get_account(DEFAULT_ACCOUNT).queues.catalog
        queue = catalog.declare("jobs", Definition("work"))
        for payload in (b"one", b"two"):
            queue.append(Message(b"$queue/jobs", payload, 1, False, b"", 0, "maker"))
        async with asyncio.timeout(30):
            while queue.visible < queue.next:  # noqa: ASYNC110 a thread of the log moves it: there is no event
                await asyncio.sleep(0.001)
        assert marks(join(queue, credit=1)) == [(b"one", False)]


async def take(data_dir: Path) -> list[tuple[bytes, bool]]:
    async with make_millstream(data_dir) as millstream:
        assert not (data_dir / NAME).exists()
        return marks(join(find_queue(millstream)))


async def test_a_stop_marks_what_nobody_gave_back_and_nothing_else(tmp_path: Path) -> None:
    await fill(tmp_path)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert await take(tmp_path) == [(b"one", True), (b"two", False)]


async def test_without_the_mark_everything_is_redelivered(tmp_path: Path) -> None:
    await fill(tmp_path)
    (tmp_path / NAME).unlink()
    assert await take(tmp_path) == [(b"one", True), (b"two", True)]


async def test_a_start_that_is_given_up_leaves_the_mark(tmp_path: Path) -> None:
    await fill(tmp_path)
    broken = make_millstream(tmp_path, queues={"jobs": {"kind": "stream"}})
    with pytest.raises(StorageFault):
        await broken.start()
    await broken.stop()
    assert await take(tmp_path) == [(b"one", True), (b"two", False)]


async def test_a_log_that_has_failed_is_not_marked(tmp_path: Path) -> None:
    async with make_millstream(tmp_path) as millstream:
        assert millstream._durable is not None
        millstream._durable.log.on_failed("the log cannot be synced")
    assert not (tmp_path / NAME).exists()


async def test_a_restored_copy_counts_as_one_after_a_crash(tmp_path: Path) -> None:
    await fill(tmp_path / "data")
    make_backup(tmp_path / "data", tmp_path / "backup.tar", lambda step, done, total: None)
    restore_backup(tmp_path / "backup.tar", tmp_path / "copy", lambda step, done, total: None)
    assert not (tmp_path / "copy" / NAME).exists()
    assert await take(tmp_path / "copy") == [(b"one", True), (b"two", True)]
    assert await take(tmp_path / "data") == [(b"one", True), (b"two", False)]


async def test_a_survey_finds_nothing_wrong_with_it_and_a_repair_takes_it_away(tmp_path: Path) -> None:
    await fill(tmp_path)
    survey = survey_storage(tmp_path, lambda step, done, total: None)
    assert not survey.is_damaged()
    assert survey.foreign == []
    assert (tmp_path / NAME).exists()
    repair_storage(tmp_path, survey)
    assert not (tmp_path / NAME).exists()


def test_real_files_keep_a_mark(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder(FOLDER)
    assert find_mark(disk) is None
    write_mark(disk, StopMark(3, {4: 5}))
    found = find_mark(disk)
    assert found is not None
    assert (found.last_sequence, found.maybe_delivered_below) == (3, {4: 5})
