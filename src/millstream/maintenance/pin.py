"""Takes hold of the files of a backup while a broker runs, in one short moment without checkpoints.

Files that only grow at their end get a second name in a folder of the backup, so that a checkpoint may remove the first
one afterwards; the table is copied by its own means. Nothing the broker has is changed, and it does not wait.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import lmdb

from millstream.maintenance.backup_check import BackupCheck
from millstream.maintenance.backup_manifest import TABLE_NAME
from millstream.maintenance.backup_plan import Plan, PlannedFile, plan_log, plan_segments
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.files import RealDisk, refuse
from millstream.runtime.disk.lmdb_table import MAP_SIZE, LmdbTable, find_table_fault
from millstream.storage.disk import DiskFault
from millstream.storage.log.files import file_number
from millstream.storage.log.recovery import log_names
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.stages.format import FOLDER as STAGE_FOLDER
from millstream.storage.stages.format import find_stage_id, stage_name
from millstream.storage.table.checkpoint import load_queues, load_stages, read_meta

STAGING: Final = "backup.unfinished"
BACKUP_LOCK: Final = "backup.lock"
STATE: Final = "state"
_NO_LINKS: Final = (errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)


class BackupBusy(Exception):
    """Another backup of the same data directory is being made."""


@contextmanager
def pin_files(data_dir: Path) -> Iterator[tuple[Path, Plan]]:
    """(folder with the files, what of them to take); the folder goes afterwards."""
    try:
        descriptor = os.open(data_dir / BACKUP_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        refuse(error, BACKUP_LOCK)
    staging = data_dir / STAGING
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BackupBusy from None
        try:
            for is_last in (False, False, True):
                shutil.rmtree(staging, ignore_errors=True)  # of one that was killed
                staging.mkdir(mode=0o700)
                plan = _pin(data_dir, staging)
                if _take_stages(data_dir, staging, plan, is_last):
                    break
            yield staging, plan
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise DiskFault(f"{error.filename or data_dir}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)


def _pin(data_dir: Path, staging: Path) -> Plan:
    plan = Plan()
    check = BackupCheck()
    disk = RealDisk(data_dir)
    with hold_checkpoints(data_dir):
        committed, last_sequence, folded = _copy_table(data_dir, staging, plan, check)
        if (staging / TABLE_NAME).exists():
            plan.files.append(PlannedFile(TABLE_NAME, (staging / TABLE_NAME).stat().st_size))
        plan_segments(disk, plan, committed, check.foreign)
        for planned in plan.files:
            if planned.name != TABLE_NAME:
                _take(data_dir, staging, planned)
        for name in log_names(disk):
            if file_number(name) > folded:
                _link(data_dir / name, staging / name)
        for name in disk.names(STAGE_FOLDER):
            if find_stage_id(name):
                with suppress(FileNotFoundError):  # its batch was done this moment
                    _link(data_dir / name, staging / name)
    taken = RealDisk(staging)
    check.check_log(disk, taken, folded, last_sequence)
    for name in check.foreign:
        (staging / name).unlink(missing_ok=True)
    plan_log(taken, plan, folded, last_sequence)
    plan.damage += check.damage
    return plan


def _take_stages(data_dir: Path, staging: Path, plan: Plan, is_last: bool) -> bool:
    """The stages that what was taken of the log still needs. False: one came and went meanwhile, so the log must be taken
    again; where it is missing for another reason, the last try says so."""
    for stage in plan.stages.begun_stages():
        name = stage_name(stage)
        if not (staging / name).exists():
            try:
                _link(data_dir / name, staging / name)
            except FileNotFoundError:
                if not is_last:
                    return False
                plan.damage.append(f"{name}: the file is missing")
                continue
        plan.files.append(PlannedFile(name, (staging / name).stat().st_size))
    return True


def _copy_table(
    data_dir: Path, staging: Path, plan: Plan, check: BackupCheck
) -> tuple[dict[int, int], int, int]:
    """(next offset by queue, last sequence, last file) of the checkpoint that was copied."""
    if not (data_dir / TABLE_NAME).exists():
        return {}, 0, 0
    fault = find_table_fault(data_dir / STATE)
    if fault:
        raise DiskFault(f"{TABLE_NAME} is damaged: {fault}")
    target = staging / STATE
    target.mkdir(mode=0o700)
    try:
        environment = lmdb.open(str(data_dir / STATE), map_size=MAP_SIZE, max_dbs=0, readonly=True)
        try:
            environment.copy(str(target), compact=True)
        finally:
            environment.close()
    except lmdb.Error as error:
        raise DiskFault(f"{STATE}: {error}") from error
    table = LmdbTable(target)
    try:
        queues = QueueFold()
        load_queues(table, queues)
        load_stages(table, plan.stages)
        last_sequence, folded = read_meta(table)
        check.check_table(RealDisk(data_dir), table)
    finally:
        table.close()
    return {number: queue.next for number, queue in queues.queues.items()}, last_sequence, folded


def _take(data_dir: Path, staging: Path, planned: PlannedFile) -> None:
    target = staging / planned.name
    if planned.content is None:
        _link(data_dir / planned.name, target)
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.write_bytes(planned.content)
    planned.content = None  # it has a file of its own now


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        if source.suffix != ".log":
            raise
        # A broker that is starting removes a file it never used; nothing else removes one now.
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)
