"""Reads a whole segment and tells what is in it: good records, ranges that cannot be trusted, whether its index is right.

And makes a segment good again: what can be read is written anew, the index is made from it. The ranges that are left out
are the caller's to keep.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.segments.blocks import complete_index, open_records, stored_range
from millstream.storage.segments.format import (
    HEADER_SIZE,
    INDEX_INTERVAL,
    MARK,
    SEALED,
    SEGMENT_MAGIC,
    VERSION,
    encode_entry,
    encode_header,
    find_header_fault,
    folder_name,
    header_version,
    index_name,
    segment_name,
)
from millstream.storage.segments.index import SegmentIndex, load_index
from millstream.storage.segments.scan import SegmentScan

REPAIR_SUFFIX: Final = ".repair"
_PIECE_SIZE: Final = 1 << 20


@final
class LostRange:
    """Bytes that are no records, and which offsets can have been there."""

    def __init__(self, start: int, end: int, first: int) -> None:
        self.start = start
        self.end = end
        self.stored_start = start  # and those of the file, which differ if it is compressed
        self.stored_end = end
        self.first = first
        self.last = -1  # known when the next good record is; -1: to the end of the segment


@final
class CheckedSegment:
    def __init__(self, queue: int, first: int, is_last: bool) -> None:
        self.queue = queue
        self.first = first
        self.is_last = is_last
        self.name = segment_name(queue, first)
        self.size = 0  # of the file, as if nothing in it were compressed
        self.stored_size = 0  # of the file
        self.records = 0
        self.last = first - 1  # offset of the last good record
        self.latest = 0
        self.end = HEADER_SIZE  # behind the last good record
        self.fault: str | None = None  # of the header
        self.is_foreign = False  # written by a newer release: not ours to judge
        self.read_fault = ""  # of the disk: nobody knows what is in it
        self.is_index_bad = False
        self.lost: list[LostRange] = []
        self.jumps: list[tuple[int, int]] = []  # offsets that are not there although every byte is good
        self.unmet: dict[int, int] = {}  # places in the index where no such record begins
        self.torn_at = -1  # where something begins that was never committed
        self.index = SegmentIndex(queue, first)  # as it must be

    def is_damaged(self) -> bool:
        """The index of the last segment is not meant: it is synced late, and whoever appends next mends it."""
        return self.must_rewrite() or bool(self.read_fault) or (self.is_index_bad and not self.is_last)

    def must_rewrite(self) -> bool:
        return self.fault is not None or bool(self.lost)

    def forget_index(self) -> None:
        """Where nothing is to be repaired: there may be many of these."""
        self.index = SegmentIndex(self.queue, self.first)
        self.unmet = {}

    def next_expected(self, end: int) -> int:
        """The first offset behind those that are in this segment, or that it is known to have lost; all are below `end`."""
        if self.lost and self.lost[-1].last < 0:
            return end
        return max(self.last, self.lost[-1].last if self.lost else -1) + 1


def make_unreadable(queue: int, first: int, is_last: bool, fault: DiskFault) -> CheckedSegment:
    """What there is to say of a segment that the disk does not give."""
    checked = CheckedSegment(queue, first, is_last)
    checked.read_fault = f"it cannot be read ({fault.text})"
    return checked


def check_segment(disk: Disk, queue: int, first: int, is_last: bool, complete_to: int) -> CheckedSegment:
    """`complete_to`: no offset up to this one may be missing at the end of the last segment; -1: any may."""
    checked = CheckedSegment(queue, first, is_last)
    known = load_index(disk, queue, first)
    for at in range(len(known.positions)):
        checked.unmet[known.positions[at]] = known.offsets[at]
    file = disk.open(checked.name)
    try:
        checked.stored_size = int(file.size())
        header = file.read_at(0, HEADER_SIZE)
        checked.fault = find_header_fault(header, SEGMENT_MAGIC, queue, first)
        checked.is_foreign = header_version(header) > VERSION
        file = open_records(file, header, known)
        complete_index(file, known)
        checked.size = int(file.size())
        if not checked.is_foreign:
            _walk(checked, known, file, complete_to)
            _place(checked, file)
        if not checked.must_rewrite():
            complete_index(file, checked.index)  # one that must be written anew will not be compressed
    finally:
        file.close()
    if not checked.records and is_last and not checked.lost and checked.size <= HEADER_SIZE:
        checked.fault = None  # made, but its header never became safe: nothing was in it
    if not checked.is_foreign and (checked.records or not is_last):
        checked.is_index_bad = known.is_damaged or bool(checked.unmet)
    return checked


def _walk(checked: CheckedSegment, known: SegmentIndex, file: DiskFile, complete_to: int) -> None:
    scan = SegmentScan(file, checked.queue, checked.size, HEADER_SIZE, checked.first - 1)
    while True:
        if scan.next():
            _note_record(checked, scan)
            continue
        start = int(scan.position)
        if scan.is_at_end() and start >= known.safe_position:
            break
        if checked.is_last and start >= known.safe_position and scan.find_behind(known) < 0:
            if checked.last >= complete_to:
                checked.torn_at = start
                break
        is_more = scan.go_on(known)
        end = int(scan.position) if is_more else max(checked.size, known.safe_position)
        _note_lost(checked, start, end)
        if not is_more:
            if known.safe_position >= start:
                checked.lost[-1].last = max(known.safe_offset, checked.last)
            break


def _place(checked: CheckedSegment, file: DiskFile) -> None:
    """Say of what was found where in the file it is."""
    for lost in checked.lost:
        lost.stored_start, lost.stored_end = stored_range(file, lost.start, lost.end)
    if checked.torn_at >= 0:
        checked.torn_at = stored_range(file, checked.torn_at, checked.size)[0]


def _note_record(checked: CheckedSegment, scan: SegmentScan) -> None:
    index = checked.index
    start = int(scan.start)
    offset = int(scan.last)
    if checked.unmet.get(start) == offset:
        del checked.unmet[start]
    if checked.lost and checked.lost[-1].last < 0:
        checked.lost[-1].last = offset - 1
    elif offset > checked.last + 1:
        checked.jumps.append((checked.last + 1, offset - 1))
    at = start - sum([lost.end - lost.start for lost in checked.lost])  # where it will be without those
    if not index.positions or at - index.positions[-1] >= INDEX_INTERVAL:
        index.add(offset, max(checked.latest, int(scan.time)), at)
    checked.latest = max(checked.latest, int(scan.time))
    checked.records += 1
    checked.last = offset
    checked.end = int(scan.position)


def _note_lost(checked: CheckedSegment, start: int, end: int) -> None:
    if checked.lost and checked.lost[-1].end >= start:
        checked.lost[-1].end = end
    else:
        checked.lost.append(LostRange(start, end, checked.last + 1))


def rewrite_segment(disk: Disk, checked: CheckedSegment) -> None:
    """Leave out what is lost. At any moment there is a segment that can be read."""
    queue, first = checked.queue, checked.first
    folder = folder_name(queue)
    if checked.must_rewrite() and not checked.records:
        disk.remove(index_name(queue, first))
        disk.remove(checked.name)
        disk.sync_folder(folder)
        return
    end = checked.end - sum([lost.end - lost.start for lost in checked.lost if lost.end <= checked.end])
    if checked.must_rewrite():
        unfinished = checked.name + REPAIR_SUFFIX
        disk.remove(unfinished)
        _copy_good(disk, checked, unfinished)
        # Without an index a segment is read from its beginning; with one of other bytes it would not be.
        disk.remove(index_name(queue, first))
        disk.sync_folder(folder)
        disk.rename(unfinished, checked.name)
        disk.sync_folder(folder)
    _write_index(disk, checked, end)
    disk.sync_folder(folder)


def unpack_segment(disk: Disk, queue: int, first: int, end: int) -> None:
    """Write a compressed segment anew as it was before, up to a position. At any moment there is one that can be read."""
    name = segment_name(queue, first)
    unfinished = name + REPAIR_SUFFIX
    disk.remove(unfinished)
    source = disk.open(name)
    try:
        source = open_records(source, source.read_at(0, HEADER_SIZE), load_index(disk, queue, first))
        target = disk.create(unfinished, 0)
        try:
            target.write_at(0, encode_header(SEGMENT_MAGIC, queue, first))
            _copy(source, target, HEADER_SIZE, end, HEADER_SIZE)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()
    disk.remove(index_name(queue, first))
    disk.sync_folder(folder_name(queue))
    disk.rename(unfinished, name)
    disk.sync_folder(folder_name(queue))


def _copy_good(disk: Disk, checked: CheckedSegment, target_name: str) -> None:
    source = disk.open(checked.name)
    try:
        index = load_index(disk, checked.queue, checked.first)
        source = open_records(source, source.read_at(0, HEADER_SIZE), index)
        target = disk.create(target_name, 0)
        try:
            header = encode_header(SEGMENT_MAGIC, checked.queue, checked.first)
            target.write_at(0, header)
            at = HEADER_SIZE
            position = HEADER_SIZE
            for lost in checked.lost:
                at = _copy(source, target, position, min(lost.start, checked.end), at)
                position = max(lost.end, HEADER_SIZE)
            _copy(source, target, position, checked.end, at)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()


def _copy(source: DiskFile, target: DiskFile, start: int, end: int, at: int) -> int:
    """Where the next byte goes."""
    while start < end:
        data = source.read_at(start, min(_PIECE_SIZE, end - start))
        if not data:
            raise DiskFault("a segment became shorter while it was read")
        target.write_at(at, data)
        start += len(data)
        at += len(data)
    return at


def _write_index(disk: Disk, checked: CheckedSegment, end: int) -> None:
    index = checked.index
    name = index_name(checked.queue, checked.first)
    unfinished = name + REPAIR_SUFFIX
    disk.remove(unfinished)
    kind = MARK if checked.is_last else SEALED
    mark = encode_entry(index.seed, kind, checked.last, checked.latest, end)
    file = disk.create(unfinished, 0)
    try:
        file.write_at(0, index.encode() + mark)
        file.sync()
    finally:
        file.close()
    disk.rename(unfinished, name)
