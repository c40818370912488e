"""Old records come to the loop from a thread; what cannot be read is told once, and never taken for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from segment_records import make_body, offset_of

from millstream.runtime.disk import segment_thread
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.segment_thread import BYTES_MAX, COUNT_MAX, SegmentThread
from millstream.storage.disk import DiskFault, DiskFile
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.format import segment_name
from millstream.storage.segments.record_source import RecordWaiter
from millstream.storage.segments.writer import SegmentWriter

WAIT_S = 20  # only for a test that has failed


class Waiter(RecordWaiter):
    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[list[int], int]] = asyncio.get_running_loop().create_future()

    def on_records(self, bodies: list[bytes], end: int) -> None:
        assert asyncio.get_running_loop() is self.answer.get_loop()
        self.answer.set_result(([offset_of(body) for body in bodies], end))


class Source:
    """A data directory with records of queue 1, and the thread that reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damage: list[Damage] = []
        self.trouble: list[str] = []
        self.disk = FaultyDisk(folder)
        self.thread = SegmentThread(self.disk, self.damage.append, self.trouble.append)

    def write(self, bodies: list[bytes]) -> None:
        writer = SegmentWriter(self.disk, NoFailpoints(), 64 << 20)
        for body in bodies:
            writer.append(1, body)
        writer.finish()

    async def ask(self, first: int, end: int) -> tuple[list[int], int]:
        waiter = Waiter()
        self.thread.request(1, first, end, waiter)
        return await asyncio.wait_for(waiter.answer, WAIT_S)


class FaultyDisk(RealDisk):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.faults = 0

    def open(self, name: str) -> DiskFile:
        if self.faults and name.endswith(".segment"):
            self.faults -= 1
            raise DiskFault(f"{name}: Input/output error")
        return super().open(name)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path)
    yield made
    made.thread.close()


async def test_records_arrive_on_the_loop_with_the_end_that_was_asked_for(source: Source) -> None:
    source.write([make_body(1, offset) for offset in range(0, 20, 2)])
    assert await source.ask(3, 11) == ([4, 6, 8, 10], 11)
    assert await source.ask(18, 500) == ([18], 500)


async def test_a_request_for_what_is_not_there_is_answered_with_nothing(source: Source) -> None:
    assert await source.ask(5, 9) == ([], 9)


async def test_a_long_answer_is_cut_and_says_where_to_go_on(source: Source) -> None:
    source.write([make_body(1, offset) for offset in range(COUNT_MAX + 10)])
    assert await source.ask(0, COUNT_MAX + 10) == (list(range(COUNT_MAX)), COUNT_MAX)
    assert await source.ask(COUNT_MAX, COUNT_MAX + 10) == (
        list(range(COUNT_MAX, COUNT_MAX + 10)),
        COUNT_MAX + 10,
    )


async def test_large_records_come_a_few_at_a_time(source: Source) -> None:
    source.write([make_body(1, offset, BYTES_MAX // 2 + 1) for offset in range(3)])
    assert await source.ask(0, 3) == ([0], 1)


async def test_answers_come_in_the_order_of_the_requests(source: Source) -> None:
    source.write([make_body(1, offset) for offset in range(100)])
    waiters = [Waiter() for _ in range(50)]
    done: list[int] = []
    for number, waiter in enumerate(waiters):
        waiter.answer.add_done_callback(lambda _, number=number: done.append(number))
        source.thread.request(1, number, number + 3, waiter)
    await asyncio.wait_for(asyncio.gather(*[waiter.answer for waiter in waiters]), WAIT_S)
    assert done == list(range(50))


async def test_single_records_and_times_are_found_at_once(source: Source) -> None:
    source.write([make_body(1, offset) for offset in range(100)])
    assert [offset_of(body) for body in source.thread.read(1, 7, 100, 2)] == [7, 8]
    assert source.thread.find_time(1, 1000 + 42) == 42
    assert source.thread.find_time(1, 5000) == -1


async def test_damage_is_told_once_and_the_others_still_come(source: Source) -> None:
    source.write([make_body(1, offset) for offset in range(10)])
    path = source.folder / segment_name(1, 0)
    data = bytearray(path.read_bytes())
    data[32 + 4 * 72 + 50] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        assert await source.ask(0, 10) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], 10)
        assert len(source.thread.read(1, 0, 10, 100)) == 9
    assert [(damage.start, damage.end) for damage in source.damage] == [(32 + 4 * 72, 32 + 5 * 72)]


async def test_what_cannot_be_read_now_is_asked_for_again(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_thread, "RETRY_S", 0.0)
    source.write([make_body(1, offset) for offset in range(10)])
    source.disk.faults = 3
    assert await source.ask(2, 6) == ([2, 3, 4, 5], 6)
    assert source.damage == []
    assert "Input/output error" in source.trouble[0]
    await source.ask(2, 6)  # that all is well is told behind the answer
    assert source.trouble[-1] == ""
    source.disk.faults = 1
    with pytest.raises(DiskFault):
        source.thread.read(1, 2, 6, 10)


async def test_a_closed_source_ends_its_thread(source: Source) -> None:
    source.thread.close()
    assert not source.thread._thread.is_alive()
