"""A data directory as files: who has it, what it holds, and that nothing of it is missing."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import Final

from millstream.runtime.disk.data_dir import KEY as DATA_DIR
from millstream.runtime.disk.data_dir import describe
from millstream.runtime.disk.failpoints import find_failpoints
from millstream.runtime.disk.files import refuse
from millstream.runtime.disk.lmdb_table import LmdbTable, find_table_fault
from millstream.runtime.start_fault import StartFault
from millstream.storage.directory import Directory, check_queues, open_directory, read_manifest
from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.files import NUMBER_MAX, file_number
from millstream.storage.log.format import FILE_HEADER_SIZE, find_file_header_fault
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.manifest import (
    FOREIGN,
    IDENTITY_LENGTH,
    MISSING,
    TABLE_FILE,
    Incomplete,
    remove_manifest,
)
from millstream.storage.marks.repair_mark import NAME as UNFINISHED_REPAIR
from millstream.storage.offset_gaps import note_gap
from millstream.storage.records.fold import Fold
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.recovery import Recovery, load_folded, recover
from millstream.storage.segments.format import FOLDER as QUEUE_FOLDER
from millstream.storage.segments.format import folder_name
from millstream.storage.segments.inventory import LISTED
from millstream.storage.table.checkpoint import GENERATION, IDENTITY, find_removed
from millstream.storage.table.port import Table

STATE: Final = "state"
UNFINISHED_RESTORE: Final = "restore.unfinished"


class StorageFault(StartFault):
    """What the data directory holds cannot be used: why, and the command that would help."""


class QueueFolders:
    """The folders of queues, whether anybody knows the queue or not."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / QUEUE_FOLDER

    def numbers(self) -> list[int]:
        """Of those that hold something, in order."""
        try:
            if not self._folder.is_dir():
                return []
            found = [path for path in self._folder.iterdir() if _is_number(path.name) and path.is_dir()]
            return sorted([int(path.name) for path in found if any(path.iterdir())])
        except OSError as error:
            refuse(error, QUEUE_FOLDER)


def _is_number(name: str) -> bool:
    """As the folder of a queue is called."""
    if not (name.isascii() and name.isdecimal()):
        return False
    return str(int(name)) == name and int(name) <= NUMBER_MAX


def lock(data_dir: Path) -> int:
    try:
        descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise describe(data_dir / "lock", error, "cannot be opened") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        text = f"{data_dir} is in use by another broker"
        raise StorageFault(text, f"fuser -v {data_dir / 'lock'}", DATA_DIR) from None
    except OSError as error:  # a file system without locks, or with no room for one
        os.close(descriptor)
        raise describe(data_dir / "lock", error, "cannot be locked") from None
    return descriptor


def check_restored(data_dir: Path) -> None:
    """Part of a backup, or what is half repaired, is not a state a broker may start from."""
    check_whole(data_dir)
    if _find_size(data_dir / UNFINISHED_REPAIR) >= 0:
        text = f"a repair of {data_dir} did not finish"
        raise StorageFault(text, repair_command(data_dir))


def check_whole(data_dir: Path) -> None:
    """Part of a backup looks as whole as all of it, and no repair can make more of it."""
    if _find_size(data_dir / UNFINISHED_RESTORE) >= 0:
        text = f"a restore into {data_dir} did not finish"
        raise StorageFault(text, "millstream restore FILE --to OTHER_DIR")


def has_table(data_dir: Path) -> bool:
    """Whoever opens a table that is not there makes one, which is not for those who only look."""
    return _find_size(data_dir / TABLE_FILE) > 0


def _find_size(path: Path) -> int:
    """-1: there is no such file. DiskFault where nobody can tell: that is not the same."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return -1
    except OSError as error:
        raise DiskFault(f"{path}: {error.strerror or error}") from error


def read_state(disk: Disk, data_dir: Path) -> Fold:
    """What would be restored, changing nothing."""
    check_table_file(disk, data_dir)
    fold, folded = Fold(0), 0
    if has_table(data_dir):
        table = LmdbTable(data_dir / STATE)
        try:
            fold, folded = load_folded(table, 0)
        finally:
            table.close()
    names = log_names(disk)
    for name in names:
        if file_number(name) > folded:
            for record in read_file(disk, name, name == names[-1]).records:
                if record.sequence > fold.last_sequence:
                    fold.apply(record)
    fold.queues.pass_gaps()
    return fold


def verify_command(data_dir: Path) -> str:
    return f"millstream storage verify --set data_dir={data_dir}"


def repair_command(data_dir: Path) -> str:
    return f"millstream storage repair --set data_dir={data_dir}"


def open_folder(disk: Disk, data_dir: Path) -> tuple[Directory, Recovery]:
    """Open what a data directory holds, as a start does. Files of a later release are not touched, and nothing is changed
    where something is missing."""
    refuse_newer(disk, data_dir)
    check_table_file(disk, data_dir)
    table = LmdbTable(data_dir / STATE)
    try:
        directory = open_directory(disk, table, secrets.token_hex(IDENTITY_LENGTH // 2))
        inventory = check_queues(disk, table)
        if inventory.faults:
            raise inventory.faults[0].fault
        directory.damage = inventory.damage
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        directory.keeper.note_queue(max([0, *QueueFolders(data_dir).numbers()]))  # never given again
        found = recover(disk, table, wall_offset_ns, find_failpoints(), directory.keeper)
        directory.notices += [*found.notices, *find_strangers(data_dir, table, found.fold.queues)]
        disk.sync_folder(STATE)
        for number, first, last in found.lost.skipped:
            note_gap(table, number, first, last)
        if found.lost.store(table, found.folded_sequence):
            table.commit()
        directory.mark_table(disk, table)
        return directory, found
    finally:
        table.close()


def find_strangers(data_dir: Path, table: Table, queues: QueueFold) -> list[Incomplete]:
    """Folders of queues that neither the table nor the log knows. Nobody reads them, and their numbers are not given again.
    `queues` as of the end of the log: the folder of one that was removed there goes when that is folded."""
    known = {*queues.queues, *queues.removed, *find_removed(table)}
    text = "belongs to no queue of this data directory: it is left as it is"
    strangers = [number for number in QueueFolders(data_dir).numbers() if number not in known]
    return [Incomplete(folder_name(number), text, FOREIGN) for number in strangers]


def check_table_file(disk: Disk, data_dir: Path) -> None:
    """Incomplete where the table is not there although it must be, or its library must not be let at it."""
    if not check_table_is_there(disk, data_dir):
        return
    fault = find_table_fault(data_dir / STATE)
    if fault:
        raise Incomplete(TABLE_FILE, f"is damaged: {fault}")


def check_table_is_there(disk: Disk, data_dir: Path) -> bool:
    """False where nothing was folded yet; Incomplete where it must be there and is not."""
    size = _find_size(data_dir / TABLE_FILE)
    if size > 0:
        return True
    is_due = must_have_table(disk, data_dir)
    if size < 0 and is_due:
        raise Incomplete(TABLE_FILE, "is missing", MISSING)
    return is_due


def must_have_table(disk: Disk, data_dir: Path) -> bool:
    """Whether something was folded, as far as the files beside the table tell."""
    try:
        manifest = read_manifest(disk)
    except Incomplete:
        return True
    if manifest is not None:
        return manifest.is_table_marked
    if QueueFolders(data_dir).numbers():
        return True
    names = log_names(disk)
    return bool(names) and file_number(names[0]) != 1  # those before it were folded


def adopt_folder(disk: Disk, data_dir: Path) -> None:
    """Take what is there for what must be there, after a repair or a restore: with an identity of its own, so that no file from
    before is taken for one of it."""
    remove_manifest(disk)
    table = LmdbTable(data_dir / STATE)
    try:
        for key in (IDENTITY, GENERATION, LISTED):
            table.delete(key)
        table.commit()
    finally:
        table.close()
    open_folder(disk, data_dir)


def recover_folder(disk: Disk, data_dir: Path) -> Recovery:
    """The same without regard to the manifest, for a repair: what is missing is done without."""
    refuse_newer(disk, data_dir)
    check_table_file(disk, data_dir)
    table = LmdbTable(data_dir / STATE)
    try:
        return recover(disk, table, time.time_ns() - time.monotonic_ns(), find_failpoints())
    finally:
        table.close()


def refuse_newer(disk: Disk, data_dir: Path) -> None:
    for name in log_names(disk):
        try:
            fault = _find_header_fault(disk, name)
        except DiskFault:
            continue  # whoever reads all of it names it
        if fault is not None and "format" in fault:
            text = f"{data_dir}/{name}: {fault}"
            raise StorageFault(text, "install the release that wrote it, or restore a backup of this one")


def _find_header_fault(disk: Disk, name: str) -> str | None:
    file = disk.open(name)
    try:
        return find_file_header_fault(file.read_at(0, FILE_HEADER_SIZE), file_number(name))
    finally:
        file.close()
