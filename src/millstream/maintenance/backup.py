"""Makes a backup of a data directory, in use or not, and restores one into a new place.

A backup appears under its name only when it is whole and on disk. A restore works in a folder of its own inside the
target, which stays the mark of an unfinished restore until everything is in its place: a broker does not start on it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream.maintenance.archive import ArchiveFault, ArchiveReader, list_files, write_archive
from millstream.maintenance.backup_manifest import Manifest
from millstream.maintenance.pin import BackupBusy, pin_files
from millstream.runtime.disk.data_dir import advise, check_parts
from millstream.runtime.disk.data_folder import (
    STATE,
    UNFINISHED_RESTORE,
    StorageFault,
    adopt_folder,
    check_restored,
    check_table_is_there,
    lock,
    recover_folder,
    verify_command,
)
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.directory import check_queues
from millstream.storage.disk import DiskFault
from millstream.storage.log.files import FOLDER as LOG_FOLDER
from millstream.storage.marks.doubt_mark import write_mark
from millstream.storage.records.fold import Fold
from millstream.storage.store import StoredState
from millstream.version import VERSION

Progress = Callable[[str, int, int], None]  # what is done, bytes done, bytes in all

_OWN: Final = {"lock", UNFINISHED_RESTORE}  # what an earlier restore that was killed may have left


def make_backup(data_dir: Path, target: Path, on_progress: Progress) -> Manifest:
    """`target` is replaced only by a whole backup; it is compressed if its name ends in gz."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        check_parts(data_dir)
        check_restored(data_dir)
        check_table_is_there(RealDisk(data_dir), data_dir)
        with pin_files(data_dir) as (folder, plan):
            total = 2 * sum([file.size for file in plan.files])
            done = _Done(on_progress, total)
            files = list_files(folder, plan.files, done.begin("checking"))
            manifest = Manifest(VERSION, time.time_ns(), plan.last_sequence, files, plan.damage)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                write_archive(out, target.suffix in (".gz", ".tgz"), manifest, folder, done.begin("writing"))
                out.flush()
                os.fsync(out.fileno())
        os.replace(unfinished, target)
        _sync_folder(target.parent)
    except BackupBusy:
        raise StorageFault(f"another backup of {data_dir} is being made", "millstream backup FILE") from None
    except ArchiveFault as fault:
        raise StorageFault(str(fault), "millstream backup FILE") from None
    except DiskFault as fault:
        raise StorageFault(fault.text, advise(data_dir, fault, verify_command(data_dir))) from None
    except OSError as error:
        text = f"{error.filename or target}: {error.strerror or error}"
        raise StorageFault(text, "millstream backup OTHER_FILE") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return manifest


class Restored:
    def __init__(self, manifest: Manifest, state: StoredState, damage: list[str]) -> None:
        self.manifest = manifest
        self.damage = damage
        self.counts = count_state(state)


def count_state(state: StoredState) -> dict[str, int]:
    return {
        "sessions": len(state.sessions),
        "subscriptions": sum(len(session.subscriptions) for session in state.sessions),
        "deliveries": sum(len(session.deliveries) for session in state.sessions),
        "wills": sum(session.will is not None for session in state.sessions),
        "retained": len(state.retained),
        "queues": len(state.queues),
        "records": sum(queue.count_from(queue.low_mark()) for queue in state.queues),
        "exchanges": len(state.exchanges),
        "bindings": len(state.bindings),
    }


def restore_backup(source: Path, target: Path, on_progress: Progress) -> Restored:
    """Into a directory that is empty or not there."""
    try:
        reader = ArchiveReader(source)
    except OSError as error:
        text = f"{source}: {error.strerror or error}"
        raise StorageFault(text, "millstream restore FILE --to DIR") from None
    try:
        manifest = reader.read_manifest()
        return _restore(reader, manifest, target, on_progress)
    except ArchiveFault as fault:
        text = f"{source} is no backup that can be trusted: {fault}"
        raise StorageFault(text, "millstream restore OTHER_FILE --to DIR") from None
    except DiskFault as fault:
        raise StorageFault(fault.text, f"millstream restore {source} --to OTHER_DIR") from None
    except OSError as error:
        text = f"{error.filename or target}: {error.strerror or error}"
        raise StorageFault(text, f"millstream restore {source} --to OTHER_DIR") from None
    finally:
        reader.close()


def _restore(reader: ArchiveReader, manifest: Manifest, target: Path, on_progress: Progress) -> Restored:
    is_new = not target.exists()
    _check_target(target)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = lock(target)
    staging = target / UNFINISHED_RESTORE
    is_done = is_begun = False
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700)
        free = shutil.disk_usage(target).free
        if manifest.size() > free:
            text = f"{target} has {free} bytes left, and the backup needs {manifest.size()}"
            raise StorageFault(text, "millstream restore FILE --to OTHER_DIR")
        reader.extract(manifest, staging, _Done(on_progress, manifest.size()).begin("restoring"))
        (staging / LOG_FOLDER).mkdir(mode=0o700, exist_ok=True)
        fold, damage = _prove(staging, manifest)
        if fold.last_sequence != manifest.last_sequence and not damage:
            text = f"the facts in it end at {fold.last_sequence}, not at {manifest.last_sequence}"
            raise ArchiveFault(text)
        sessions = fold.numbers().values()
        if sessions:
            write_mark(RealDisk(staging), max(sessions))
        adopt_folder(RealDisk(staging), staging)
        is_begun = True
        _put_in_place(staging, target)
        is_done = True
        return Restored(manifest, fold.state(), damage)
    finally:
        if not is_done and not is_begun:  # what is half in place keeps the folder that says so
            shutil.rmtree(staging, ignore_errors=True)
            if is_new:
                shutil.rmtree(target, ignore_errors=True)
            else:
                (target / "lock").unlink(missing_ok=True)
        os.close(descriptor)


def _check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise StorageFault(f"{target} is no directory", "millstream restore FILE --to OTHER_DIR")
    if not target.exists():
        return
    held = {entry.name for entry in target.iterdir()}
    if "lock" in held:
        os.close(lock(target))  # says so if a broker has it
    if held - _OWN:
        text = f"{target} is not empty; a restore never writes over anything"
        raise StorageFault(text, "millstream restore FILE --to OTHER_DIR")


def _prove(folder: Path, manifest: Manifest) -> tuple[Fold, list[str]]:
    """Open it as a start would. A backup may lack what it says was damaged before, and nothing else."""
    disk = RealDisk(folder)
    recovery = recover_folder(disk, folder)
    table = LmdbTable(folder / STATE)
    try:
        lacking = [found.fault.text for found in check_queues(disk, table).faults]
    finally:
        table.close()
    if lacking and not manifest.damage:
        raise ArchiveFault(lacking[0])
    found = [damage.sentence() for damage in recovery.damage]
    return recovery.fold, list(dict.fromkeys([*found, *manifest.damage, *lacking]))


def _put_in_place(staging: Path, target: Path) -> None:
    (staging / "state" / "lock.mdb").unlink(missing_ok=True)
    for path in sorted(staging.rglob("*")):
        if path.is_dir():
            _sync_folder(path)
    for path in sorted(staging.iterdir()):
        os.rename(path, target / path.name)
    _sync_folder(target)
    staging.rmdir()
    _sync_folder(target)
    with suppress(OSError):
        _sync_folder(target.parent)  # it may not be ours to open


class _Done:
    """Adds up what several steps report."""

    def __init__(self, on_progress: Progress, total: int) -> None:
        self._on_progress = on_progress
        self._total = total
        self._count = 0
        self._step = ""

    def begin(self, step: str) -> Callable[[int], None]:
        self._step = step
        return self._add

    def _add(self, count: int) -> None:
        self._count += count
        self._on_progress(self._step, self._count, self._total)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
