"""Which segments a queue must have: named in the table, and changed with it in one atom.

    entry   key: queue, first offset of the segment; value: bytes that were committed, checksum of its first record's head,
            whether it is compressed

The head of a record holds its time and the checksum of its body, so that a segment of another directory, which may have the
same name and the same header, is not taken for this one. Nothing of this is in the segment itself: files of any release can be listed.

Invariants
- A segment is listed by the commit that makes its first record count, and taken off by the one that lets it go, before its file is
  removed. So a listed file is there, with at least the bytes that were committed.
- A file that is not listed is left over by a checkpoint that died: it lies below all that is kept, or behind all that was committed.
  Any other one is not ours.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Final, final

from google_crc32c import value

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.log.recovery import Damage
from millstream.storage.manifest import DAMAGED, FOREIGN, MISSING, NEWER, UNREADABLE, Incomplete
from millstream.storage.records.stored_queue import StoredQueue
from millstream.storage.segments.blocks import find_first_head, find_first_record, open_records
from millstream.storage.segments.format import (
    HEADER_SIZE,
    INDEX_MAGIC,
    PACKED_FORMAT,
    RECORD_PREFIX,
    SEGMENT_MAGIC,
    VERSION,
    decode_names,
    find_header_fault,
    folder_name,
    header_version,
    index_name,
    segment_name,
)
from millstream.storage.segments.index import SegmentIndex
from millstream.storage.segments.tail import find_tail
from millstream.storage.table.port import Table

PREFIX: Final = b"g"
LISTED: Final = b"\0segments"  # there when every segment is named: a release before this one named none
UNKNOWN: Final = 0  # where the checksum of the first record would stand

_KEY: Final = struct.Struct(">QQ")
_ENTRY: Final = struct.Struct("<QIB")


@final
class ListedSegment:
    def __init__(self, first: int, size: int, mark: int, is_packed: bool) -> None:
        self.first = first
        self.size = size
        self.mark = mark
        self.is_packed = is_packed


@final
class SegmentFault:
    """A file of a queue that is not what it must be. No offset in it can have been `end` or above."""

    def __init__(self, queue: int, first: int, end: int, fault: Incomplete) -> None:
        self.queue = queue
        self.first = first
        self.end = end
        self.fault = fault


@final
class SegmentInventory:
    def __init__(self) -> None:
        self.faults: list[SegmentFault] = []  # each alone is reason enough not to start
        self.damage: list[Damage] = []  # what costs no record, or is left out and named

    def faults_by_queue(self) -> dict[int, list[SegmentFault]]:
        found: dict[int, list[SegmentFault]] = {}
        for fault in self.faults:
            found.setdefault(fault.queue, []).append(fault)
        return found


# ------------------------------------------------------------------------ in the table


def entry_key(queue: int, first: int) -> bytes:
    return PREFIX + _KEY.pack(queue, first)


def is_entry(key: bytes, body: bytes) -> bool:
    return len(key) == len(PREFIX) + _KEY.size and len(body) == _ENTRY.size


def load_list(table: Table, queue: int) -> dict[int, ListedSegment]:
    """By first offset, in order."""
    return _load(table, entry_key(queue, 0)[: -_KEY.size // 2]).get(queue, {})


def load_lists(table: Table) -> dict[int, dict[int, ListedSegment]]:
    return _load(table, PREFIX)


def _load(table: Table, prefix: bytes) -> dict[int, dict[int, ListedSegment]]:
    found: dict[int, dict[int, ListedSegment]] = {}
    for key, body in table.items(prefix):
        if is_entry(key, body):
            queue, first = _KEY.unpack(key[len(PREFIX) :])
            size, mark, is_packed = _ENTRY.unpack(body)
            found.setdefault(queue, {})[first] = ListedSegment(first, size, mark, bool(is_packed))
    return found


def put_segment(table: Table, queue: int, listed: ListedSegment) -> None:
    body = _ENTRY.pack(listed.size, listed.mark, int(listed.is_packed))
    table.put(entry_key(queue, listed.first), body)


def update_list(
    disk: Disk, table: Table, queue: int, kept: list[int], listed: dict[int, ListedSegment]
) -> None:
    """Name what a queue has now, in the order of offsets; all of it is safe, and nothing lies behind what is to be committed."""
    wanted = dict.fromkeys(kept)
    for first in listed:
        if first not in wanted:
            table.delete(entry_key(queue, first))
    last_listed = max(listed) if listed else -1
    for first in kept:
        if first >= last_listed or first not in listed:  # the others have not changed
            put_segment(table, queue, describe_segment(disk, queue, first))


def remove_list(table: Table, queue: int) -> None:
    for first in load_list(table, queue):
        table.delete(entry_key(queue, first))


def list_all(disk: Disk, table: Table, queues: dict[int, StoredQueue]) -> None:
    """Take what is there for what must be there. `queues` as of the last commit."""
    for key, _ in table.items(PREFIX):
        table.delete(key)
    for number, queue in queues.items():
        firsts = decode_names(disk.names(folder_name(number)))[0]
        kept = [first for first in firsts if first < queue.next]
        while kept:
            listed = _describe_tail(disk, queue, kept[-1])
            if listed is not None:
                put_segment(table, number, listed)
                break
            kept.pop()
        for first in kept[:-1]:
            put_segment(table, number, describe_segment(disk, number, first))
    table.put(LISTED, b"\1")


def _describe_tail(disk: Disk, queue: StoredQueue, first: int) -> ListedSegment | None:
    """What was committed of it: the next checkpoint cuts off the rest. None if that is nothing."""
    found = find_tail(disk, queue.number, first, int(queue.next))
    if found.is_unused:
        return None
    listed = describe_segment(disk, queue.number, first)
    if not found.is_closed:
        listed.size = min(listed.size, found.stored_end) if found.stored_end >= 0 else HEADER_SIZE
    return listed


def describe_segment(disk: Disk, queue: int, first: int) -> ListedSegment:
    file = disk.open(segment_name(queue, first))
    try:
        header = file.read_at(0, HEADER_SIZE)
        mark = _find_mark(file, header, queue, first)
        return ListedSegment(first, int(file.size()), mark, header_version(header) == PACKED_FORMAT)
    finally:
        file.close()


def _find_mark(file: DiskFile, header: bytes, queue: int, first: int) -> int:
    """Checksum of the head of its first record; UNKNOWN where that record is not whole."""
    prefix, is_whole = find_first_record(open_records(file, header, SegmentIndex(queue, first)))
    return _mark_of(prefix) if is_whole else UNKNOWN


def _mark_of(head: bytes) -> int:
    mark: int = value(head)
    return mark or 1


# -------------------------------------------------------------------- against the files


def check_segments(
    disk: Disk, queues: dict[int, StoredQueue], lists: dict[int, dict[int, ListedSegment]]
) -> SegmentInventory:
    """Look at every file of every queue, not at its records. Changes nothing."""
    found = SegmentInventory()
    for number, queue in queues.items():
        _QueueCheck(disk, found, queue, lists.get(number, {})).check()
    return found


@final
class _QueueCheck:
    def __init__(
        self, disk: Disk, found: SegmentInventory, queue: StoredQueue, listed: dict[int, ListedSegment]
    ) -> None:
        self._disk = disk
        self._found = found
        self._queue = queue
        self._number = queue.number
        self._listed = listed
        firsts, indexes = decode_names(disk.names(folder_name(queue.number)))
        self._firsts = dict.fromkeys(firsts)
        self._indexes = dict.fromkeys(indexes)
        self._last = firsts[-1] if firsts else -1
        self._in_order = sorted(listed)

    def check(self) -> None:
        low, end = int(self._queue.low_mark()), int(self._queue.next)
        for first in sorted({**self._firsts, **dict.fromkeys(self._listed)}):
            listed = self._listed.get(first)
            if listed is None:
                if low <= first < end:
                    text = "belongs to another data directory, or was put back: the table does not name it"
                    self._blame(first, text, FOREIGN)
            elif first not in self._firsts:
                self._blame(first, "is missing", MISSING)
            else:
                try:
                    self._check_files(listed)
                except DiskFault as fault:
                    self._blame(first, f"cannot be read ({fault.text})", UNREADABLE)

    def _check_files(self, listed: ListedSegment) -> None:
        self._check_segment(listed)
        is_last = listed.first == self._last
        if listed.first in self._indexes:
            self._check_index(listed.first, is_last)
        elif not is_last:
            text = "the index of the segment is missing; no record is lost with it"
            self._name(index_name(self._number, listed.first), 0, text)

    def _blame(self, first: int, text: str, kind: str = DAMAGED) -> None:
        behind = bisect_right(self._in_order, first)
        end = self._in_order[behind] if behind < len(self._in_order) else int(self._queue.next)
        fault = Incomplete(segment_name(self._number, first), text, kind)
        self._found.faults.append(SegmentFault(self._number, first, end, fault))

    def _name(self, name: str, end: int, text: str) -> None:
        self._found.damage.append(Damage(name, 0, end, text))

    def _check_segment(self, listed: ListedSegment) -> None:
        first = listed.first
        name = segment_name(self._number, first)
        file = self._disk.open(name)
        try:
            size = int(file.size())
            header = file.read_at(0, HEADER_SIZE)
            fault = find_header_fault(header, SEGMENT_MAGIC, self._number, first)
            version = header_version(header)
            if version > VERSION:
                self._blame(first, f"was written by a newer release: {fault}", NEWER)
            elif size == 0:
                self._blame(first, "is empty")
            elif version and fault is not None:
                self._blame(first, f"is another one: {fault}", FOREIGN)
            elif not self._is_own(file, header, listed):
                self._blame(first, "belongs to another data directory", FOREIGN)
            elif size < listed.size and not _is_unpacked(listed, version):
                self._blame(first, f"is cut short: it ends at byte {size} of {listed.size}")
            elif fault is not None:
                self._name(name, HEADER_SIZE, fault)
        finally:
            file.close()

    def _is_own(self, file: DiskFile, header: bytes, listed: ListedSegment) -> bool:
        """A first record that is damaged says nothing about whose it is. All of it is read only where its head is not what it was."""
        head = find_first_head(file, header, self._number, listed.first)
        if len(head) == RECORD_PREFIX.size and _mark_of(head) == listed.mark:
            return True
        mark = _find_mark(file, header, self._number, listed.first)
        if mark == UNKNOWN and listed.mark != UNKNOWN and int(file.size()) >= listed.size:
            text = "the first record is damaged; what cannot be trusted is left out"
            self._name(segment_name(self._number, listed.first), int(file.size()), text)
        return UNKNOWN in (mark, listed.mark) or mark == listed.mark

    def _check_index(self, first: int, is_last: bool) -> None:
        """Without it more is read to find an offset. That of the last segment is synced late, and mended by whoever appends."""
        name = index_name(self._number, first)
        file = self._disk.open(name)
        try:
            fault = find_header_fault(file.read_at(0, HEADER_SIZE), INDEX_MAGIC, self._number, first)
        finally:
            file.close()
        if fault is not None and not is_last:
            self._name(name, HEADER_SIZE, f"{fault}; no record is lost with it")


def _is_unpacked(listed: ListedSegment, version: int) -> bool:
    """A checkpoint that died has written it anew without compression."""
    return listed.is_packed and version not in (PACKED_FORMAT, 0)
