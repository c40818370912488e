"""Opens the durable store: recovers what the data directory holds, then goes on writing behind it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from millstream.app.checkpoints import Checkpoints, Folded
from millstream.app.segment_checks import SegmentChecks
from millstream.broker.conditions import CHECKPOINT_FAILING, STORAGE_DAMAGED, STORAGE_UNREADABLE
from millstream.broker.health import Health
from millstream.config.storage import Storage
from millstream.model.clock import Clock
from millstream.model.errors import Unavailable
from millstream.model.outbox import Wakeup
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.data_dir import advise, prepare_data_dir
from millstream.runtime.disk.data_folder import (
    QueueFolders,
    StorageFault,
    check_restored,
    lock,
    open_folder,
    verify_command,
)
from millstream.runtime.disk.failpoints import find_failpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.folder_guard import FolderGuard
from millstream.runtime.disk.folder_watch import open_folder_watch
from millstream.runtime.disk.kernel_sync import open_kernel_sync
from millstream.runtime.disk.log_thread import LogThread
from millstream.runtime.disk.segment_thread import SegmentThread
from millstream.runtime.disk.shared_keeper import SharedKeeper
from millstream.storage.directory import Directory
from millstream.storage.disk import DiskFault
from millstream.storage.log.files import FOLDER, PREPARED, LogFiles
from millstream.storage.log.recovery import Damage, log_names
from millstream.storage.log.write_ahead_log import Log
from millstream.storage.log_store import LogStore
from millstream.storage.manifest import OLDER
from millstream.storage.marks import doubt_mark, stop_mark
from millstream.storage.marks.doubt_mark import EVERY_SESSION, NO_SESSION
from millstream.storage.marks.stop_mark import StopMark, find_unsure, remove_mark, write_mark
from millstream.storage.recovery import Recovery
from millstream.storage.store import StoredState

FOLD_PAUSE_S: Final = 1.0  # before a checkpoint that failed is tried again; twice as long after each
FOLD_PAUSE_S_MAX: Final = 30.0
WRITE_OUT_S: Final = 2.0  # at the end, for a disk that takes nothing
CHECKPOINT_END_S: Final = 10.0  # at the end, for a checkpoint that is under way


def _refuse(data_dir: Path, fault: DiskFault) -> StorageFault:
    return StorageFault(f"{data_dir}: {fault.text}", advise(data_dir, fault, verify_command(data_dir)))


class DurableStore:
    """The log, its thread and its checkpoints, behind one `store`."""

    def __init__(
        self,
        data_dir: Path,
        settings: Storage,
        wakeup: Wakeup,
        on_progress: Callable[[], None],
        on_folded: Callable[[int], None],
        health: Health | None = None,
    ) -> None:
        self._on_folded = on_folded
        self._health = health or Health(Clock())
        self._log_line = structlog.get_logger("millstream")
        self._data_dir = data_dir
        self._on_progress = on_progress
        is_packed = settings.segment_compression == "zstd"
        self._checkpoints = Checkpoints(data_dir, settings.segment_size, is_packed)
        self._checks = SegmentChecks(self._checkpoints, self._on_damage)
        self._is_to_check = settings.check_segments
        prepare_data_dir(data_dir)
        self._lock = lock(data_dir)
        try:
            self._open(data_dir, settings, wakeup)
        except BaseException:
            os.close(self._lock)  # this process may live on, and try again
            raise

    def _open(self, data_dir: Path, settings: Storage, wakeup: Wakeup) -> None:
        """Nothing can fail any more once the threads run."""
        with_sync = settings.durability == "fsync"
        check_restored(data_dir)
        self._disk = RealDisk(data_dir)
        self._disk.make_folder(FOLDER)
        try:
            with hold_checkpoints(data_dir):  # one may outlive the broker that started it
                directory, found = open_folder(self._disk, data_dir)
            self._unsure = find_unsure(self._disk, found)
            is_unclear = any(notice.name == doubt_mark.NAME for notice in directory.notices)
            last_doubted = EVERY_SESSION if is_unclear else doubt_mark.find_last_doubted(self._disk)
        except DiskFault as fault:
            raise _refuse(data_dir, fault) from None
        self._keeper = SharedKeeper(directory.keeper)
        self._has_segments = bool(QueueFolders(data_dir).numbers())
        fold, next_number = found.fold, found.next_number
        self.damage = found.damage
        self._tell(directory, found)
        self.queries = fold.stages.queries  # that write staged batches
        state, numbers = fold.state(), fold.numbers()
        self._is_doubt_over = self._doubt_sessions(found, state, numbers, with_sync, last_doubted)
        has_old = bool(log_names(self._disk))
        self._files = self._open_files(settings, with_sync, next_number)
        kernel = open_kernel_sync(data_dir) if with_sync else None
        guard = FolderGuard(data_dir)
        watch = open_folder_watch(data_dir / FOLDER)
        self._thread = LogThread(self._files, self._on_answer, kernel, find_loss=guard.find_loss, watch=watch)
        self.log = Log(self._thread, wakeup, fold.last_sequence + 1, settings.stall_timeout * 1_000_000)
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self.store = LogStore(self.log, state, numbers, wall_offset_ns)
        self.segments = SegmentThread(self._disk, self._on_damaged_records, self._on_unreadable)
        self._checkpoint: asyncio.Task[None] | None = None
        # the last file that will not be written again, and the last fact in it
        self._last_sealed = (next_number - 1, int(fold.last_sequence)) if has_old else (0, 0)
        # all facts up to here are in table and segments
        self._folded = 0 if has_old else int(fold.last_sequence)
        self._fold_fault = ""
        self._fold_damage: dict[str, None] = {}  # that checkpoints which failed have named
        self._fold_again_s = 0.0  # when to try again after a fault
        self._fold_pause_s = FOLD_PAUSE_S
        self._is_closing = False
        self._is_released = False
        self._sealing: asyncio.Task[None] | None = None

    def _tell(self, directory: Directory, found: Recovery) -> None:
        """What the start has found."""
        if directory.is_adopted:
            text = "a directory of an earlier release: it has an identity and a manifest from now on"
            if directory.is_known:
                text = "an earlier release has run on this directory in between: what it wrote is taken over"
            self._log_line.warning("storage_adopted", text=text)
        for notice in directory.notices:
            if notice.kind == OLDER:  # what it does not name is there, and is used
                self._log_line.warning("storage_adopted", text=notice.text)
            elif notice.name in (stop_mark.NAME, doubt_mark.NAME):  # nothing is lost, and this start mends it
                self._log_line.error("storage_damaged", range=notice.text)
            else:
                self._on_damage(notice.text)
        for damage in [*directory.damage, *found.damage]:
            self._on_damage(damage.sentence())
        skipped = found.lost.skipped
        if skipped:
            most = max([last - first + 1 for _, first, last in skipped])
            text = f"facts of the log are lost, and offsets may be with them: {len(skipped)} queues go on up to {most} later"
            self._log_line.warning("storage_offsets_skipped", text=text)
        for cut in found.cuts:
            self._log_line.warning("storage_cut", range=cut.sentence())

    def _open_files(self, settings: Storage, with_sync: bool, next_number: int) -> LogFiles:
        self._disk.remove(PREPARED)  # of a broker that was killed
        return LogFiles(
            self._disk,
            find_failpoints(),
            settings.log_file_size,
            next_number,
            epoch=0,
            with_sync=with_sync,
            salt=secrets.randbits(32) | 1,
            fill_size=settings.log_fill_size,
            register=self._keeper,
        )

    def _doubt_sessions(
        self,
        found: Recovery,
        state: StoredState,
        numbers: dict[tuple[str, str], int],
        with_sync: bool,
        last: int,
    ) -> bool:
        """Say of which sessions the clients may know more than the log does: up to `last` by the mark that says so, EVERY_SESSION
        where it cannot be read. Whether the mark may go."""
        is_unclear = last == EVERY_SESSION
        if is_unclear or (with_sync and (found.has_marks or found.damage)):  # no later start would see it
            newest = max([NO_SESSION if is_unclear else last, *numbers.values()])
            if newest not in (NO_SESSION, last):
                self._mark_doubt(newest, has_mark=False)
                last = newest
        is_over = not doubt_mark.doubt_sessions(state, numbers, last) and last != NO_SESSION
        if not is_over:
            self._mark_doubt(last, has_mark=True)
        if not with_sync:
            doubt_mark.doubt_sessions(state, numbers, EVERY_SESSION)
        return is_over

    def _mark_doubt(self, last_session: int, has_mark: bool) -> None:
        """First the mark, then the manifest, which a start that died in between has left behind."""
        try:
            if not has_mark:
                doubt_mark.write_mark(self._disk, last_session)
            self._keeper.doubt(last_session)
        except DiskFault as fault:
            raise _refuse(self._data_dir, fault) from None

    def start(self) -> None:
        """From here on records may be handed out. Fold what earlier runs left in the log. One that fails leaves the directory to
        whoever tries again."""
        try:
            self._begin()
            self._fold_sealed()
            if self._is_to_check and self._has_segments:
                self._checks.start()
        except BaseException:
            self.release()
            raise

    def _begin(self) -> None:
        """Say that a broker runs."""
        try:
            self._keeper.open()
            is_doubt_ended = self._is_doubt_over and self._keeper.end_doubt()
            remove_mark(self._disk)
            if is_doubt_ended:
                doubt_mark.remove_mark(self._disk)
        except DiskFault as fault:
            raise _refuse(self._data_dir, fault) from None

    def release(self) -> None:
        """Of a start that failed: end the threads and give up the lock. What a stop would say is not said."""
        if not self._is_released:
            self._end_threads()
            self._give_up_lock()

    def _end_threads(self) -> bool:
        """Whether all that was submitted to the log is safe."""
        is_safe = self._thread.close() and not self.log.fault
        self.segments.close()
        return is_safe

    def _give_up_lock(self) -> None:
        self._is_released = True
        os.close(self._lock)

    def _on_damage(self, sentence: str) -> None:
        self._log_line.error("storage_damaged", range=sentence)
        if self._health.find(STORAGE_DAMAGED) is None:
            self._health.begin(STORAGE_DAMAGED, sentence)
        else:
            self._health.count(STORAGE_DAMAGED, 1)

    def _on_damaged_records(self, damage: Damage) -> None:
        self._on_damage(damage.sentence())

    def _on_unreadable(self, cause: str) -> None:
        if cause:
            self._health.begin(STORAGE_UNREADABLE, cause)
            self._health.count(STORAGE_UNREADABLE, 1)
        else:
            self._health.end(STORAGE_UNREADABLE)

    def on_tick(self) -> None:
        """Try again what could not be folded."""
        if self._fold_fault and self._checkpoint is None and time.monotonic() >= self._fold_again_s:
            self._fold_sealed()

    def _on_answer(self) -> None:
        self._on_progress()
        if self._files.sealed:
            self._fold_sealed()

    def _fold_sealed(self) -> None:
        """Start a checkpoint over everything sealed, unless one runs: the end of that one asks again."""
        sealed = self._files.sealed
        count = len(sealed)
        if count:
            self._last_sealed = sealed[count - 1]
        if self._checkpoint is None and self._last_sealed[1] > self._folded and not self.log.fault:
            del sealed[:count]  # the log's thread may just have added another
            run = self._run_checkpoint(*self._last_sealed)
            self._checkpoint = asyncio.get_running_loop().create_task(run)

    async def _run_checkpoint(self, last_file: int, last_sequence: int) -> None:
        try:
            folded = await self._checkpoints.fold(last_file, last_sequence)
        except OSError as error:  # there is no process to be had now
            folded = Folded(f"its process cannot be used: {error.strerror or error}", [])
        for line in folded.damage:
            if line not in self._fold_damage:
                self._on_damage(line)
        # one that failed reads the same files again
        self._fold_damage = dict.fromkeys([*self._fold_damage, *folded.damage]) if folded.fault else {}
        self._fold_fault = folded.fault
        self._checkpoint = None
        if self._fold_fault:
            self._log_line.debug("checkpoint_failed", reason=self._fold_fault)
            self._health.begin(CHECKPOINT_FAILING, self._fold_fault)
            self._health.count(CHECKPOINT_FAILING, 1)
            self._fold_again_s = time.monotonic() + self._fold_pause_s
            self._fold_pause_s = min(2 * self._fold_pause_s, FOLD_PAUSE_S_MAX)
            return
        self._health.end(CHECKPOINT_FAILING)
        self._fold_pause_s = FOLD_PAUSE_S
        self._folded = last_sequence
        self._keeper.note_folded(folded.file, folded.sequence)
        self._on_folded(last_sequence)
        if self._files.sealed and not self._is_closing:
            self._fold_sealed()

    # ------------------------------------------------------------------- seal

    async def seal(self) -> None:
        """Until all that is durable now is in the table and in segments. Whoever asks meanwhile shares the work; Unavailable
        when the disk does not allow it."""
        wanted = int(self.log.durable)
        while self._folded < wanted:
            if self._sealing is None:
                self._sealing = asyncio.get_running_loop().create_task(self._seal())
            await asyncio.shield(self._sealing)

    async def _seal(self) -> None:
        try:
            wanted = int(self.log.durable)
            if self.log.fault:
                raise Unavailable(f"the log has failed: {self.log.fault}")
            if self.log.is_full or self.log.is_stalled:
                raise Unavailable("the disk takes nothing now: it is full or too slow")
            if self._is_closing:
                raise Unavailable("the broker is stopping")
            if wanted > self._last_sealed[1]:
                await self._end_file()
            if self._last_sealed[1] > self._folded:
                self._fold_sealed()
            while self._checkpoint is not None and self._folded < wanted:
                await asyncio.shield(self._checkpoint)
            if self._folded < wanted:
                raise Unavailable(
                    f"the log could not be folded: {self._fold_fault or 'its file did not end'}"
                )
        finally:
            self._sealing = None

    async def _end_file(self) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()

        def on_ended(fault: str) -> None:
            if not ended.done():
                ended.set_result(fault)

        self._thread.end_file(on_ended)
        fault = await ended
        if fault:
            raise Unavailable(f"the file of the log cannot be ended: {fault}")
        if self._files.sealed:
            self._last_sealed = self._files.sealed[-1]

    async def close(self) -> str:
        """Write what is left, then end. Empty, or why not all of it could be written."""
        if self._is_released:
            return ""  # it never ran
        self._is_closing = True
        await self._write_out()
        if self._sealing is not None:
            self._sealing.cancel()
        await self._checks.close()
        try:
            async with asyncio.timeout(CHECKPOINT_END_S):
                if self._checkpoint is not None:
                    await asyncio.shield(self._checkpoint)
                await self._checkpoints.close()
        except TimeoutError:
            self._log_line.warning(
                "checkpoint_left", text="a checkpoint did not end; the next start makes it"
            )
        fault = self._find_close_fault()
        is_safe = self._end_threads()
        if is_safe and self.log.durable == self.log.position:
            self._mark_stop()
        elif not fault:
            fault = self.log.fault or "the log could not be closed"
        self._give_up_lock()
        return fault

    async def _write_out(self) -> None:
        """Until all is durable; not longer than a moment on a disk that takes nothing."""
        log = self.log
        stuck_s = 0.0
        log.flush()
        while log.durable < log.position and not log.fault:
            await asyncio.sleep(0.005)
            log.flush()
            log.on_tick(time.monotonic_ns())
            if not (log.is_full or log.is_stalled):
                stuck_s = 0.0
            elif not stuck_s:
                stuck_s = time.monotonic()
            elif time.monotonic() - stuck_s > WRITE_OUT_S:
                return

    def _find_close_fault(self) -> str:
        log = self.log
        if log.fault:
            return log.fault
        left = int(log.position) - int(log.durable)
        if not left:
            return ""
        return f"{left:,} changes could not be written: {log.full_cause or 'the disk does not answer'}"

    def _mark_stop(self) -> None:
        try:
            write_mark(self._disk, StopMark(int(self.log.position), self._unsure))
            self._keeper.stop(int(self.log.position), self._files.last_in_file())
        except DiskFault as fault:
            self._log_line.warning("stop_not_marked", reason=fault.text)
