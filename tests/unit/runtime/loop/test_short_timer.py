"""The timer of the log: it rings once per start, and not after it was closed."""

from __future__ import annotations

import asyncio

from millstream.runtime.loop.short_timer import open_short_timer


async def test_it_rings_once_for_every_start() -> None:
    rings: list[int] = []
    rung = asyncio.Event()

    def on_ring() -> None:
        rings.append(1)
        rung.set()

    timer = open_short_timer(asyncio.get_running_loop(), on_ring)
    assert timer is not None
    for expected in (1, 2):
        timer.start(50_000)
        await asyncio.wait_for(rung.wait(), 10)
        rung.clear()
        assert len(rings) == expected
    timer.close()


async def test_a_new_start_forgets_the_one_before() -> None:
    rung = asyncio.Event()
    timer = open_short_timer(asyncio.get_running_loop(), rung.set)
    assert timer is not None
    timer.start(3600 * 1_000_000_000)
    timer.start(1)
    await asyncio.wait_for(rung.wait(), 10)
    timer.close()


async def test_a_closed_timer_does_not_ring() -> None:
    rings: list[int] = []
    loop = asyncio.get_running_loop()
    timer = open_short_timer(loop, lambda: rings.append(1))
    other = asyncio.Event()
    later = open_short_timer(loop, other.set)
    assert timer is not None
    assert later is not None
    timer.start(1_000_000)
    timer.close()
    timer.close()  # twice is no fault
    later.start(2_000_000)
    await asyncio.wait_for(other.wait(), 10)
    assert rings == []
    later.close()
