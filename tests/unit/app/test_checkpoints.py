"""The process that folds the log: there while it is needed, and never twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from millstream.app.checkpoints import Checkpoints


async def test_a_process_that_nobody_asks_ends_and_the_next_question_starts_another(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1 << 20, False, idle_s=0.0)
    await checkpoints.check()
    first = checkpoints._process
    assert first is not None
    assert await first.wait() == 0
    await checkpoints.check()
    second = checkpoints._process
    assert second is not None
    assert second.pid != first.pid
    await checkpoints.close()
    assert second.returncode == 0


async def test_a_process_that_is_asked_again_in_time_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1 << 20, False, idle_s=3600.0)
    await checkpoints.check()
    first = checkpoints._process
    await checkpoints.check()
    assert checkpoints._process is first
    await checkpoints.close()


async def test_a_question_that_comes_while_the_process_ends_waits_for_its_end(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1 << 20, False, idle_s=3600.0)
    await checkpoints.check()
    first = checkpoints._process
    assert first is not None
    checkpoints._end_idle()
    await asyncio.gather(checkpoints.check(), checkpoints.check())
    assert first.returncode == 0
    await checkpoints.close()
