"""Makes a table of folded state out of one that is missing, damaged, or older than the rest of its directory.

What is kept: of a damaged one every entry that can be reached and whose checksum is right; of an older one all it holds, with its
queues moved up to where their segments end; of one that is missing or of another directory nothing. Queues that nobody
knows then keep their segments in quarantine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millstream.app.data_folder import STATE, QueueFolders
from millstream.app.storage_survey import Survey
from millstream.runtime.disk_files import RealDisk
from millstream.runtime.lmdb_table import FILE_NAME, SUM, LmdbTable, open_entry
from millstream.storage.checkpoint import load_queues, put_last_queue, put_meta, put_queue, read_meta
from millstream.storage.disk import Disk, DiskFault
from millstream.storage.manifest import DAMAGED, OLDER
from millstream.storage.recovery import QUARANTINE
from millstream.storage.segment_format import FOLDER as QUEUE_FOLDER
from millstream.storage.segment_reader import SegmentReader
from millstream.storage.stored_queue import QueueFold
from millstream.storage.table import Table
from millstream.storage.table_pages import TablePages

NUMBERS_SKIPPED: Final = 1 << 16  # of queues, where it is not known which were given
UNFINISHED: Final = "state.repaired"


def replace_table(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    entries = _find_entries(data_dir, survey.table_fault_kind)
    unfinished = data_dir / UNFINISHED
    remove_tree(unfinished)
    table = LmdbTable(unfinished)
    try:
        for key, value in entries.items():
            table.put(key, value)
        _enter_progress(table, survey)
        if survey.table_fault_kind == OLDER:
            _move_up(disk, table, done)
        table.commit()
    finally:
        table.close()
    target = free_path(data_dir / QUARANTINE / STATE)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    if (data_dir / STATE).exists():
        os.rename(data_dir / STATE, target)
        done.append(f"{STATE}: moved to {QUARANTINE}/{target.name}")
    os.rename(unfinished, data_dir / STATE)
    disk.sync_folder(".")
    done.append(f"{STATE}: {len(entries)} entries kept" if entries else f"{STATE}: begun anew")


def _find_entries(data_dir: Path, kind: str) -> dict[bytes, bytes]:
    """Of the old table, without what cannot be trusted."""
    if kind not in (DAMAGED, OLDER):
        return {}
    try:
        file = RealDisk(data_dir / STATE).open(FILE_NAME)
    except DiskFault:
        return {}
    try:
        found = TablePages(file, keeps_entries=True).entries
    finally:
        file.close()
    entries: dict[bytes, bytes] = {}
    for key, stored in found.items():
        value = open_entry(key, stored)
        if key != SUM and value is not None:
            entries[key] = value
    return entries


def keep_progress(data_dir: Path, survey: Survey) -> None:
    """Also where the entry that said so was among the bad ones."""
    table = LmdbTable(data_dir / STATE)
    try:
        _enter_progress(table, survey)
        table.commit()
    finally:
        table.close()


def _enter_progress(table: Table, survey: Survey) -> None:
    """What the manifest says was folded is not in the log any more, whether the table has it or not."""
    manifest = survey.manifest
    if manifest is not None:
        sequence, file = read_meta(table)
        put_meta(table, max(sequence, manifest.folded_sequence), max(file, manifest.folded_file))


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


def set_strangers_aside(data_dir: Path, done: list[str]) -> None:
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
        target = free_path(data_dir / QUARANTINE / f"{QUEUE_FOLDER}-{number}")
        target.parent.mkdir(mode=0o700, exist_ok=True)
        os.rename(data_dir / QUEUE_FOLDER / str(number), target)
        done.append(f"{QUEUE_FOLDER}/{number}: moved to {QUARANTINE}/{target.name}")


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
