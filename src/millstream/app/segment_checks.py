"""After a start: all segments are read once, a bit at a time, so that damage in them is named before somebody needs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from millstream.app.checkpoints import Checkpoints

WORK_S: Final = 0.05  # after so much reading there is a pause,
SHARE: Final = 4  # so many times as long
PAUSE_S_MAX: Final = 10.0


class SegmentChecks:
    def __init__(self, checkpoints: Checkpoints, on_damage: Callable[[str], None]) -> None:
        self._checkpoints = checkpoints
        self._on_damage = on_damage
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        log = structlog.get_logger("millstream")
        segments = damaged = 0
        worked_s = 0.0
        while True:
            began = time.monotonic()
            try:
                is_more, damage, fault = await self._checkpoints.check()
            except OSError as error:
                is_more, damage, fault = False, [], str(error.strerror or error)
            for sentence in damage:
                self._on_damage(sentence)
            damaged += bool(damage)
            if fault:
                log.warning("storage_not_checked", reason=fault, segments=segments)
                return
            if not is_more:
                log.info("storage_checked", segments=segments, damaged=damaged)
                return
            segments += 1
            worked_s += time.monotonic() - began
            if worked_s >= WORK_S:
                await asyncio.sleep(min(SHARE * worked_s, PAUSE_S_MAX))
                worked_s = 0.0

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
