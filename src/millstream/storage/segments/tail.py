"""Finds the end of a queue's last segment: behind which record the next one goes, and what must be cut off before.

With a commit known, everything from its next offset on is cut: it will be told again. Without, whole records are kept,
and what was cut short is cut off. In both, records that the index says were synced and that cannot be read are damage:
they stay as they are, and the next record begins a new segment.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.blocks import BlockFile, complete_index, name_damage, open_records
from millstream.storage.segments.format import (
    HEADER_SIZE,
    INDEX_INTERVAL,
    OFFSET_MAX,
    SEGMENT_MAGIC,
    VERSION,
    find_header_fault,
    header_version,
    segment_name,
)
from millstream.storage.segments.index import SegmentIndex, load_index
from millstream.storage.segments.scan import SegmentScan

_DAMAGED: Final = "damaged; the records there cannot be trusted and are left out"


@final
class FoundTail:
    def __init__(self, index: SegmentIndex) -> None:
        self.index = index
        self.last = index.safe_offset  # offset of the last record that is kept
        self.end = index.safe_position  # behind it
        self.stored_end = (
            self.end
        )  # that in the file, if it is compressed; -1: it is in the middle of a block
        self.cut_at = -1  # where to cut; -1: nowhere
        self.is_unused = False  # it holds no record to keep
        self.is_closed = False  # nothing may be appended to it
        self.damage: list[Damage] = []


def find_tail(disk: Disk, queue: int, first: int, committed: int) -> FoundTail:
    """`committed` is the offset of the next record as of the last commit, -1 if that is not known."""
    end = committed if committed >= 0 else OFFSET_MAX
    found = FoundTail(load_index(disk, queue, first, end))
    if first >= end:
        found.is_unused = True
        return found
    name = segment_name(queue, first)
    file = disk.open(name)
    try:
        header = file.read_at(0, HEADER_SIZE)
        fault = find_header_fault(header, SEGMENT_MAGIC, queue, first)
        if header_version(header) > VERSION:
            raise DiskFault(f"{name}: {fault}")
        file = open_records(file, header, found.index)
        if complete_index(file, found.index):
            found.index.is_damaged = True  # as good as: it lacks some blocks
        size = int(file.size())
        if found.end > max(size, HEADER_SIZE):
            found.damage.append(Damage(name, size, found.end, "the end of the file is missing"))
        else:
            _walk(found, name, file, size, end)
        _place(found, file)
    finally:
        file.close()
    found.is_closed = bool(found.damage)
    if not found.is_closed and found.last < first:
        found.is_unused = True
    elif fault is not None:
        found.damage.append(Damage(name, 0, HEADER_SIZE, fault))
        found.is_closed = True
    return found


def _walk(found: FoundTail, name: str, file: DiskFile, size: int, end: int) -> None:
    """From the last place that is known to be good to the end of what is kept."""
    index = found.index
    scan = SegmentScan(file, index.queue, size, found.end, found.last)
    bad_at = -1
    while True:
        if scan.next():
            if scan.last >= end:
                found.cut_at = bad_at if bad_at >= 0 else int(scan.start)
                return
            if bad_at >= 0:
                found.damage.append(name_damage(name, file, bad_at, int(scan.start), _DAMAGED))
                bad_at = -1
            _keep(found, scan)
            continue
        if scan.is_at_end() and bad_at < 0:
            return
        if bad_at < 0:
            bad_at = int(scan.position)
        behind = scan.find_behind(index)
        if behind < 0 or end == OFFSET_MAX:
            found.cut_at = bad_at
            return
        scan.skip_to(behind)


def _keep(found: FoundTail, scan: SegmentScan) -> None:
    index = found.index
    found.last = int(scan.last)
    found.end = int(scan.position)
    start = int(scan.start)
    if start - index.position_of(len(index.positions) - 1) >= INDEX_INTERVAL or not index.positions:
        if index.add(found.last, int(scan.time), start):
            index.is_damaged = True  # as good as: it lacks this place
    index.latest = max(index.latest, int(scan.time))


def _place(found: FoundTail, file: DiskFile) -> None:
    """Where in the file the next record goes."""
    end = found.cut_at if found.cut_at >= 0 else found.end
    found.stored_end = end
    if isinstance(file, BlockFile):
        found.stored_end = file.place_of(end)
        found.index.cut(end)
