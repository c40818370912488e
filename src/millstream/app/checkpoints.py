"""The process that folds the log: started when there is something to fold, asked again as long as it lives.

It takes as much memory as a small broker, so it ends when nobody has asked it for a while.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from millstream.runtime.processes.checkpoint_process import (
    CHECK,
    CHECKED,
    DAMAGE,
    DONE,
    FAILED,
    FOLDED,
    PACKED,
)

IDLE_S: Final = 15.0
UNREADABLE: Final = "its answer is too long to be read"


class Folded:
    """What came of folding. `file` and `sequence`: how far the table goes, by its own word."""

    def __init__(self, fault: str, damage: list[str], file: int = 0, sequence: int = 0) -> None:
        self.fault = fault  # why it failed, or nothing
        self.damage = damage
        self.file = file
        self.sequence = sequence


class Checkpoints:
    def __init__(self, data_dir: Path, segment_size: int, is_packed: bool, idle_s: float = IDLE_S) -> None:
        self._data_dir = data_dir
        self._segment_size = segment_size
        self._is_packed = is_packed
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.subprocess.Process | None = None  # it was idle
        self._idle_s = idle_s
        self._idle: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()  # it does one thing at a time

    async def fold(self, last_file: int, last_sequence: int) -> Folded:
        """Up to a file that ends with this fact."""
        answer, damage = await self._ask(b"%d %d" % (last_file, last_sequence))
        if not answer.startswith(FOLDED):
            return Folded(answer, damage)
        file, sequence = answer[len(FOLDED) :].split()
        return Folded("", damage, int(file), int(sequence))

    async def check(self) -> tuple[bool, list[str], str]:
        """Read the next segment: (whether there was one, what is damaged, why it failed or nothing)."""
        answer, damage = await self._ask(CHECK.encode())
        return answer == DONE, damage, ("" if answer in (DONE, CHECKED) else answer)

    async def _ask(self, question: bytes) -> tuple[str, list[str]]:
        """(DONE, FOLDED and how far, CHECKED or why it failed, what is damaged)."""
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            try:
                answer = await self._ask_now(question)
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)
                return answer
            except asyncio.CancelledError:
                if self._process is not None and self._process.returncode is None:
                    self._process.kill()  # nobody else may be given its answer; it can be killed at any moment
                    await self._process.wait()
                raise

    def _end_idle(self) -> None:
        process = self._process
        if self._turn.locked() or process is None or process.stdin is None:
            return
        process.stdin.close()  # which it takes as the end
        self._process, self._ending = None, process

    async def _ask_now(self, question: bytes) -> tuple[str, list[str]]:
        process = self._process
        if process is None or process.returncode is not None:
            await self._await_end()
            process = self._process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        damage: list[str] = []
        last = "it was killed"
        try:
            process.stdin.write(question + b"\n")
            await process.stdin.drain()
            while True:
                line = (await process.stdout.readline()).decode(errors="replace").rstrip("\n")
                if not line:
                    await process.wait()
                    return last, damage
                if line in (DONE, CHECKED) or line.startswith(FOLDED):
                    return line, damage
                if line.startswith(FAILED):
                    return line[len(FAILED) :], damage
                if line.startswith(DAMAGE):
                    damage.append(line[len(DAMAGE) :])
                else:
                    last = line  # the end of what it had to say of its own death
        except (BrokenPipeError, ConnectionResetError):
            await process.wait()
            return last, damage
        except ValueError:  # of what it says after this nobody knows which question it answers
            process.kill()
            await process.wait()
            return UNREADABLE, damage

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "millstream.runtime.processes.checkpoint_process",
            str(self._data_dir),
            str(self._segment_size),
            str(os.getpid()),
            *([PACKED] if self._is_packed else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # the C library's memory can be kept between files (runtime/memory/allocator.py), Python's own goes back after each
            env={**os.environ, "PYTHONMALLOC": "malloc", "PYTHONIOENCODING": "utf-8"},
        )

    async def _await_end(self) -> None:
        """There is never more than one of them."""
        if self._ending is not None:
            await self._ending.wait()
            self._ending = None

    async def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        await self._await_end()
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.close()
            await process.wait()
