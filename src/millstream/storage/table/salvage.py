"""What a table whose damaged entries are left out still says, and what other files say in their place.

Not every entry holds something that can be lost: how far the log is folded and whose the table is stand in the manifest too, and
which segments a queue has can be seen by the segments themselves.
"""

from __future__ import annotations

from bisect import bisect_right

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.files import file_number
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.manifest import FOREIGN, Manifest
from millstream.storage.segments.check import check_segment
from millstream.storage.segments.format import decode_names, folder_name
from millstream.storage.segments.inventory import PREFIX, ListedSegment, SegmentFault, SegmentInventory
from millstream.storage.table.checkpoint import IDENTITY, META, put_meta
from millstream.storage.table.port import Table


def is_content(key: bytes) -> bool:
    """Whether something of the users' is lost with an entry."""
    return key[:1] not in (META[:1], PREFIX)


def stand_in(table: Table, key: bytes, disk: Disk, manifest: Manifest | None) -> None:
    """Put what is known of a damaged entry in its place, if anything is."""
    if key == IDENTITY and manifest is not None and manifest.is_table_marked:
        table.put(IDENTITY, manifest.identity.encode())
    elif key == META:
        put_meta(table, *find_progress(disk, manifest))


def find_progress(disk: Disk, manifest: Manifest | None) -> tuple[int, int]:
    """(last sequence, last file) folded into a table that does not say it any more."""
    sequence, file = (0, 0) if manifest is None else (manifest.folded_sequence, manifest.folded_file)
    names = log_names(disk)
    if not names:
        if manifest is not None:
            sequence, file = max(sequence, manifest.stopped_at), max(file, manifest.last_log)
        return sequence, file
    number = file_number(names[0])
    if number <= file + 1:
        return sequence, file
    try:
        found = read_file(disk, names[0], len(names) == 1)
    except DiskFault:
        return sequence, file  # nothing is done before the disk gives it again
    if found.records:  # what is before it was folded, else it would be here
        sequence = max(sequence, int(found.records[0].sequence) - 1)
        file = number - 1
    return sequence, file


def keep_unlisted(
    disk: Disk, inventory: SegmentInventory, lists: dict[int, dict[int, ListedSegment]]
) -> None:
    """Where entries are damaged a segment that is not named need not be another's: a whole one that fits among the others stays."""
    left: list[SegmentFault] = []
    firsts: dict[int, list[int]] = {}  # of the segments in the folder of a queue
    for found in inventory.faults:
        number = found.queue
        if number not in firsts:
            firsts[number] = decode_names(disk.names(folder_name(number)))[0]
        is_listed = found.first in lists.get(number, {})
        if found.fault.kind != FOREIGN or is_listed or not _fits(disk, number, found.first, firsts[number]):
            left.append(found)
    inventory.faults = left


def _fits(disk: Disk, queue: int, first: int, firsts: list[int]) -> bool:
    """Every byte of it is right, and its records lie between those of its neighbours."""
    behind = bisect_right(firsts, first)
    is_last = behind == len(firsts)
    try:
        checked = check_segment(disk, queue, first, is_last, -1)
    except DiskFault:
        return False
    is_whole = not checked.must_rewrite() and not checked.is_foreign and checked.records > 0
    return is_whole and (is_last or checked.last < firsts[behind])
