"""Reads a whole data directory and says what is good in it and what is not. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.runtime.disk.data_folder import STATE, check_table_file, find_strangers, has_table
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable, find_good_entries, salvage_entries
from millstream.runtime.processes.table_check_process import check_in_process
from millstream.storage.directory import check_queues, open_directory, read_manifest
from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.inventory import LogContent, check_bounds, read_log
from millstream.storage.log.recovery import RecoveredFile
from millstream.storage.lost_facts import count_lost_facts
from millstream.storage.manifest import (
    DAMAGED,
    FOREIGN,
    MISSING,
    NEWER,
    OLDER,
    TABLE_FILE,
    UNREADABLE,
    Incomplete,
    Manifest,
)
from millstream.storage.manifest import NAME as MANIFEST_NAME
from millstream.storage.marks.repair_mark import NAME as MARK_NAME
from millstream.storage.marks.repair_mark import RepairMark, find_mark
from millstream.storage.offset_gaps import load_gaps
from millstream.storage.records import queue_records
from millstream.storage.records.batch_records import FIRST_KIND, LAST_KIND, StageFold, StoredQuery
from millstream.storage.records.stored_queue import QueueFold, StoredQueue
from millstream.storage.recovery import find_gap
from millstream.storage.segments.check import CheckedSegment, make_unreadable
from millstream.storage.segments.format import decode_names, folder_name
from millstream.storage.segments.inventory import SegmentFault, SegmentInventory, load_lists
from millstream.storage.segments.stream_gaps import check_queue, find_gaps
from millstream.storage.segments.survey import GAP_TEXT, SegmentFinding
from millstream.storage.stages.format import StageFault, stage_name
from millstream.storage.stages.reader import StageReader
from millstream.storage.table.check import CheckedTable
from millstream.storage.table.checkpoint import META, decode_meta, load_queues, load_stages, read_meta
from millstream.storage.table.entries import EntryTable
from millstream.storage.table.salvage import find_progress, is_content, keep_unlisted, stand_in

Progress = Callable[[str, int, int], None]  # what is read, files done, files in all


class Finding:
    """One file: what it holds, and how it is. `lost` says in words what cannot be had from it any more."""

    def __init__(
        self, file: str, kind: str, count: int, state: str, is_damaged: bool, lost: list[str]
    ) -> None:
        self.file = file
        self.kind = kind  # of what the count is about: facts, records or entries
        self.count = count
        self.state = state
        self.is_damaged = is_damaged
        self.lost = lost

    def to_row(self) -> dict[str, object]:
        return {
            "file": self.file,
            "count": self.count,
            "kind": self.kind,
            "state": self.state,
            "lost": self.lost,
            "is_damaged": self.is_damaged,
        }


class Survey:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.has_log_damage = False
        self.table = CheckedTable()
        self.table_fault = ""  # why the table cannot be used as a whole
        self.table_fault_kind = ""
        self.segments: list[CheckedSegment] = []  # those something must be done about
        self.inventory = SegmentInventory()  # of all files of queues
        self.strangers: list[Incomplete] = []  # folders that no queue has
        self.foreign: list[str] = []  # what a newer release has written
        self.unreadable: list[str] = []  # segments, stages and files of the log that the disk does not give
        self.stages = StageFold()  # batches that are decided and not done
        self.bad_stages: dict[str, StoredQuery] = {}
        self.incomplete: list[Incomplete] = []  # why a start refuses, beside damage inside of files
        self.manifest: Manifest | None = None
        self.known_gaps: dict[int, list[tuple[int, int]]] = {}  # by queue: what an earlier repair told of
        self.unfinished: RepairMark | None = None  # a repair was killed
        self.progress = (0, 0)  # (last sequence, last file) that the log need not hold any more
        self.table_sequence = 0  # and what of that the table has
        self.lost_facts = 0  # at most

    def is_damaged(self) -> bool:
        return any(finding.is_damaged for finding in self.findings)


def survey_storage(data_dir: Path, on_progress: Progress, given: Disk | None = None) -> Survey:
    """`given`: another disk than the real one below the directory."""
    survey = Survey()
    disk = given or RealDisk(data_dir)
    _survey_mark(survey, disk)
    _survey_manifest(survey, disk)
    queues, last_sequence, folded = _survey_table(survey, disk, data_dir)
    content = read_log(disk, folded, last_sequence, survey.manifest)
    for notice in content.notices:
        survey.findings.append(Finding(notice.name, "", 0, notice.what, False, []))
    if survey.manifest is not None:
        check_bounds(survey.manifest, content, folded, last_sequence)
    if any(fault.name == TABLE_FILE for fault in content.faults) and not survey.table_fault:
        fault = content.faults.pop()
        survey.findings = [finding for finding in survey.findings if finding.file != STATE]
        queues, last_sequence, folded = _without_table(survey, disk, data_dir, fault.what, fault.kind)
    survey.progress = (last_sequence, folded)
    is_older = any(fault.name == MANIFEST_NAME and fault.kind == OLDER for fault in survey.incomplete)
    known = None if is_older else survey.manifest  # files that came after it are named nowhere
    survey.lost_facts = count_lost_facts(known, content, survey.table_sequence, last_sequence)
    faults = survey.inventory.faults_by_queue()
    firsts = {queue: _list_own(disk, queue, faults.get(queue, [])) for queue in queues}
    total = len(content.files) + sum(len(found) for found in firsts.values())
    done = 0
    for found in content.files:
        for record in found.records:
            if record.sequence > last_sequence and FIRST_KIND <= record.kind <= LAST_KIND:
                survey.stages.apply(int(record.kind), record.body)
        if found.read_fault:
            last_sequence = _survey_unread(survey, found, last_sequence, content.files[done + 1 :])
        else:
            last_sequence = _survey_log(survey, found, last_sequence, content.faults)
        done += 1
        on_progress("log", done, total)
    for fault in content.faults:
        if fault.name not in content.names:
            _blame(survey, fault, "facts", [f"the facts in it, behind {last_sequence}"])
    for number, queue in queues.items():
        _survey_files(survey, queue, faults.get(number, []))
        segments: list[CheckedSegment] = []
        for at in range(len(firsts[number])):
            checked = _check(disk, queue, firsts[number], at)
            end = queue.next if checked.is_last else firsts[number][at + 1]
            _survey_segment(survey, checked, queue, end)
            segments.append(checked)
            done += 1
            on_progress("segments", done, total)
        _survey_gaps(survey, queue, segments)
    if not survey.table_fault and has_table(data_dir):
        _survey_strangers(survey, data_dir, content)
    _survey_stages(survey, disk)
    return survey


def _check(disk: Disk, queue: StoredQueue, firsts: list[int], at: int) -> CheckedSegment:
    try:
        return check_queue(disk, queue, firsts, at)
    except DiskFault as fault:
        return make_unreadable(queue.number, firsts[at], at + 1 == len(firsts), fault)


def _list_own(disk: Disk, queue: int, faults: list[SegmentFault]) -> list[int]:
    """First offsets of the segments of a queue, without those that are not its own."""
    foreign = {fault.first for fault in faults if fault.fault.kind == FOREIGN}
    return [first for first in decode_names(disk.names(folder_name(queue)))[0] if first not in foreign]


def _survey_files(survey: Survey, queue: StoredQueue, faults: list[SegmentFault]) -> None:
    """Those of a queue that are missing, cut short or not its own."""
    for found in faults:
        if found.fault.kind == UNREADABLE:
            continue  # told with what is in it
        lost: list[str] = []
        if not queue.is_stream() and found.fault.kind != NEWER:  # of a stream what is missing is named below
            word = "those left of" if found.fault.kind in (FOREIGN, MISSING) else "those at the end of"
            lost.append(f"{word} the offsets {found.first} to {found.end - 1} of the queue {queue.name!r}")
        survey.findings.append(
            Finding(found.fault.name, "records", 0, f"damaged: it {found.fault.what}", True, lost)
        )


def _survey_strangers(survey: Survey, data_dir: Path, content: LogContent) -> None:
    queues = QueueFold()
    table = _open_kept(data_dir, survey.table)
    try:
        load_queues(table, queues)
        for found in content.files:
            for record in found.records:
                if queue_records.FIRST_KIND <= record.kind <= queue_records.LAST_KIND:
                    queues.apply(int(record.kind), record.body)
        survey.strangers = find_strangers(data_dir, table, queues)
    finally:
        table.close()
    for stranger in survey.strangers:
        survey.findings.append(Finding(stranger.name, "", 0, f"damaged: it {stranger.what}", True, []))


def _survey_mark(survey: Survey, disk: Disk) -> None:
    survey.unfinished = find_mark(disk)
    if survey.unfinished is not None:
        survey.findings.append(Finding(MARK_NAME, "", 0, "damaged: a repair did not finish", True, []))


def _survey_manifest(survey: Survey, disk: Disk) -> None:
    try:
        survey.manifest = read_manifest(disk)
    except Incomplete as fault:
        _blame(survey, fault, "", [])


def _blame(survey: Survey, fault: Incomplete, kind: str, lost: list[str]) -> None:
    survey.incomplete.append(fault)
    survey.findings.append(Finding(fault.name, kind, 0, f"damaged: {fault.what}", True, lost))


def _survey_table(survey: Survey, disk: Disk, data_dir: Path) -> tuple[dict[int, StoredQueue], int, int]:
    """(queues, last sequence, last file) of the last checkpoint, as far as it can be read."""
    try:
        check_table_file(disk, data_dir)
        if not has_table(data_dir):
            return {}, 0, 0
        checked = check_in_process(data_dir)
    except Incomplete as fault:
        return _without_table(survey, disk, data_dir, fault.what, fault.kind)
    if isinstance(checked, str):
        return _without_table(survey, disk, data_dir, checked, DAMAGED)
    survey.table = checked
    lost = [f"{entry.text} ({entry.key[:40].hex()})" for entry in checked.bad if is_content(entry.key)]
    state = f"damaged: {len(checked.bad)} entries cannot be trusted" if checked.bad else "good"
    table = _open_kept(data_dir, checked)
    try:
        for entry in checked.bad:
            stand_in(table, entry.key, disk, survey.manifest)
        survey.table_sequence = read_meta(table)[0]
        try:
            directory = open_directory(disk, table, "")
        except Incomplete as fault:
            if fault.name == TABLE_FILE:
                return _without_table(survey, disk, data_dir, fault.what, fault.kind)
            if not survey.incomplete:
                _blame(survey, fault, "", [])
            if fault.kind == FOREIGN:
                survey.manifest = None  # what it says is about another directory
        else:
            for notice in directory.notices:
                survey.findings.append(Finding(notice.name, "", 0, notice.what, False, []))
        survey.findings.append(Finding(STATE, "entries", checked.entries, state, bool(checked.bad), lost))
        queues = QueueFold()
        load_queues(table, queues)
        survey.inventory = check_queues(disk, table)
        if checked.bad or survey.unfinished is not None:
            keep_unlisted(disk, survey.inventory, load_lists(table))
        load_stages(table, survey.stages)
        survey.known_gaps = {number: load_gaps(table, number) for number in queues.queues}
        last_sequence, folded = read_meta(table)
    finally:
        table.close()
    return queues.queues, last_sequence, folded


def _open_kept(data_dir: Path, checked: CheckedTable) -> LmdbTable | EntryTable:
    """The table without its bad entries, if it has any: its library must not be let change a page that is damaged."""
    if not checked.bad:
        return LmdbTable(data_dir / STATE)
    return EntryTable(find_good_entries(data_dir / STATE, checked))


def _without_table(
    survey: Survey, disk: Disk, data_dir: Path, fault: str, kind: str
) -> tuple[dict[int, StoredQueue], int, int]:
    survey.table_fault = fault
    survey.table_fault_kind = kind
    lost = [
        "every fact that was folded into it and cannot be read: of sessions, queues and their groups, exchanges, retained messages"
    ]
    survey.findings.append(Finding(STATE, "entries", 0, f"damaged: {fault}", True, lost))
    sequence, file = find_progress(disk, survey.manifest)
    if kind == DAMAGED:
        survey.table_sequence = _find_salvaged(data_dir, sequence)
    elif kind != OLDER:
        survey.table_sequence = 0
    return {}, sequence, file


def _find_salvaged(data_dir: Path, sequence: int) -> int:
    """Up to which fact the queues are known whose entries can still be read."""
    entries, is_newest = salvage_entries(data_dir / STATE)
    meta = entries.get(META)
    if meta is None:
        return sequence if is_newest else 0
    return min(sequence, decode_meta(meta)[0])


def _survey_unread(
    survey: Survey, found: RecoveredFile, last_sequence: int, following: list[RecoveredFile]
) -> int:
    """The last sequence before that of the next file, which need not be missing."""
    survey.unreadable.append(found.name)
    lost = [f"the facts in it, behind {last_sequence}, unless the disk gives them again"]
    survey.findings.append(Finding(found.name, "facts", 0, f"damaged: it {found.read_fault}", True, lost))
    firsts = [int(behind.records[0].sequence) for behind in following if behind.records]
    return max(last_sequence, firsts[0] - 1) if firsts else last_sequence


def _survey_log(survey: Survey, found: RecoveredFile, last_sequence: int, faults: list[Incomplete]) -> int:
    """The last sequence in the file, or the one before it."""
    gap = find_gap(found, last_sequence)
    damage = found.damage if gap is None else [*found.damage, gap]
    lost: list[str] = []
    for record in found.records:
        sequence = int(record.sequence)
        if sequence > last_sequence + 1:
            lost.append(f"the facts {last_sequence + 1} to {sequence - 1}")
        last_sequence = max(last_sequence, sequence)
    if damage:
        survey.has_log_damage = True
        state = "damaged: " + "; ".join(f"bytes {bad.start} to {bad.end}: {bad.text}" for bad in damage)
        if found.is_newer:
            survey.foreign.append(found.name)
        if (found.records and damage[-1].start >= found.end) or not found.records:
            lost.append(f"facts behind {last_sequence}, at its end")
    elif found.is_unused:
        state = "never used"
    elif found.cut_at >= 0:
        state = f"a torn write at byte {found.cut_at}, never confirmed"
    else:
        state = "good"
    of_file = [fault for fault in faults if fault.name == found.name]
    if of_file:
        survey.incomplete += of_file
        if any([fault.kind == NEWER for fault in of_file]):
            survey.foreign.append(found.name)
        state = "damaged: it " + "; ".join(fault.what for fault in of_file)
        lost = lost or [f"facts behind {last_sequence}"]
    is_damaged = bool(damage) or bool(of_file)
    survey.findings.append(Finding(found.name, "facts", len(found.records), state, is_damaged, lost))
    return last_sequence


def _survey_segment(survey: Survey, checked: CheckedSegment, queue: StoredQueue, end: int) -> None:
    """`end`: no offset of this segment is above it."""
    found = SegmentFinding(checked, queue, end)
    if checked.is_foreign:
        survey.foreign.append(checked.name)
    if checked.read_fault:
        survey.unreadable.append(checked.name)
    elif found.is_damaged:
        survey.segments.append(checked)
    else:
        checked.forget_index()
    survey.findings.append(
        Finding(checked.name, "records", checked.records, found.state, found.is_damaged, found.lost)
    )


def _survey_gaps(survey: Survey, queue: StoredQueue, segments: list[CheckedSegment]) -> None:
    lost = [gap.sentence() for gap in find_gaps(queue, segments, survey.known_gaps[queue.number])]
    if lost:
        survey.findings.append(
            Finding(folder_name(queue.number), "records", 0, f"damaged: {GAP_TEXT}", True, lost)
        )


def _survey_stages(survey: Survey, disk: Disk) -> None:
    """Only those that a decided batch needs: the others are gone in a day, or staged again."""
    for stage, query in survey.stages.begun_stages().items():
        batch = query.begun
        assert batch is not None
        rows, state, lost = 0, "good", list[str]()
        left = f"rows from {batch.next_row} on of batch {batch.batch} of the query {query.name!r}"
        try:
            reader = StageReader(disk, stage)
            try:
                rows = reader.footer.rows
                reader.check()
            finally:
                reader.close()
        except StageFault as fault:
            state = f"damaged: {fault}"
            lost.append(left)
            survey.bad_stages[stage] = query
        except DiskFault as fault:
            state = f"damaged: it cannot be read ({fault.text})"
            lost.append(f"{left}, unless the disk gives them again")
            survey.unreadable.append(stage_name(stage))
        survey.findings.append(Finding(stage_name(stage), "rows", rows, state, bool(lost), lost))
