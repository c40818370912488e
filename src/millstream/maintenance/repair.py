"""Repairs a data directory no broker runs on: what is damaged goes to `quarantine`, the rest becomes whole again.

It may be killed at any point and run again: what is taken away is kept elsewhere first, and a mark (`storage/marks/repair_mark.py`)
says from before the first change to after the last that a repair is under way, and what it had found.
Segments come before the log, because folding the log appends to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.maintenance.survey import Survey, survey_storage
from millstream.maintenance.table_repair import (
    copy_aside,
    enter_progress,
    move_aside,
    replace_table,
    rewrite_table,
    set_strangers_aside,
    skip_numbers,
    skip_offsets,
)
from millstream.runtime.disk.data_dir import advise
from millstream.runtime.disk.data_folder import (
    STATE,
    StorageFault,
    adopt_folder,
    recover_folder,
    repair_command,
)
from millstream.runtime.disk.failpoints import find_failpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.runtime.processes.checkpoint_process import run as run_checkpoint
from millstream.storage.disk import Disk, DiskFault, Failpoints
from millstream.storage.log.files import FOLDER as LOG_FOLDER
from millstream.storage.manifest import FOREIGN
from millstream.storage.marks import repair_mark
from millstream.storage.marks.doubt_mark import EVERY_SESSION, write_mark
from millstream.storage.marks.repair_mark import RepairMark
from millstream.storage.marks.stop_mark import remove_mark
from millstream.storage.offset_gaps import note_gap
from millstream.storage.records.batch_records import decode_query, encode_query
from millstream.storage.recovery import QUARANTINE
from millstream.storage.segments.check import CheckedSegment, rewrite_segment
from millstream.storage.segments.format import index_name
from millstream.storage.segments.stream_gaps import find_all_gaps
from millstream.storage.stages.format import stage_name
from millstream.storage.table.check import BadEntry, check_table
from millstream.storage.table.checkpoint import query_entry
from millstream.storage.table.port import Table

_COPIES_MAX: Final = 1000


def repair_storage(data_dir: Path, survey: Survey, failpoints: Failpoints | None = None) -> list[str]:
    """Do what the survey asks for. Gives a sentence for every step that was taken."""
    _check_ours(survey)
    disk = RealDisk(data_dir)
    done: list[str] = []
    try:
        _repair(disk, data_dir, survey, failpoints or find_failpoints(), done)
        if survey.table_fault:  # only now it is known which queues and segments there are
            behind = survey_storage(data_dir, _ignore)
            if behind.is_damaged():
                _check_ours(behind)
                _repair(disk, data_dir, behind, failpoints or find_failpoints(), done)
    except DiskFault as fault:
        raise StorageFault(fault.text, advise(data_dir, fault, repair_command(data_dir))) from fault
    except OSError as error:
        text = f"{error.filename or data_dir}: {error.strerror or error}"
        raise StorageFault(text, advise(data_dir, error, repair_command(data_dir))) from error
    return done


def _ignore(step: str, done: int, total: int) -> None:
    pass


def _check_ours(survey: Survey) -> None:
    if survey.foreign:
        text = f"{survey.foreign[0]} was written by a newer release, which must repair it"
        raise StorageFault(text, "millstream --version")
    if survey.unreadable:
        text = f"the disk does not give {survey.unreadable[0]}; put a copy in its place, or move it away to do without its messages"
        raise StorageFault(text, "dmesg")


def _repair(disk: Disk, data_dir: Path, survey: Survey, failpoints: Failpoints, done: list[str]) -> None:
    has_lost_facts = survey.has_log_damage or bool(survey.table_fault) or bool(survey.incomplete)
    has_lost_entries = bool(survey.table_fault) or bool(survey.table.bad)
    loss = RepairMark(has_lost_facts, has_lost_entries, survey.lost_facts).join(survey.unfinished)
    repair_mark.write_mark(disk, loss)
    remove_mark(disk)  # it spoke of what is changed now
    has_lost_any = loss.has_lost_facts or loss.has_lost_entries
    if has_lost_any:
        write_mark(disk, EVERY_SESSION)  # what is lost, clients may still know
    failpoints.hit("repair.after_mark")
    disk.make_folder(LOG_FOLDER)  # it may be what is missing
    _set_logs_aside(disk, data_dir, survey, done)
    failpoints.hit("repair.after_logs")
    if survey.table_fault:
        replace_table(disk, data_dir, survey, failpoints, done)
    elif survey.table.bad:
        _keep_entries(disk, data_dir, survey.table.bad, done)
        failpoints.hit("repair.before_rename_table")
        rewrite_table(disk, data_dir, survey, failpoints)
    if loss.has_lost_entries:
        _drop_entries(disk, data_dir, survey, done)
        failpoints.hit("repair.after_entries")
        set_strangers_aside(disk, data_dir, done)  # an entry may have been that of a queue
        failpoints.hit("repair.after_strangers")
    _set_segments_aside(disk, data_dir, survey, done)
    failpoints.hit("repair.after_segments_aside")
    for checked in survey.segments:
        _repair_segment(disk, data_dir, checked, done)
        failpoints.hit("repair.after_segment")
    if loss.has_lost_facts or survey.bad_stages:
        _fold_log(disk, data_dir, done)
        failpoints.hit("repair.after_fold")
    if survey.bad_stages:
        _end_batches(disk, data_dir, survey, done)
    _note_gaps(disk, data_dir, done)
    if has_lost_any:
        skip_numbers(data_dir, survey)
    if loss.lost_facts:
        skip_offsets(data_dir, loss.lost_facts, done)
    failpoints.hit("repair.before_adopt")
    adopt_folder(disk, data_dir)
    failpoints.hit("repair.after_adopt")
    repair_mark.remove_mark(disk)
    done.append("manifest: written anew")


def _repair_segment(disk: Disk, data_dir: Path, checked: CheckedSegment, done: list[str]) -> None:
    index = index_name(checked.queue, checked.first)
    if (data_dir / index).is_dir():  # no file can take its place
        move_aside(disk, data_dir, index, done)
    for missing in checked.lost:
        _set_aside(disk, checked.name, missing.stored_start, missing.stored_end, done)
    if checked.fault is not None:
        _set_aside(disk, checked.name, 0, 32, done)
    if checked.is_index_bad and not checked.must_rewrite():
        _set_aside(disk, index, 0, 1 << 30, done)
    rewrite_segment(disk, checked)
    done.append(f"{checked.name}: {checked.records} records kept, its index made again")


def _set_logs_aside(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    """Files of other directories go; those that are cut short or lack something are kept as they are, and used."""
    for fault in survey.incomplete:
        path = data_dir / fault.name
        if not fault.name.startswith(f"{LOG_FOLDER}/") or not path.exists():
            continue
        if fault.kind == FOREIGN or not path.is_file():  # whoever copied a pipe would wait for ever
            move_aside(disk, data_dir, fault.name, done)
        else:
            target = copy_aside(path, data_dir / QUARANTINE / fault.name.replace("/", "-"))
            disk.sync_folder(QUARANTINE)
            done.append(f"{fault.name}: copied to {QUARANTINE}/{target.name}")


def _set_segments_aside(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    """Files that are not those of their queue go, with their indexes; so do folders that no queue has."""
    for found in survey.inventory.faults:
        if found.fault.kind != FOREIGN:
            continue
        for name in (index_name(found.queue, found.first), found.fault.name):
            if (data_dir / name).exists():
                move_aside(disk, data_dir, name, done)
    if survey.strangers:
        set_strangers_aside(disk, data_dir, done)


def _keep_entries(disk: Disk, data_dir: Path, bad: list[BadEntry], done: list[str]) -> None:
    table = LmdbTable(data_dir / STATE, is_lenient=True)
    try:
        for entry in bad:
            _keep_entry(disk, table, entry, done)
    finally:
        table.close()


def _keep_entry(disk: Disk, table: Table, entry: BadEntry, done: list[str]) -> None:
    value = table.get(entry.key)
    name = f"{STATE}-{entry.key[:40].hex()}"
    if value is not None:
        _keep(disk, name, value)
    done.append(f"{STATE}: {entry.text}; the entry went to {QUARANTINE}/{name}")


def _drop_entries(disk: Disk, data_dir: Path, survey: Survey, done: list[str]) -> None:
    """What named an entry that is gone: it could not be used any more."""
    table = LmdbTable(data_dir / STATE)
    try:
        while bad := check_table(table).bad:
            for entry in bad:
                _keep_entry(disk, table, entry, done)
                table.delete(entry.key)
        enter_progress(table, survey)
        table.commit()
    finally:
        table.close()


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
            note_gap(table, gap.queue.number, gap.first, gap.last)
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
