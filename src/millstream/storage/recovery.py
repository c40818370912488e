"""A start: the state of the last checkpoint, then what the log has beyond it.

Nothing is served before it is safe. What was read from the log may only be in the page cache (the process died before
its sync, the machine did not), so the last files are written again in place and synced first: the same bytes over the
same bytes, which a crash in between cannot harm.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk, DiskFile, Failpoints
from millstream.storage.log.files import FOLDER
from millstream.storage.log.format import FILE_HEADER_SIZE
from millstream.storage.log.inventory import LogContent, check_bounds, list_kept, note_ends, read_log
from millstream.storage.log.recovery import Damage, RecoveredFile
from millstream.storage.lost_facts import find_ended
from millstream.storage.lost_offsets import LostOffsets
from millstream.storage.manifest import NEWER, UNREADABLE, Incomplete, ManifestKeeper
from millstream.storage.records.fold import Fold
from millstream.storage.table.checkpoint import load_table, read_meta
from millstream.storage.table.port import Table

QUARANTINE: Final = "quarantine"
PIECE: Final = 4 * 1024 * 1024


@final
class Recovery:
    """What a start has found."""

    def __init__(self, fold: Fold, folded_sequence: int) -> None:
        self.fold = fold
        self.folded_sequence = folded_sequence  # all up to here came from the table
        self.damage: list[Damage] = []
        self.notices: list[Incomplete] = []  # what is wrong and costs nothing
        self.cuts: list[Damage] = []  # ends that were being written when the process died
        self.lost = LostOffsets(fold.queues)
        self.next_number = 1
        self.has_marks = False  # a file was synced now and then only: the end of the log may be gone


def load_folded(table: Table, wall_offset_ns: int) -> tuple[Fold, int]:
    """(state of the last checkpoint, last file in it)."""
    fold = Fold(wall_offset_ns)
    load_table(table, fold)
    return fold, read_meta(table)[1]


def recover(
    disk: Disk,
    table: Table,
    wall_offset_ns: int,
    failpoints: Failpoints,
    keeper: ManifestKeeper | None = None,
) -> Recovery:
    """Torn ends are cut, damage is copied aside, everything kept is made safe.

    With a keeper of its manifest: Incomplete where a file is not there that must be, before anything is changed. Then the
    manifest names what is kept, before any of it changes."""
    hit = failpoints.hit
    fold, folded = load_folded(table, wall_offset_ns)
    found = Recovery(fold, fold.last_sequence)
    is_known = keeper is not None and keeper.manifest.generation > 0  # else it begins with what is there
    manifest = keeper.manifest if keeper is not None and is_known else None
    content = read_log(disk, folded, fold.last_sequence, manifest)
    found.notices = content.notices
    for fault in content.faults:
        if fault.kind in (UNREADABLE, NEWER):
            raise fault  # also for those who do without what is missing
    ended, lost = find_ended(manifest), found.lost
    lost.load(table)
    if keeper is not None:
        _check_and_enter(keeper, content, fold, folded)
    for name in content.folded:
        disk.remove(name)  # the checkpoint died between its commit and this
        hit("recover.after_remove_folded")
    for recovered in content.files:
        name = recovered.name
        found.damage.extend(recovered.damage)
        found.has_marks = found.has_marks or recovered.has_marks
        if recovered.is_unused:
            disk.remove(name)
            hit("recover.after_remove_unused")
            continue
        if recovered.damage:
            copy_aside(disk, name, failpoints)
        if recovered.cut_at >= 0:
            found.cuts.append(
                Damage(name, recovered.cut_at, recovered.size, "a batch that was never confirmed")
            )
        if (
            name in content.names[-2:]
        ):  # older ones were synced when they were sealed, with the one behind them begun
            make_safe(disk, recovered, failpoints)
        gap = find_gap(recovered, fold.last_sequence)
        if gap is not None:
            found.damage.append(gap)
        _apply(fold, recovered, lost)
    if fold.last_sequence < ended:
        lost.on_lost(ended - fold.last_sequence)
    lost.skip()
    disk.sync_folder(FOLDER)
    hit("recover.after_folder_sync")
    number = max(folded, content.last_number)
    if keeper is not None:
        note_ends(content, keeper.manifest)
        number = max(number, keeper.manifest.last_log)
        fold.queues.last_number = max(fold.queues.last_number, keeper.manifest.last_queue)
    found.next_number = number + 1
    return found


def _apply(fold: Fold, recovered: RecoveredFile, lost: LostOffsets) -> None:
    for record in recovered.records:
        if record.sequence <= fold.last_sequence:
            continue
        if record.sequence > fold.last_sequence + 1:
            lost.on_gap(fold.last_sequence + 1, int(record.sequence) - 1)
        fold.apply(record)


def _check_and_enter(keeper: ManifestKeeper, content: LogContent, fold: Fold, folded: int) -> None:
    if keeper.manifest.generation > 0:
        check_bounds(keeper.manifest, content, folded, fold.last_sequence)
    if content.faults:
        raise content.faults[0]
    new = keeper.manifest.copy()
    list_kept(content, new)
    keeper.note_folded(folded, fold.last_sequence)
    keeper.note_queue(fold.queues.last_number)
    keeper.change_to(new)


def find_gap(recovered: RecoveredFile, last_sequence: int) -> Damage | None:
    """Sequences count up without gaps over all files: what is missing before a file was lost with another one."""
    if not recovered.records:
        return None
    first = int(recovered.records[0].sequence)
    if first <= last_sequence + 1 or recovered.damage:
        return None  # damage inside this file has been named
    text = f"the facts {last_sequence + 1} to {first - 1} are missing before this file"
    return Damage(recovered.name, 0, FILE_HEADER_SIZE, text)


def make_safe(disk: Disk, recovered: RecoveredFile, failpoints: Failpoints) -> None:
    hit = failpoints.hit
    file = disk.open(recovered.name)
    try:
        if recovered.cut_at >= 0:
            hit("recover.before_cut")
            _clear(file, recovered.cut_at)
            hit("recover.after_cut")
        position = 0
        while position < recovered.end:
            piece = file.read_at(position, min(PIECE, recovered.end - position))
            if not piece:
                break
            file.write_at(position, piece)
            position += len(piece)
        hit("recover.after_rewrite")
        file.sync()
        hit("recover.after_sync")
    finally:
        file.close()


def _clear(file: DiskFile, position: int) -> None:
    """With zeros, as if it had never been used: a file keeps the size that the manifest says it has at least."""
    size = int(file.size())
    while position < size:
        piece = file.read_at(position, min(PIECE, size - position))
        used = len(piece.rstrip(b"\0"))
        if used:
            file.write_at(position, bytes(used))
        position += max(len(piece), 1)


def copy_aside(disk: Disk, name: str, failpoints: Failpoints) -> None:
    """Keep a damaged file as it is: a checkpoint will remove the original."""
    disk.make_folder(QUARANTINE)
    target = f"{QUARANTINE}/{name.rpartition('/')[2]}"
    if target in disk.names(QUARANTINE):
        disk.sync_folder(QUARANTINE)  # whoever made it may have died before this
        return
    source = disk.open(name)
    data = source.read_at(0, source.size())
    source.close()
    unfinished = f"{target}.part"
    disk.remove(unfinished)
    copy = disk.create(unfinished, 0)
    copy.write_at(0, data)
    copy.sync()
    copy.close()
    failpoints.hit("quarantine.before_rename")
    disk.rename(unfinished, target)  # only a whole copy has this name
    failpoints.hit("quarantine.after_rename")
    disk.sync_folder(QUARANTINE)
