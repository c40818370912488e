"""The process that folds the log: there while it is needed, and never twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from data_directory import STREAM, DataDirectory

from millstream.app.checkpoints import UNREADABLE, Checkpoints
from millstream.runtime.processes.checkpoint_process import CUT


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


async def test_a_sentence_about_damage_is_cut_before_it_is_too_long_for_a_line(tmp_path: Path) -> None:
    """What comes after it is the answer to the same question, and not to the next one."""
    made = DataDirectory(tmp_path)
    made.start()
    made.declare(STREAM, "history" * 6000, "stream")
    made.append(STREAM, 14)
    made.fold()
    made.stop()
    path = made.segments(STREAM)[0]
    data = bytearray(path.read_bytes())
    for offset in (1, 3, 5):  # each is named with the queue
        data[data.index(b"%d of %d" % (offset, STREAM))] ^= 1
    path.write_bytes(data)
    checkpoints = Checkpoints(tmp_path, 1 << 20, False, idle_s=3600.0)
    is_more, damage, fault = await checkpoints.check()
    assert (is_more, fault) == (True, "")
    assert path.name in damage[0]
    assert damage[0].endswith(CUT)
    assert await checkpoints.check() == (True, [], "")
    folded = await checkpoints.fold(0, 0)
    assert (folded.fault, folded.damage) == ("", [])
    await checkpoints.close()


async def test_a_process_whose_answer_cannot_be_read_is_never_asked_again(tmp_path: Path) -> None:
    """What it says next would be taken for the answer to another question."""
    checkpoints = Checkpoints(tmp_path, 1 << 20, False, idle_s=3600.0)
    await checkpoints.check()
    first = checkpoints._process
    assert first is not None
    assert first.stdout is not None
    first.stdout.feed_data(b"x" * (1 << 18))
    assert await checkpoints.check() == (False, [], UNREADABLE)
    assert first.returncode is not None
    assert await checkpoints.check() == (False, [], "")
    await checkpoints.close()
