"""`python -m millstream.runtime.processes.checkpoint_process DIR SEGMENT_SIZE PARENT`: folds the log up to a file, then removes it.

A process of its own, which ends when its broker closes its input: folding is work for a processor, and the loop must not feel it.
It reads the number of a file and that of the last fact in it, one pair a line, and answers each with `done` and how far the table
goes now (file, last sequence) or `failed`, after what it found damaged. Asked to `check`, it
reads one more segment, and says `checked` when there was none left.
"""

from __future__ import annotations

import gc
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.failpoints import find_failpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.runtime.memory.allocator import give_back_freed_memory, keep_freed_memory
from millstream.runtime.processes.die_with_parent import die_with_parent
from millstream.storage.disk import Disk, DiskFault, Failpoints
from millstream.storage.log.files import FOLDER, file_name, file_number
from millstream.storage.log.format import FILE_HEADER_SIZE
from millstream.storage.log.inventory import read_own_file
from millstream.storage.log.recovery import Damage, log_names
from millstream.storage.manifest import Manifest, ManifestFault, find_manifest
from millstream.storage.records.session_records import FactFault
from millstream.storage.recovery import copy_aside, find_gap
from millstream.storage.segments.survey import SegmentSurvey
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.table.checkpoint import IDENTITY, Checkpoint, read_meta
from millstream.storage.table.port import Table

DONE: Final = "done"
FOLDED: Final = "done "  # and what the table has committed: the last file, the last sequence
FAILED: Final = "failed: "
DAMAGE: Final = "damaged: "
CHECK: Final = "check"
CHECKED: Final = "checked"
PACKED: Final = "packed"  # said to it: new segments are compressed
UNKNOWN: Final = -1  # where the last fact of a file would stand
SEGMENT_SIZE: Final = 64 * 1024 * 1024
CALM_S: Final = 1.0
SENTENCE_MAX: Final = 8192  # characters: a line that is read at once must not have more than 64 KiB
CUT: Final = "... (there is more: `millstream storage verify` says all of it)"


def run(
    disk: Disk,
    table: Table,
    last_file: int,
    failpoints: Failpoints,
    segment_size: int = SEGMENT_SIZE,
    on_damage: Callable[[Damage], None] | None = None,
    is_packed: bool = False,
    last_sequence: int = UNKNOWN,
) -> int:
    """Fold and remove; how many files went. A damaged one is kept in quarantine. `last_sequence`: of the last file, as the broker
    knows it that wrote it."""
    segments = SegmentWriter(disk, failpoints, segment_size, is_packed)
    checkpoint = Checkpoint(table, segments, counts_lost=last_sequence != UNKNOWN)
    manifest = _note_manifest(disk, table, checkpoint)
    names = [name for name in log_names(disk) if file_number(name) <= last_file]
    is_end_told = False
    for name in names:
        number = file_number(name)
        if number > checkpoint.file:
            recovered = read_own_file(disk, name, manifest)
            gap = find_gap(recovered, checkpoint.last_sequence)
            is_end_told = number == last_file and bool(recovered.damage)
            if recovered.damage:
                copy_aside(disk, name, failpoints)
            if on_damage is not None:
                for damage in recovered.damage if gap is None else [*recovered.damage, gap]:
                    on_damage(damage)
            for record in recovered.records:
                checkpoint.apply(record)
            failpoints.hit("checkpoint.before_commit")
            checkpoint.finish(number)
            failpoints.hit("checkpoint.after_commit")
            checkpoint.drop_segments()
            failpoints.hit("checkpoint.after_drop")
        disk.remove(name)
        failpoints.hit("checkpoint.after_remove")
    if checkpoint.last_sequence < last_sequence:
        if not [name for name in log_names(disk) if file_number(name) > last_file]:
            # not one file is there, not even the one being written: the folder is away, and may come back with all of them
            raise DiskFault(f"{FOLDER}: no file of the log is there")
        text = f"the facts {checkpoint.last_sequence + 1} to {last_sequence} are missing at the end"
        if on_damage is not None and not is_end_told:
            on_damage(Damage(file_name(last_file), 0, FILE_HEADER_SIZE, text))
        checkpoint.pass_lost(last_sequence)
        checkpoint.finish(last_file)
    disk.sync_folder(FOLDER)
    failpoints.hit("checkpoint.after_folder_sync")
    if on_damage is not None:
        for damage in segments.damage:
            on_damage(damage)
    return len(names)


def _note_manifest(disk: Disk, table: Table, checkpoint: Checkpoint) -> Manifest | None:
    """The one that names the files of this log, if there is any."""
    try:
        manifest = find_manifest(disk)
    except ManifestFault:
        return None  # the next start names it
    if manifest is None:
        return None
    disk.sync_folder(
        "."
    )  # it may have taken its place this moment, and the table must not know more than the disk
    checkpoint.note_manifest(manifest.generation)
    return manifest if table.get(IDENTITY) == manifest.identity.encode() else None


def tell(damage: Damage) -> None:
    """The broker puts it into its log."""
    sys.stdout.write(f"{DAMAGE}{cut(damage.sentence())}\n")


def cut(sentence: str) -> str:
    """Of many places in one segment each is named, with its queue."""
    return sentence if len(sentence) <= SENTENCE_MAX else sentence[:SENTENCE_MAX] + CUT


def fold(folder: Path, last_file: int, last_sequence: int, segment_size: int, is_packed: bool) -> str:
    """What to answer."""
    try:
        with hold_checkpoints(folder):
            table = LmdbTable(folder / "state")
            try:
                disk, failpoints = RealDisk(folder), find_failpoints()
                run(disk, table, last_file, failpoints, segment_size, tell, is_packed, last_sequence)
                sequence, file = read_meta(table)
            finally:
                table.close()
    except DiskFault as fault:
        return f"{FAILED}{fault.text}"
    except FactFault as fault:
        return f"{FAILED}{fault}"
    return f"{FOLDED}{file} {sequence}"


def check(folder: Path, survey: SegmentSurvey) -> str:
    """What to answer."""
    try:
        with hold_checkpoints(folder):
            table = LmdbTable(folder / "state")
            try:
                found = survey.step(table)
            finally:
                table.close()
    except DiskFault as fault:
        return f"{FAILED}{fault.text}"
    for sentence in found or []:
        sys.stdout.write(f"{DAMAGE}{cut(sentence)}\n")
    return CHECKED if found is None else DONE


def main() -> int:
    folder, segment_size, parent = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    is_packed = sys.argv[4:] == [PACKED]
    die_with_parent(parent)
    keep_freed_memory()
    gc.disable()  # while many records are held, it would look at all of them again and again
    gc.freeze()
    survey = SegmentSurvey(RealDisk(folder))
    for line in wait_for_lines():
        if line.strip() == CHECK:
            sys.stdout.write(f"{check(folder, survey)}\n")
            sys.stdout.flush()
            continue
        last_file, last_sequence = line.split()
        answer = fold(folder, int(last_file), int(last_sequence), segment_size, is_packed)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
        gc.collect()
    return 0


def wait_for_lines() -> Iterator[str]:
    """There is never a second one before the first was answered. What was freed is kept for the next file of the log, and given
    back when that is long in coming."""
    while True:
        if not select.select([sys.stdin], [], [], CALM_S)[0]:
            give_back_freed_memory()
        line = sys.stdin.readline()
        if not line:
            return
        yield line


if __name__ == "__main__":
    sys.exit(main())
