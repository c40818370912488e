"""One flush per loop iteration, and deferred work behind it."""

from __future__ import annotations

import asyncio

from fakes import FakeLine

from millstream.model.outbox import FLUSH_NS, FLUSHES_PER_LOOK, Outbox, OutboxPool
from millstream.runtime.loop.wakeup import LoopWakeup


class Writer(FakeLine):
    def __init__(self, pool: OutboxPool) -> None:
        super().__init__()
        self.outbox = Outbox(pool, self)
        self.writes: list[bytes] = []

    def flush(self) -> None:
        self.writes.append(self.outbox.take_all())


async def turn() -> None:
    """Let everything that is ready run once."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_all_that_was_written_in_one_iteration_is_flushed_once() -> None:
    wakeup = LoopWakeup(asyncio.get_running_loop())
    pool = OutboxPool(wakeup)
    wakeup.start(pool, lambda: False)
    writers = [Writer(pool), Writer(pool)]
    for number in range(5):
        for writer in writers:
            writer.outbox.write(b"%d" % number)
    assert writers[0].writes == []
    await turn()
    assert [writer.writes for writer in writers] == [[b"01234"], [b"01234"]]
    writers[0].outbox.write(b"again")
    await turn()
    assert writers[0].writes == [b"01234", b"again"]


async def test_deferred_work_goes_on_in_later_iterations_until_there_is_none() -> None:
    wakeup = LoopWakeup(asyncio.get_running_loop())
    left = [3]

    def work() -> bool:
        left[0] -= 1
        return left[0] > 0

    wakeup.start(OutboxPool(wakeup), work)
    wakeup.request()
    wakeup.request()
    for _ in range(10):
        await asyncio.sleep(0)
    assert left[0] == 0


async def test_a_request_before_the_start_is_harmless() -> None:
    wakeup = LoopWakeup(asyncio.get_running_loop())
    wakeup.request()
    await turn()
    pool = OutboxPool(wakeup)
    wakeup.start(pool, lambda: False)
    writer = Writer(pool)
    writer.outbox.write(b"x")
    await turn()
    assert writer.writes == [b"x"]


async def test_what_the_work_behind_a_flush_brings_about_is_sent_in_the_same_turn() -> None:
    wakeup = LoopWakeup(asyncio.get_running_loop())
    pool = OutboxPool(wakeup)
    writer = Writer(pool)
    answers = [b"confirmed"]

    def confirm() -> bool:
        if answers:
            writer.outbox.write(answers.pop())
        return False

    wakeup.start(pool, confirm)
    wakeup.request()
    await asyncio.sleep(0)  # one turn of the loop
    assert writer.writes == [b"confirmed"]


async def test_work_that_never_ends_lets_the_loop_turn() -> None:
    wakeup = LoopWakeup(asyncio.get_running_loop())
    pool = OutboxPool(wakeup)
    writer = Writer(pool)
    rounds = [0]

    def confirm() -> bool:
        rounds[0] += 1
        if rounds[0] < 100:
            writer.outbox.write(b"x")
        return False

    wakeup.start(pool, confirm)
    wakeup.request()
    await asyncio.sleep(0)
    assert rounds[0] == 2  # the rest waits for later turns
    for _ in range(60):
        await asyncio.sleep(0)
    assert rounds[0] == 100
    assert b"".join(writer.writes) == b"x" * 99


async def test_an_error_in_the_work_behind_a_flush_does_not_end_all_writing() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    wakeup = LoopWakeup(loop)
    pool = OutboxPool(wakeup)
    faults = [ValueError("a bug")]

    def work() -> bool:
        if faults:
            raise faults.pop()
        return False

    wakeup.start(pool, work)
    wakeup.request()
    await turn()
    writer = Writer(pool)
    writer.outbox.write(b"x")
    await turn()
    assert writer.writes == [b"x"]


class SlowWriter(Writer):
    """Takes all the time of a turn to be written to."""

    def __init__(self, pool: OutboxPool, time_ns: list[int]) -> None:
        super().__init__(pool)
        self.time_ns = time_ns

    def flush(self) -> None:
        super().flush()
        self.time_ns[0] += FLUSH_NS


async def test_output_that_a_turn_has_no_time_for_waits_for_the_next_one() -> None:
    wakeup = LoopWakeup(asyncio.get_running_loop())
    time_ns = [1]
    pool = OutboxPool(wakeup, lambda: time_ns[0])
    wakeup.start(pool, lambda: False)
    writers = [SlowWriter(pool, time_ns) for _ in range(3 * int(FLUSHES_PER_LOOK))]
    for writer in writers:
        writer.outbox.write(b"x")
    written: list[int] = []
    while len(written) < 3:
        before = sum(len(writer.writes) for writer in writers)
        await asyncio.sleep(0)
        after = sum(len(writer.writes) for writer in writers)
        if after > before:
            written.append(after)
    assert written == [8, 16, 24]
