"""Makes a table of folded state out of one that is missing, damaged, or older than the rest of its directory.

What is kept: of a damaged one every entry that can be reached and whose checksum is right; of an older one all it holds, with its
queues moved up to where their segments end; of one that is missing or of another directory nothing. Queues that nobody
knows then keep their segments in quarantine.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from pathlib import Path
from typing import Final

from millstream.maintenance.survey import Survey
from millstream.runtime.disk.data_folder import STATE, QueueFolders
from millstream.runtime.disk.lmdb_table import FILE_NAME, LmdbTable, find_good_entries, salvage_entries
from millstream.storage.disk import Disk, Failpoints
from millstream.storage.lost_offsets import LostOffsets
from millstream.storage.manifest import DAMAGED, OLDER, TABLE_FILE
from millstream.storage.offset_gaps import note_gap
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.recovery import QUARANTINE
from millstream.storage.segments.format import FOLDER as QUEUE_FOLDER
from millstream.storage.segments.inventory import LISTED, PREFIX
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.table.checkpoint import (
    IDENTITY,
    load_queues,
    put_last_queue,
    put_meta,
    put_queue,
    read_meta,
)
from millstream.storage.table.port import Table

NUMBERS_SKIPPED: Final = 1 << 16  # of queues, where it is not known which were given
UNFINISHED: Final = "state.repaired"


def replace_table(
    disk: Disk, data_dir: Path, survey: Survey, failpoints: Failpoints, done: list[str]
) -> None:
    """The new one takes the place of the old one in one step; up to there the old one is where it was, and the next repair makes
    another of it."""
    is_ours = survey.table_fault_kind in (DAMAGED, OLDER)
    entries = salvage_entries(data_dir / STATE)[0] if is_ours else {}
    count = len(entries)
    for key in list(entries):  # not all of the names may be left: what is there is listed anew
        if key == LISTED or key[:1] == PREFIX:
            del entries[key]
    table = _begin_table(data_dir, survey, entries)
    try:
        _move_up(disk, table, done)
        table.commit()
    finally:
        table.close()
    failpoints.hit("repair.before_keep_table")
    _keep_old(disk, data_dir, done)
    failpoints.hit("repair.before_rename_table")
    _put_in_place(disk, data_dir, failpoints)
    done.append(f"{STATE}: {count} entries kept" if count else f"{STATE}: begun anew")


def rewrite_table(disk: Disk, data_dir: Path, survey: Survey, failpoints: Failpoints) -> None:
    """The same without the entries that cannot be trusted: the library must not be let change a page that is damaged."""
    table = _begin_table(data_dir, survey, find_good_entries(data_dir / STATE, survey.table))
    try:
        table.commit()
    finally:
        table.close()
    _put_in_place(disk, data_dir, failpoints)


def _begin_table(data_dir: Path, survey: Survey, entries: dict[bytes, bytes]) -> LmdbTable:
    remove_tree(data_dir / UNFINISHED)
    table = LmdbTable(data_dir / UNFINISHED)
    for key, value in entries.items():
        table.put(key, value)
    enter_progress(table, survey)
    return table


def _put_in_place(disk: Disk, data_dir: Path, failpoints: Failpoints) -> None:
    disk.make_folder(STATE)
    disk.rename(f"{UNFINISHED}/{FILE_NAME}", TABLE_FILE)
    failpoints.hit("repair.after_rename_table")
    disk.sync_folder(STATE)
    disk.sync_folder(".")
    remove_tree(data_dir / UNFINISHED)


def _keep_old(disk: Disk, data_dir: Path, done: list[str]) -> None:
    source = data_dir / TABLE_FILE
    if source.exists():
        target = copy_aside(source, data_dir / QUARANTINE / STATE / FILE_NAME)
        disk.sync_folder(f"{QUARANTINE}/{STATE}")
        disk.sync_folder(QUARANTINE)
        disk.sync_folder(".")
        done.append(f"{STATE}: copied to {QUARANTINE}/{STATE}/{target.name}")


def copy_aside(source: Path, target: Path) -> Path:
    """Under this name or the next that is free, once: a repair that was killed may have done it. Its folder is to be synced."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for known in target.parent.glob(f"{target.name}*"):
        if filecmp.cmp(known, source, shallow=False):
            return known
    found = free_path(target)
    with source.open("rb") as old, found.open("xb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())
    return found


def enter_progress(table: Table, survey: Survey) -> None:
    """What was folded is not in the log any more, whether the table has it or not. And it stays the table of this directory until
    the whole is repaired: else the next try would take it for one of another."""
    sequence, file = read_meta(table)
    put_meta(table, max(sequence, survey.progress[0]), max(file, survey.progress[1]))
    if survey.manifest is not None:
        table.put(IDENTITY, survey.manifest.identity.encode())


def _move_up(disk: Disk, table: Table, done: list[str]) -> None:
    queues = QueueFold()
    load_queues(table, queues)
    reader = SegmentReader(disk)
    try:
        for number, queue in queues.queues.items():
            last = int(reader.last_offset(number))
            if last >= queue.next:
                done.append(
                    f"{STATE}: the queue {queue.name!r} goes on at offset {last + 1} instead of {queue.next}"
                )
                queue.next = last + 1
                put_queue(table, queue)
    finally:
        reader.close()


def set_strangers_aside(disk: Disk, data_dir: Path, done: list[str]) -> None:
    """Folders of queues that the table does not know: none of their files may be taken for one of another queue."""
    queues = QueueFold()
    table = LmdbTable(data_dir / STATE)
    try:
        load_queues(table, queues)
    finally:
        table.close()
    for number in QueueFolders(data_dir).numbers():
        if number in queues.queues:
            continue
        move_aside(disk, data_dir, f"{QUEUE_FOLDER}/{number}", done)


def skip_numbers(data_dir: Path, survey: Survey) -> None:
    """Where facts are lost, numbers of queues may be lost with them: go on far behind."""
    last = max([0, *QueueFolders(data_dir).numbers()])
    if survey.manifest is not None:
        last = max(last, survey.manifest.last_queue)
    queues = QueueFold()
    table = LmdbTable(data_dir / STATE)
    try:
        load_queues(table, queues)
        put_last_queue(table, max(last, queues.last_number) + NUMBERS_SKIPPED)
        table.commit()
    finally:
        table.close()


def skip_offsets(data_dir: Path, count: int, done: list[str]) -> None:
    """Where facts are lost, offsets of queues may be lost with them, which clients have seen: go on behind any of them. What is
    skipped before that is a gap nobody counts, and that no stream is missing."""
    queues = QueueFold()
    table = LmdbTable(data_dir / STATE)
    try:
        load_queues(table, queues)
        lost = LostOffsets(queues)
        lost.load(table)
        lost.on_lost(count)
        lost.skip()
        for number, first, last in lost.skipped:
            queue = queues.queues[number]
            if queue.low_mark() < first:  # else it is empty
                note_gap(table, number, first, last)
            put_queue(table, queue)
        lost.store(table, read_meta(table)[0])
        table.commit()
    finally:
        table.close()
    if queues.queues:
        text = "as many may have been lost with facts of the log; they do not count as messages"
        done.append(f"{STATE}: every queue goes on {count} offsets later: {text}")


def move_aside(disk: Disk, data_dir: Path, name: str, done: list[str]) -> None:
    target = free_path(data_dir / QUARANTINE / name.replace("/", "-"))
    disk.make_folder(QUARANTINE)
    disk.rename(name, f"{QUARANTINE}/{target.name}")
    disk.sync_folder(QUARANTINE)
    disk.sync_folder(name.rpartition("/")[0] or ".")
    done.append(f"{name}: moved to {QUARANTINE}/{target.name}")


def free_path(path: Path) -> Path:
    found = path
    number = 2
    while found.exists():
        found = path.with_name(f"{path.name}.{number}")
        number += 1
    return found


def remove_tree(path: Path) -> None:
    """What a repair that was killed left."""
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
