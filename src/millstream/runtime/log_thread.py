"""Writes and syncs batches in a thread of its own and brings the answer back to the loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from millstream.storage.disk import DiskFault
from millstream.storage.log import Batch, BatchWriter, Log
from millstream.storage.log_files import LogFiles

RETRY_S: Final = 0.25  # how often a disk that took nothing is asked again
SYNC_INTERVAL_S: Final = 1.0  # without a sync per batch, this is the window that a power cut can take


class LogThread(BatchWriter):
    """`on_progress` runs on the loop after each answer."""

    def __init__(self, files: LogFiles, on_progress: Callable[[], None]) -> None:
        self._files = files
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_progress = on_progress
        self._batches: queue.SimpleQueue[tuple[Batch, Log] | None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._synced_s = 0.0
        self._log: Log | None = None
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch, log: Log) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._batches.put((batch, log))

    def close(self) -> None:
        """Write what was submitted, then end."""
        self._is_closing.set()
        self._batches.put(None)
        self._thread.join(timeout=10)
        with contextlib.suppress(DiskFault):  # the log has been told
            self._files.close()

    def _run(self) -> None:
        while True:
            try:
                job = self._batches.get(timeout=SYNC_INTERVAL_S)
            except queue.Empty:
                self._sync()
                continue
            if job is None:
                self._sync()
                return
            self._log = job[1]
            self._write(*job)
            if time.monotonic() - self._synced_s >= SYNC_INTERVAL_S:
                self._synced_s = time.monotonic()
                self._sync()

    def _sync(self) -> None:
        """Without a sync per batch: now and then. A fault fences like any other."""
        try:
            self._files.sync()
        except DiskFault as fault:
            if self._log is not None:
                self._answer(partial(self._log.on_failed, fault.text))

    def _write(self, batch: Batch, log: Log) -> None:
        while True:
            try:
                self._files.write(batch)
            except DiskFault as fault:
                # what could not be written can be written again; what could not be synced cannot
                if not fault.is_sync and not self._is_closing.is_set():
                    self._answer(log.on_full)
                    time.sleep(RETRY_S)
                    continue
                self._answer(partial(log.on_failed, fault.text))
                return
            self._answer(partial(log.on_written, batch))
            return

    def _answer(self, call: Callable[[], None]) -> None:
        def bring() -> None:
            call()
            self._on_progress()

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(bring)
        except RuntimeError:
            return  # the loop is closed: nobody waits for the answer any more
