"""Opens the durable store: recovers what the data directory holds, then goes on writing behind it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from millstream.model.outbox import Wakeup
from millstream.runtime.disk_files import RealDisk
from millstream.runtime.failpoints import find_failpoints
from millstream.runtime.lmdb_table import LmdbTable
from millstream.runtime.log_thread import LogThread
from millstream.storage.checkpoint import load_table, read_meta
from millstream.storage.disk import Disk
from millstream.storage.fold import Fold
from millstream.storage.log import Log
from millstream.storage.log_files import FOLDER, LogFiles, file_number
from millstream.storage.log_recovery import Damage, log_names, read_file
from millstream.storage.log_store import LogStore

STATE: Final = "state"
QUARANTINE: Final = "quarantine"


class StorageFault(Exception):
    """The data directory cannot be used: why, and the command that would help."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


class DurableStore:
    """The log, its thread and its checkpoints, behind one `store`."""

    def __init__(
        self,
        data_dir: Path,
        file_size: int,
        with_sync: bool,
        wakeup: Wakeup,
        on_progress: Callable[[], None],
    ) -> None:
        self._log_line = structlog.get_logger("millstream")
        self._data_dir = data_dir
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = lock(data_dir)
        self._disk = RealDisk(data_dir)
        self._disk.make_folder(FOLDER)
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        fold, next_number, self.damage = recover(self._disk, data_dir, wall_offset_ns)
        for damage in self.damage:
            self._log_line.error("storage_damaged", range=damage.sentence())
        self._files = LogFiles(self._disk, find_failpoints(), file_size, next_number, 0, with_sync)
        self._thread = LogThread(self._files, self._on_answer)
        self.log = Log(self._thread, wakeup, fold.last_sequence + 1)
        self.store = LogStore(self.log, fold.state(), fold.numbers(), wall_offset_ns)
        self._on_progress = on_progress
        self._checkpoint: asyncio.Task[None] | None = None
        self._last_old_file = next_number - 1 if log_names(self._disk) else 0

    def start(self) -> None:
        """Fold what earlier runs left in the log."""
        if self._last_old_file:
            self._start_checkpoint(self._last_old_file)

    def _on_answer(self) -> None:
        self._on_progress()
        if self._files.sealed and self._checkpoint is None:
            self._start_checkpoint(self._files.sealed[-1])
            self._files.sealed.clear()

    def _start_checkpoint(self, last_file: int) -> None:
        self._checkpoint = asyncio.get_running_loop().create_task(self._run_checkpoint(last_file))

    async def _run_checkpoint(self, last_file: int) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "millstream.runtime.checkpoint_run",
            str(self._data_dir),
            str(last_file),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            text = errors.decode(errors="replace").strip().splitlines()[-1:] or ["it was killed"]
            self._log_line.error("checkpoint_failed", reason=text[0])
        self._checkpoint = None

    async def close(self) -> None:
        self.log.flush()
        while self.log.durable < self.log.position and not self.log.fault:
            await asyncio.sleep(0.005)
            self.log.flush()
        if self._checkpoint is not None:
            await self._checkpoint
        self._thread.close()
        os.close(self._lock)


def lock(data_dir: Path) -> int:
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        text = f"{data_dir} is in use by another broker"
        raise StorageFault(text, "millstream serve --set data_dir=OTHER") from None
    return descriptor


def read_state(disk: Disk, data_dir: Path) -> Fold:
    """What would be restored, changing nothing."""
    fold, folded = load_folded(data_dir, 0)
    names = log_names(disk)
    for name in names:
        if file_number(name) > folded:
            for record in read_file(disk, name, name == names[-1]).records:
                if record.sequence > fold.last_sequence:
                    fold.apply(record)
    return fold


def load_folded(data_dir: Path, wall_offset_ns: int) -> tuple[Fold, int]:
    """(state of the last checkpoint, last file in it)."""
    fold = Fold(wall_offset_ns)
    table = LmdbTable(data_dir / STATE)
    try:
        load_table(table, fold)
        _, folded = read_meta(table)
    finally:
        table.close()
    return fold, folded


def recover(disk: Disk, data_dir: Path, wall_offset_ns: int) -> tuple[Fold, int, list[Damage]]:
    """(state, number of the next log file, what is damaged). A torn end is cut, damage is copied aside."""
    fold, folded = load_folded(data_dir, wall_offset_ns)
    damage: list[Damage] = []
    names = log_names(disk)
    number = folded
    for name in names:
        number = max(number, file_number(name))
        if file_number(name) <= folded:
            disk.remove(name)  # the checkpoint died between its commit and this
            continue
        recovered = read_file(disk, name, name == names[-1])
        damage.extend(recovered.damage)
        if recovered.is_unused:
            disk.remove(name)
            continue
        if recovered.damage:
            copy_aside(disk, name)
        if recovered.cut_at >= 0:
            file = disk.open(name)
            file.truncate(recovered.cut_at)
            file.sync()
            file.close()
        for record in recovered.records:
            if record.sequence > fold.last_sequence:
                fold.apply(record)
    disk.sync_folder(FOLDER)
    return fold, number + 1, damage


def copy_aside(disk: Disk, name: str) -> None:
    """Keep a damaged file as it is: the checkpoint will remove the original."""
    disk.make_folder(QUARANTINE)
    target = f"{QUARANTINE}/{name.rpartition('/')[2]}"
    if target in disk.names(QUARANTINE):
        return
    source = disk.open(name)
    data = source.read_at(0, source.size())
    source.close()
    copy = disk.create(target, 0)
    copy.write_at(0, data)
    copy.sync()
    copy.close()
    disk.sync_folder(QUARANTINE)
