"""Repairs a data directory no broker runs on: what is damaged goes to `quarantine`, the rest becomes whole again.

The order makes it safe to be killed at any point and to be run again: what is taken away is kept elsewhere first.
Segments come before the log, because folding the log appends to them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from millstream.app.data_folder import STATE, StorageFault, adopt_folder, recover_folder
from millstream.app.storage_survey import Survey
from millstream.app.table_repair import (
    free_path,
    keep_progress,
    replace_table,
    set_strangers_aside,
    skip_numbers,
)
from millstream.runtime.checkpoint_run import run as run_checkpoint
from millstream.runtime.disk_files import RealDisk
from millstream.runtime.failpoints import find_failpoints
from millstream.runtime.lmdb_table import LmdbTable
from millstream.storage.checkpoint import query_entry
from millstream.storage.disk import Disk, DiskFault
from millstream.storage.doubt_mark import EVERY_SESSION, write_mark
from millstream.storage.log_files import FOLDER as LOG_FOLDER
from millstream.storage.manifest import FOREIGN
from millstream.storage.recovery import QUARANTINE
from millstream.storage.segment_check import rewrite_segment
from millstream.storage.segment_format import folder_name, index_name
from millstream.storage.stage_facts import decode_query, encode_query
from millstream.storage.stage_format import stage_name
from millstream.storage.stop_mark import remove_mark
from millstream.storage.stream_gaps import find_all_gaps, note_gap
from millstream.storage.table import Table
from millstream.storage.table_check import BadEntry, check_table

_COPIES_MAX: Final = 1000


def repair_storage(data_dir: Path, survey: Survey) -> list[str]:
    """Do what the survey asks for. Gives a sentence for every step that was taken."""
    if survey.foreign:
        text = f"{survey.foreign[0]} was written by a newer release, which must repair it"
        raise StorageFault(text, "millstream --version")
    disk = RealDisk(data_dir)
    done: list[str] = []
    try:
        remove_mark(disk)  # it spoke of what is changed now
        has_lost_facts = survey.has_log_damage or bool(survey.table_fault) or bool(survey.incomplete)
        if has_lost_facts or survey.table.bad:
            write_mark(disk, EVERY_SESSION)  # what is lost, clients may still know
        _set_logs_aside(data_dir, survey, done)
        if survey.table_fault:
            replace_table(disk, data_dir, survey, done)
            _drop_dangling(disk, data_dir, done)
            set_strangers_aside(data_dir, done)
        elif survey.table.bad:
            _drop_entries(disk, data_dir, survey, done)
            keep_progress(data_dir, survey)
            set_strangers_aside(data_dir, done)  # an entry may have been that of a queue
        _set_segments_aside(disk, data_dir, survey, done)
        for checked in survey.segments:
            for missing in checked.lost:
                _set_aside(disk, checked.name, missing.stored_start, missing.stored_end, done)
            if checked.fault is not None:
                _set_aside(disk, checked.name, 0, 32, done)
            if checked.is_index_bad and not checked.must_rewrite():
                _set_aside(disk, index_name(checked.queue, checked.first), 0, 1 << 30, done)
            rewrite_segment(disk, checked)
            done.append(f"{checked.name}: {checked.records} records kept, its index made again")
        if has_lost_facts or survey.bad_stages:
            _fold_log(disk, data_dir, done)
        if survey.bad_stages:
            _end_batches(disk, data_dir, survey, done)
        _note_gaps(disk, data_dir, done)
        if has_lost_facts or survey.table.bad:
            skip_numbers(data_dir, survey)
        adopt_folder(disk, data_dir)
        done.append("manifest: written anew")
    except DiskFault as fault:
        raise StorageFault(fault.text, "millstream storage repair") from fault
    except OSError as error:
        text = f"{error.filename or data_dir}: {error.strerror or error}"
        raise StorageFault(text, "millstream storage repair") from error
    return done


def _set_logs_aside(data_dir: Path, survey: Survey, done: list[str]) -> None:
    """Files of other directories go; those that are cut short or lack something are kept as they are, and used."""
    for fault in survey.incomplete:
        path = data_dir / fault.name
        if path.parent.name != LOG_FOLDER or not path.exists():
            continue
        target = free_path(data_dir / QUARANTINE / fault.name.replace("/", "-"))
        target.parent.mkdir(mode=0o700, exist_ok=True)
        if fault.kind == FOREIGN:
            os.rename(path, target)
            done.append(f"{fault.name}: moved to {QUARANTINE}/{target.name}")
        else:
            shutil.copyfile(path, target)
            done.append(f"{fault.name}: copied to {QUARANTINE}/{target.name}")


def _set_segments_aside(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    """Files that are not those of their queue go, with their indexes; so do folders that no queue has."""
    for found in survey.inventory.faults:
        if found.fault.kind != FOREIGN:
            continue
        for name in (found.fault.name, index_name(found.queue, found.first)):
            if (data_dir / name).exists():
                target = free_path(data_dir / QUARANTINE / name.replace("/", "-"))
                target.parent.mkdir(mode=0o700, exist_ok=True)
                os.rename(data_dir / name, target)
                done.append(f"{name}: moved to {QUARANTINE}/{target.name}")
        disk.sync_folder(folder_name(found.queue))
    if survey.strangers:
        set_strangers_aside(data_dir, done)


def _drop_entries(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    """Also what named an entry that goes: it could not be used any more."""
    _drop_all(disk, data_dir, survey.table.bad, done)


def _drop_all(disk: Disk, data_dir: Path, bad: list[BadEntry], done: list[str]) -> None:
    table = LmdbTable(data_dir / STATE, is_lenient=True)
    try:
        bad = bad or check_table(table).bad
        while bad:
            for entry in bad:
                _drop_entry(disk, table, entry.key, entry.text, done)
            bad = check_table(table).bad
        table.trust()
        table.commit()
    finally:
        table.close()


def _drop_dangling(disk: Disk, data_dir: Path, done: list[str]) -> None:
    """What is left of a table may name what is not."""
    _drop_all(disk, data_dir, [], done)


def _drop_entry(disk: Disk, table: Table, key: bytes, text: str, done: list[str]) -> None:
    value = table.get(key)
    name = f"{STATE}-{key[:40].hex()}"
    if value is not None:
        _keep(disk, name, value)
    table.delete(key)
    done.append(f"{STATE}: {text}; the entry went to {QUARANTINE}/{name}")


def _fold_log(disk: Disk, data_dir: Path, done: list[str]) -> None:
    """What a start would make of the log becomes the new checkpoint; damaged files are kept as they are."""
    recovery = recover_folder(disk, data_dir)
    next_number, damage = recovery.next_number, recovery.damage
    for name in dict.fromkeys(found.name for found in damage):
        done.append(f"{name}: copied to {QUARANTINE}/{name.rpartition('/')[2]}")
    table = LmdbTable(data_dir / STATE)
    try:
        count = run_checkpoint(disk, table, next_number - 1, find_failpoints())
    finally:
        table.close()
    done.append(f"log: {count} files folded into the state")


def _end_batches(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    """A batch whose rows are not all there: taken back where none was published, so that its writer may stage it again;
    else it ends with those that were."""
    for stage in survey.bad_stages:
        _set_aside(disk, stage_name(stage), 0, 1 << 40, done)
    table = LmdbTable(data_dir / STATE)
    try:
        for query in dict.fromkeys(survey.bad_stages.values()):
            key = query_entry(*query.key())
            stored = table.get(key)
            known = None if stored is None else decode_query(stored)
            if known is None or known.begun is None:
                continue
            batch = known.begun
            known.begun = None
            end = "taken back, no row of it was published"
            if batch.next_row:
                known.last_done, known.last_rows = batch.batch, batch.next_row
                end = f"ended after {batch.next_row} of {batch.rows} rows"
            table.put(key, encode_query(known))
            done.append(f"{STATE}: the batch {batch.batch} of the query {known.name!r} was {end}")
        table.commit()
    finally:
        table.close()


def _note_gaps(disk: Disk, data_dir: Path, done: list[str]) -> None:
    """What streams lack now will not come back: it has been told, and need not be told again."""
    table = LmdbTable(data_dir / STATE)
    try:
        gaps = find_all_gaps(disk, table)
        for gap in gaps:
            note_gap(table, gap)
            done.append(f"{STATE}: {gap.sentence()} noted as lost")
        if gaps:
            table.commit()
    finally:
        table.close()


def _set_aside(disk: Disk, name: str, start: int, end: int, done: list[str]) -> None:
    try:
        file = disk.open(name)
    except DiskFault:
        return  # not there: nothing to keep
    try:
        data = file.read_at(start, min(end, int(file.size())) - start) if start < file.size() else b""
    finally:
        file.close()
    if data:
        target = f"{name.replace('/', '-')}.{start}-{start + len(data)}"
        _keep(disk, target, data)
        done.append(f"{name}: bytes {start} to {start + len(data)} copied to {QUARANTINE}/{target}")


def _keep(disk: Disk, name: str, data: bytes) -> None:
    """Under a name of its own, once: a second run finds it there."""
    disk.make_folder(QUARANTINE)
    taken = disk.names(QUARANTINE)
    target = f"{QUARANTINE}/{name}"
    for number in range(2, _COPIES_MAX):
        if target not in taken:
            break
        file = disk.open(target)
        is_same = file.read_at(0, file.size()) == data
        file.close()
        if is_same:
            return
        target = f"{QUARANTINE}/{name}.{number}"
    copy = disk.create(target, 0)
    copy.write_at(0, data)
    copy.sync()
    copy.close()
    disk.sync_folder(QUARANTINE)
