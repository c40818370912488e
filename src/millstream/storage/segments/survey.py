"""Reads the segments of all queues from end to end, one after the other, and names what is damaged in them.

`verify` does it at once; a broker that has started does it in the background, while checkpoints append to them and remove them. So
each step looks at the table again, and at one segment only; nobody may fold meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.offset_gaps import load_gaps
from millstream.storage.records.stored_queue import StoredQueue
from millstream.storage.segments.check import CheckedSegment, make_unreadable
from millstream.storage.segments.format import decode_names, folder_name, segment_name
from millstream.storage.segments.stream_gaps import check_queue, find_gaps
from millstream.storage.table.checkpoint import find_queue, list_queues
from millstream.storage.table.port import Table

GAP_TEXT: Final = "offsets are in none of its segments; a file is gone, or never got them"


@final
class SegmentFinding:
    """What one segment is like; `lost` says in words what cannot be had from it any more."""

    def __init__(self, checked: CheckedSegment, queue: StoredQueue, end: int) -> None:
        """`end`: no offset of this segment is above it."""
        self.name = checked.name
        self.is_damaged = checked.is_damaged()
        self.lost: list[str] = []
        parts: list[str] = []
        if checked.fault is not None:
            parts.append(checked.fault)
        if checked.read_fault:
            parts.append(checked.read_fault)
            self.lost.append(
                f"the offsets {checked.first} to {end - 1} of the queue {queue.name!r}, unless the disk gives them again"
            )
        for missing in checked.lost:
            last = missing.last if missing.last >= 0 else end - 1
            parts.append(f"bytes {missing.stored_start} to {missing.stored_end} are no records")
            self.lost.append(f"the offsets {missing.first} to {last} of the queue {queue.name!r}")
        if checked.is_index_bad:
            parts.append("its index must be made again")
        if checked.torn_at >= 0 and not parts:
            self.state = f"a torn write at byte {checked.torn_at}, never committed"
        elif self.is_damaged:
            self.state = "damaged: " + "; ".join(parts)
        else:
            self.state = "; ".join(parts) or "good"

    def sentence(self) -> str:
        lost = "; lost: " + ", ".join(self.lost) if self.lost else "; nothing is lost with it"
        return f"{self.name} is {self.state}{lost}"


@final
class SegmentSurvey:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._left: list[int] | None = (
            None  # queues that are not done, the last of them next; None: not begun
        )
        self._firsts: list[int] = []  # of the next one, as its folder was seen last
        self._behind = -1  # up to this segment of it all were looked at
        self._checked: list[CheckedSegment] = []

    def step(self, table: Table) -> list[str] | None:
        """What is wrong with the next segment, in sentences; None when all have been looked at."""
        if self._left is None:
            self._left = list_queues(table)[::-1]
        while self._left:
            queue = find_queue(table, self._left[-1])
            at = -1 if queue is None else self._find_next(queue)  # None: it was removed meanwhile
            if queue is not None and at >= 0:
                found = self._check(table, queue, at)
                if found is not None:
                    return found
                continue
            self._left.pop()
            self._firsts = []
            self._behind = -1
            self._checked = []
        return None

    def _find_next(self, queue: StoredQueue) -> int:
        """The place of the next segment; -1: there is none. Its folder is listed again only where more may have come behind."""
        at = bisect_right(self._firsts, self._behind)
        if at + 1 >= len(self._firsts):
            self._firsts = decode_names(self._disk.names(folder_name(queue.number)))[0]
            at = bisect_right(self._firsts, self._behind)
        return at if at < len(self._firsts) and self._firsts[at] < int(queue.next) else -1

    def _check(self, table: Table, queue: StoredQueue, at: int) -> list[str] | None:
        """None: a checkpoint has removed it meanwhile."""
        firsts = self._firsts
        self._behind = firsts[at]
        try:
            checked = check_queue(self._disk, queue, firsts, at)
        except DiskFault as fault:
            if segment_name(queue.number, firsts[at]) not in self._disk.names(folder_name(queue.number)):
                self._firsts = []
                return None
            checked = make_unreadable(queue.number, firsts[at], at + 1 == len(firsts), fault)
        checked.forget_index()
        self._checked.append(checked)
        end = int(queue.next) if checked.is_last else firsts[at + 1]
        finding = SegmentFinding(checked, queue, end)
        sentences = [finding.sentence()] if finding.is_damaged else []
        if checked.is_last or firsts[at + 1] >= int(queue.next):
            gaps = find_gaps(queue, self._checked, load_gaps(table, queue.number))
            lost = ", ".join([gap.sentence() for gap in gaps])
            if gaps:
                sentences.append(f"{folder_name(queue.number)}: {GAP_TEXT}; lost: {lost}")
        return sentences
