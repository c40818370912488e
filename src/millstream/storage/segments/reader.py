"""Reads records from the segments of queues, while another process may append to them, cut them and remove them.

Every record is checked. What cannot be read is named and left out, and reading goes on behind it. The end of the last
segment may be a record that is just being written: that is no damage, it is not there yet.

Ask for offsets that a commit covers: what lies behind them may still be cut off and written anew.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from mypy_extensions import i64

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.blocks import complete_index, name_damage, open_records
from millstream.storage.segments.format import (
    HEADER_SIZE,
    INDEX_INTERVAL,
    SEGMENT_MAGIC,
    VERSION,
    decode_names,
    find_header_fault,
    folder_name,
    header_version,
    segment_name,
)
from millstream.storage.segments.index import SegmentIndex, load_index
from millstream.storage.segments.scan import SegmentScan, scan_from

OPEN_SEGMENTS_MAX: Final = 64
FOLDERS_MAX: Final = 1024
_UNCOVERED_MAX: Final = 4 * INDEX_INTERVAL
_VANISHED_MAX: Final = 8
_DAMAGED: Final = "damaged; the records there cannot be trusted and are left out"


@final
class SegmentSlice:
    """Some records: all that can be read with an offset from the first asked for up to `end`, without it."""

    def __init__(self, first: i64, end: i64) -> None:
        self.bodies: list[bytes] = []
        self.end: i64 = end
        self.damage: list[Damage] = []
        self.size: i64 = 0  # of the bodies
        self.next: i64 = first  # the lowest offset that may still come
        self.is_cut = False  # there is more below the end that was asked for

    def cut(self) -> None:
        self.is_cut = True
        self.end = self.next


@final
class _Segment:
    """An open file and what is known about it."""

    def __init__(self, queue: int, first: int, file: DiskFile, index: SegmentIndex) -> None:
        self.queue = queue
        self.first = first
        self.name = segment_name(queue, first)
        self.file = file
        self.index = index
        self.fault: str | None = None  # of its header
        self.is_foreign = False  # of a format this release does not know
        self.covered = 0  # up to where the index was made as good as it can be
        self.is_fresh = True  # just opened: what it says is not older than the files
        self.resume_offset: i64 = -1  # where the last reading ended
        self.resume_position: i64 = 0


@final
class _Folder:
    def __init__(self, firsts: list[int]) -> None:
        self.firsts = firsts
        self.latest: dict[int, int] = {}  # time in segments that will not change, by first offset


@final
class SegmentReader:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._folders: dict[int, _Folder] = {}
        self._segments: dict[tuple[int, int], _Segment] = {}  # the one used longest ago first

    def read(self, queue: i64, first: i64, end: i64, count_max: i64, bytes_max: i64) -> SegmentSlice:
        """At least one record if there is any, whatever its size."""
        number = int(queue)
        found = SegmentSlice(first, end)
        firsts = self._folder(number, False).firsts
        is_new = False  # the list is as new as this call
        vanished = 0
        at = max(bisect_right(firsts, int(first)) - 1, 0)
        while found.next < end and not found.is_cut:
            if at >= len(firsts):
                if is_new:
                    break
                is_new = True
                seen = firsts[-1] if firsts else -1
                firsts = self._folder(number, True).firsts
                at = bisect_right(firsts, seen)
                continue
            if firsts[at] >= end:
                break
            segment = self._open(number, firsts[at])
            if segment is not None:
                self._read_segment(segment, found, count_max, bytes_max)
                at += 1
                continue
            vanished += 1
            if vanished > _VANISHED_MAX:
                raise DiskFault(f"{folder_name(number)}: its files change faster than they can be read")
            is_new = True
            firsts = self._folder(number, True).firsts
            at = max(bisect_right(firsts, int(found.next)) - 1, 0)
        return found

    def find_time(self, queue: i64, wall_ns: i64) -> i64:
        """The offset of the first record at or after a time, -1 if there is none."""
        number = int(queue)
        folder = self._folder(number, True)
        for at in range(len(folder.firsts)):
            first = folder.firsts[at]
            if at + 1 < len(folder.firsts) and self._latest(number, first, folder) < wall_ns:
                continue
            segment = self._open_anew(number, first)
            if segment is None:
                continue
            index = segment.index
            scan = scan_from(segment.file, index, segment.file.size(), index.find_time(int(wall_ns)))
            while scan.next() or scan.go_on(index):
                if scan.body and scan.time >= wall_ns:
                    return scan.last
        return -1

    def first_offset(self, queue: i64) -> i64:
        """-1 if there is no record."""
        number = int(queue)
        for first in self._folder(number, True).firsts:
            segment = self._open_anew(number, first)
            if segment is None:
                continue
            scan = scan_from(segment.file, segment.index, segment.file.size(), -1)
            while True:
                if scan.next():
                    return scan.last
                if not scan.go_on(segment.index):
                    break
        return -1

    def last_offset(self, queue: i64) -> i64:
        """-1 if there is no record."""
        number = int(queue)
        for first in reversed(self._folder(number, True).firsts):
            segment = self._open_anew(number, first)
            if segment is None:
                continue
            index = segment.index
            scan = scan_from(segment.file, index, segment.file.size(), len(index.offsets) - 1)
            while scan.next() or scan.go_on(index):
                pass
            last = max(scan.last, index.safe_offset)
            if last >= first:
                return last
        return -1

    def close(self) -> None:
        for segment in self._segments.values():
            segment.file.close()
        self._segments.clear()
        self._folders.clear()

    # ------------------------------------------------------------------------ reading

    def _read_segment(self, segment: _Segment, found: SegmentSlice, count_max: i64, bytes_max: i64) -> None:
        is_fresh = segment.is_fresh
        segment.is_fresh = False
        if segment.fault is not None:
            found.damage.append(Damage(segment.name, 0, HEADER_SIZE, segment.fault))
            if segment.is_foreign:
                return
        scan = self._begin(segment, found.next)
        while not _take(segment, scan, found, count_max, bytes_max):
            if not is_fresh:
                # It may have been cut and written anew since it was opened: look again before blaming it.
                self._forget(segment)
                if segment.fault is not None:
                    found.damage.pop()
                again = self._open(segment.queue, segment.first)
                if again is not None:
                    self._read_segment(again, found, count_max, bytes_max)
                return
            start = int(min(scan.position, scan.size))
            if (
                start >= segment.index.safe_position
                and self._is_last(segment)
                and scan.find_behind(segment.index) < 0
            ):
                break  # not there yet
            is_more = scan.go_on(segment.index)
            end = int(scan.position if is_more else max(scan.position, scan.size))
            found.damage.append(name_damage(segment.name, segment.file, start, end, _DAMAGED))
            if not is_more:
                break
        else:
            return
        self._forget(segment)

    def _begin(self, segment: _Segment, first: i64) -> SegmentScan:
        """A scan that will find the first record from `first` on."""
        size = segment.file.size()
        at = segment.index.find_offset(int(first))
        if at + 1 == len(segment.index.offsets) and first != segment.resume_offset:
            self._cover(segment, int(size))
            at = segment.index.find_offset(int(first))
        position = segment.resume_position
        if 0 <= segment.resume_offset <= first and position >= segment.index.position_of(at):
            return SegmentScan(segment.file, segment.queue, size, position, segment.resume_offset - 1)
        return scan_from(segment.file, segment.index, size, at)

    def _cover(self, segment: _Segment, size: int) -> None:
        """See to it that the index leaves no long way to walk."""
        index = segment.index
        known = max(segment.covered, index.position_of(len(index.positions) - 1))
        if size - known <= _UNCOVERED_MAX:
            return
        segment.covered = size
        index = segment.index = load_index(self._disk, segment.queue, segment.first)
        complete_index(segment.file, index)
        scan = scan_from(segment.file, index, size, len(index.positions) - 1)
        placed_at: i64 = scan.position
        while True:
            if scan.next():
                if scan.start - placed_at >= INDEX_INTERVAL:
                    index.add(int(scan.last), int(scan.time), int(scan.start))
                    placed_at = scan.start
                elif scan.time > index.latest:
                    index.latest = int(scan.time)
            elif not scan.go_on(index):
                return

    def _latest(self, queue: int, first: int, folder: _Folder) -> int:
        """The latest time in a segment behind which there is another."""
        known = folder.latest.get(first)
        if known is not None:
            return known
        index = load_index(self._disk, queue, first)
        if not index.is_sealed or index.is_damaged:
            segment = self._open_anew(queue, first)
            if segment is None:
                return -1
            index = segment.index
            scan = scan_from(segment.file, index, segment.file.size(), len(index.offsets) - 1)
            while scan.next() or scan.go_on(index):
                if scan.time > index.latest:
                    index.latest = int(scan.time)
        folder.latest[first] = index.latest
        return index.latest

    def _is_last(self, segment: _Segment) -> bool:
        return self._folder(segment.queue, True).firsts[-1:] == [segment.first]

    # -------------------------------------------------------------------------- files

    def _folder(self, queue: int, is_new: bool) -> _Folder:
        folder = self._folders.get(queue)
        if folder is not None and not is_new:
            return folder
        firsts, _ = decode_names(self._disk.names(folder_name(queue)))
        if folder is None:
            folder = _Folder(firsts)
            if len(self._folders) >= FOLDERS_MAX:
                del self._folders[next(iter(self._folders))]
            self._folders[queue] = folder
            return folder
        known = dict.fromkeys(firsts)
        for first in folder.firsts:
            if first not in known:
                segment = self._segments.get((queue, first))
                if segment is not None:
                    self._forget(segment)
                folder.latest.pop(first, None)
        folder.firsts = firsts
        return folder

    def _open(self, queue: int, first: int) -> _Segment | None:
        """None if it is gone."""
        key = (queue, first)
        segment = self._segments.pop(key, None)
        if segment is not None:
            self._segments[key] = segment
            return segment
        name = segment_name(queue, first)
        try:
            file = self._disk.open(name)
        except DiskFault:
            if name in self._disk.names(folder_name(queue)):
                raise
            return None
        while len(self._segments) >= OPEN_SEGMENTS_MAX:
            self._forget(self._segments[next(iter(self._segments))])
        index = load_index(self._disk, queue, first)
        try:
            header = file.read_at(0, HEADER_SIZE)
            file = open_records(file, header, index)
            complete_index(file, index)
        except DiskFault:
            file.close()
            raise
        segment = self._segments[key] = _Segment(queue, first, file, index)
        segment.fault = find_header_fault(header, SEGMENT_MAGIC, queue, first)
        segment.is_foreign = header_version(header) > VERSION
        return segment

    def _open_anew(self, queue: int, first: int) -> _Segment | None:
        """With an index that is not older than this call, and covers all."""
        segment = self._segments.get((queue, first))
        if segment is not None:
            self._forget(segment)
        segment = self._open(queue, first)
        if segment is not None:
            self._cover(segment, int(segment.file.size()))
        return segment

    def _forget(self, segment: _Segment) -> None:
        segment.file.close()
        self._segments.pop((segment.queue, segment.first), None)


def _take(segment: _Segment, scan: SegmentScan, found: SegmentSlice, count_max: i64, bytes_max: i64) -> bool:
    """Take records up to the end of the slice or of the segment. False where something is no record."""
    bodies = found.bodies
    first: i64 = found.next
    end: i64 = found.end
    count: i64 = len(bodies)
    size: i64 = found.size
    is_found = True
    while first < end:
        is_found = scan.next()
        if not is_found:
            break
        offset: i64 = scan.last
        if offset < first:
            continue
        body = scan.body
        if offset >= end or (count and (count >= count_max or size + len(body) > bytes_max)):
            found.next = first
            found.size = size
            segment.resume_offset = first
            segment.resume_position = scan.start
            if offset < end:
                found.cut()
            else:
                found.next = end
            return True
        bodies.append(body)
        count += 1
        size += len(body)
        first = offset + 1
    found.next = first
    found.size = size
    if is_found or (scan.position == scan.size and scan.expected < 0):
        segment.resume_offset = scan.last + 1
        segment.resume_position = scan.position
        return True
    return False
