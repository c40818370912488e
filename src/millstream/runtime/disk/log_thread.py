"""Writes and syncs batches away from the loop: by the kernel where it can, else in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import mypyc_attr

from millstream.runtime.disk.folder_watch import FolderWatch
from millstream.runtime.disk.kernel_sync import KernelSync
from millstream.runtime.loop.clock import read_clock_ns
from millstream.runtime.loop.short_timer import ShortTimer, open_short_timer
from millstream.storage.disk import DiskFault
from millstream.storage.log.files import LogFiles
from millstream.storage.log.write_ahead_log import Batch, BatchWriter, Log

RETRY_S: Final = 0.25  # how often a disk that took nothing is asked again
LINGER_SYNC_NS: Final = 1_000_000  # a sync this long is worth waiting for company
LINGER_SHARE: Final = 8  # of the last sync's length, until the first look at who has come
LINGER_AGAIN_SHARE: Final = 16  # and from look to look, as long as more come
LINGER_MAX_SHARE: Final = 2  # in all
LINGER_NS_MAX: Final = 1_000_000  # between two looks
LINGER_ALL_NS_MAX: Final = 5_000_000  # in all, whatever the last sync took: a disk may have stood still
SYNC_INTERVAL_S: Final = (
    0.5  # without a sync per batch; with the sync itself all is safe within the second we state
)


@final
class Pace:
    """How long it waits: after a disk that took nothing, between syncs of their own, and for company."""

    def __init__(
        self,
        retry_s: float = RETRY_S,
        sync_interval_s: float = SYNC_INTERVAL_S,
        linger_sync_ns: int = LINGER_SYNC_NS,
    ) -> None:
        self.retry_s = retry_s
        self.sync_interval_s = sync_interval_s
        self.linger_sync_ns = linger_sync_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class LogThread(BatchWriter):
    """`on_progress` runs on the loop after each answer."""

    def __init__(
        self,
        files: LogFiles,
        on_progress: Callable[[], None],
        kernel: KernelSync | None = None,
        pace: Pace | None = None,
        find_loss: Callable[[], str] | None = None,
        watch: FolderWatch | None = None,
    ) -> None:
        self._watch = watch  # of the folder of the files; without one it is looked at them each time
        self._find_loss = find_loss  # why what is written would not be found again, or nothing
        self._looked_s = time.monotonic()  # by the start, just now
        self._is_lost = False
        self._pace = pace or Pace()
        self._files = files
        self._kernel = kernel  # syncs without the thread, where it can and no new file is needed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_progress = on_progress
        self._batches: queue.SimpleQueue[tuple[Batch, Log] | Callable[[], None] | None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._is_syncing = False  # the kernel has a batch
        self._is_end_due = False  # the file ends as soon as it has none
        self._is_ending = False  # batches wait behind that
        self._on_file_ended: Callable[[str], None] | None = None
        self._synced_s = 0.0
        self._started_ns = 0  # when the batch under way was handed over
        self._timer: ShortTimer | None = None
        self._took_ns = 0  # by the last batch, from here to its answer
        self._linger_end_ns = 0
        self._gathered = 0  # bytes, when it was last looked at
        self._log: Log | None = None
        self._fault = ""  # of this thread itself: it writes nothing any more
        self._worker = threading.Thread(target=self._run, name="log", daemon=True)
        self._worker.start()

    def submit(self, batch: Batch, log: Log) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            if self._kernel is not None:
                self._kernel.listen(self._loop)
            if self._watch is not None:
                self._watch.listen(self._loop)
            if self._files.with_sync:
                self._timer = open_short_timer(self._loop, partial(self._on_ring, log))
        self._started_ns = read_clock_ns()
        self._log = log
        if self._is_ending or not self._files.fits(batch) or not self._start(batch, log):
            self._batches.put((batch, log))

    def _start(self, batch: Batch, log: Log) -> bool:
        """Write here, into the page cache, and let the kernel sync; False: the thread has to do it."""
        files = self._files
        kernel = self._kernel
        descriptor = files.descriptor()
        if descriptor < 0 or (files.with_sync and kernel is None):
            return False
        place = files.place()
        try:
            files.put(batch)
        except DiskFault:
            return False  # the thread tries again, as often as it takes
        if kernel is None:
            if not self._still_has_name():
                return True  # it is fenced
            files.is_unsynced = True  # the thread syncs it within a second
            log.on_written(batch)
            self._log = log
            self._on_progress()
            return True
        if kernel.start(descriptor, partial(self._on_synced, batch, log)):
            self._is_syncing = True
            return True
        files.go_back(place)
        return False

    def _on_synced(self, batch: Batch, log: Log, error: int) -> None:
        self._is_syncing = False
        has_name = not error and self._still_has_name()  # before the thread may close the file
        if self._is_end_due:
            self._end_now()
        if error:
            log.on_failed(f"the log cannot be synced: {os.strerror(error)}")
        elif has_name:
            self._files.on_synced()
            log.on_written(batch, self._lingers(log))
        self._on_progress()

    def _lingers(self, log: Log) -> bool:
        """Whether the log should wait for those who are being confirmed now, and see to it that the wait ends."""
        now_ns = read_clock_ns()
        self._took_ns = now_ns - self._started_ns
        if self._timer is None or self._took_ns < self._pace.linger_sync_ns:
            return False
        self._linger_end_ns = now_ns + min(self._took_ns // LINGER_MAX_SHARE, LINGER_ALL_NS_MAX)
        self._gathered = int(log.unsafe_bytes())
        self._timer.start(min(self._took_ns // LINGER_SHARE, LINGER_NS_MAX))
        return True

    def _on_ring(self, log: Log) -> None:
        """They come one after another: wait on while more come, up to a part of a sync."""
        gathered = int(log.unsafe_bytes())
        if (
            gathered > self._gathered
            and time.monotonic_ns() < self._linger_end_ns
            and self._timer is not None
        ):
            self._gathered = gathered
            self._timer.start(min(self._took_ns // LINGER_AGAIN_SHARE, LINGER_NS_MAX))
        else:
            log.go_on()

    def end_file(self, on_ended: Callable[[str], None]) -> None:
        """End the file that is written now, between two batches, with the next one made ready before: `on_ended` gets
        nothing, or why not. `files.sealed` has it then. Only after something was submitted."""
        self._batches.put(partial(self._prepare, on_ended))

    def _prepare(self, on_ended: Callable[[str], None]) -> None:
        try:
            self._files.prepare()
        except DiskFault as fault:
            self._answer(partial(on_ended, fault.text))  # nothing has changed
            return
        self._answer(partial(self._on_prepared, on_ended))

    def _on_prepared(self, on_ended: Callable[[str], None]) -> None:
        self._on_file_ended = on_ended
        if self._is_syncing:
            self._is_end_due = True
        else:
            self._end_now()

    def _end_now(self) -> None:
        self._is_end_due = False
        self._is_ending = True
        self._batches.put(self._end)

    def _end(self) -> None:
        try:
            self._files.end_file()
        except DiskFault as fault:
            self._answer(partial(self._on_ended, fault.text, fault.is_sync))
            return
        self._answer(partial(self._on_ended, "", False))

    def _on_ended(self, fault: str, is_sync: bool) -> None:
        self._is_ending = False
        if is_sync and self._log is not None:
            self._log.on_failed(fault)
        if self._on_file_ended is not None:
            self._on_file_ended(fault)

    def close(self) -> bool:
        """Write what was submitted, then end; whether all of it is safe."""
        self._is_closing.set()
        if self._timer is not None:
            self._timer.close()
        if self._kernel is not None:
            self._kernel.close()
        if self._watch is not None:
            self._watch.close()
        self._batches.put(None)
        self._worker.join(timeout=10)
        try:
            self._files.close()
        except (DiskFault, OSError):  # the log has been told
            return False
        return self._files.is_sound() and not self._fault and not self._worker.is_alive()

    def _run(self) -> None:
        while True:
            try:
                job = self._batches.get(timeout=self._pace.sync_interval_s)
            except queue.Empty:
                job = self._idle
            try:
                self._do(self._sync if job is None else job)
            except Exception as error:  # noqa: BLE001 -- a thread that ends would leave everybody waiting
                self._fence(error)
            if job is None:
                return

    def _idle(self) -> None:
        self._sync()
        self._look()

    def _do(self, job: tuple[Batch, Log] | Callable[[], None]) -> None:
        if callable(job):
            job()
            return
        self._log = job[1]
        self._write(*job)
        if time.monotonic() - self._synced_s >= self._pace.sync_interval_s:
            self._synced_s = time.monotonic()
            self._sync()
        if time.monotonic() - self._looked_s >= self._pace.sync_interval_s:
            self._look()

    def _fence(self, error: Exception) -> None:
        """What no part of the disk has answered for: nothing is confirmed any more, and whoever waits is told."""
        self._fault = f"the thread of the log failed: {str(error) or type(error).__name__}"
        if self._log is not None:
            self._answer(partial(self._log.on_failed, self._fault))
        if self._on_file_ended is not None:
            self._answer(partial(self._on_ended, self._fault, False))

    def _still_has_name(self) -> bool:
        """The same in the loop, which hears of what is removed: it is looked at only then."""
        watch = self._watch
        if watch is not None:
            if not watch.has_changed:
                return not self._is_lost
            watch.has_changed = False
        return self._has_name()

    def _has_name(self) -> bool:
        """Whether the file of the log can be found by the next start: before anything in it is confirmed."""
        descriptor = self._files.descriptor()
        if self._find_loss is None or descriptor < 0 or os.fstat(descriptor).st_nlink:
            return True
        self._lose("the file of the log was removed while the broker runs")
        return False

    def _lose(self, loss: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            assert self._log is not None
            self._answer(partial(self._log.on_failed, loss))

    def _look(self) -> bool:
        """Whether the files of the log are still where a start would look for them. If not, the log is fenced."""
        self._looked_s = time.monotonic()
        if self._find_loss is None or self._log is None:
            return True
        loss = self._find_loss()
        if not loss:
            return self._has_name()
        self._lose(loss)
        return False

    def _sync(self) -> None:
        """Without a sync per batch: now and then. A fault fences like any other."""
        try:
            self._files.sync()
        except DiskFault as fault:
            if self._log is not None:
                self._answer(partial(self._log.on_failed, fault.text))

    def _write(self, batch: Batch, log: Log) -> None:
        while True:
            if self._fault:
                self._answer(partial(log.on_failed, self._fault))
                return
            try:
                self._files.write(batch)
            except DiskFault as fault:
                # what could not be written can be written again; what could not be synced cannot
                if not fault.is_sync and not self._is_closing.is_set():
                    if not self._look():
                        return
                    self._answer(partial(log.on_full, fault.text, fault.is_full))
                    time.sleep(self._pace.retry_s)
                    continue
                self._answer(partial(log.on_failed, fault.text))
                return
            if not self._has_name():
                return
            self._answer(lambda: log.on_written(batch, self._lingers(log)))
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
