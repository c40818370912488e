"""A broker with a planted bug: it confirms at once and writes up to 200 ms later. The checker must find it out.

Started like the real one: `python -m crash.hasty serve`. All parts are the real ones but the thread of the log.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import millstream.app.storage
from millstream.cli import main
from millstream.runtime.disk.folder_watch import FolderWatch
from millstream.runtime.disk.kernel_sync import KernelSync
from millstream.runtime.disk.log_thread import LogThread
from millstream.storage.log.files import LogFiles
from millstream.storage.log.write_ahead_log import Batch, Log

HELD_S: Final = 0.2


class HastyLogThread(LogThread):
    def __init__(
        self,
        files: LogFiles,
        on_progress: Callable[[], None],
        kernel: KernelSync | None = None,
        find_loss: Callable[[], str] | None = None,
        watch: FolderWatch | None = None,
    ) -> None:
        self._due_s: deque[float] = deque()
        super().__init__(
            files, on_progress, find_loss=find_loss, watch=watch
        )  # without the kernel: every batch goes through the thread

    def submit(self, batch: Batch, log: Log) -> None:
        self._due_s.append(time.monotonic() + HELD_S)
        super().submit(batch, log)
        asyncio.get_running_loop().call_soon(self._confirm, batch, log)

    def _confirm(self, batch: Batch, log: Log) -> None:
        log.on_written(batch)
        self._on_progress()

    def _write(self, batch: Batch, log: Log) -> None:
        time.sleep(max(0.0, self._due_s.popleft() - time.monotonic()))
        self._files.write(batch)


if __name__ == "__main__":
    setattr(millstream.app.storage, "LogThread", HastyLogThread)  # noqa: B010 -- a name of that module
    main()
