"""Reads the segments of all queues from end to end, one after the other, and names what is damaged in them.

`verify` does it at once; a broker that has started does it in the background, while checkpoints append to them and remove them. So
each step looks at the table again, and at one segment only; nobody may fold meanwhile.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.checkpoint import find_queue, list_queues
from millstream.storage.disk import Disk
from millstream.storage.segment_check import CheckedSegment
from millstream.storage.segment_format import decode_names, folder_name
from millstream.storage.stored_queue import StoredQueue
from millstream.storage.stream_gaps import check_queue, find_gaps, load_gaps
from millstream.storage.table import Table

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
        self._checked: list[CheckedSegment] = []  # segments of the next one so far

    def step(self, table: Table) -> list[str] | None:
        """What is wrong with the next segment, in sentences; None when all have been looked at."""
        if self._left is None:
            self._left = list_queues(table)[::-1]
        while self._left:
            queue = find_queue(table, self._left[-1])
            if queue is not None:  # else it was removed meanwhile
                firsts = decode_names(self._disk.names(folder_name(queue.number)))[0]
                behind = self._checked[-1].first if self._checked else -1
                for at, first in enumerate(firsts):
                    if behind < first < int(queue.next):
                        return self._check(table, queue, firsts, at)
            self._left.pop()
            self._checked = []
        return None

    def _check(self, table: Table, queue: StoredQueue, firsts: list[int], at: int) -> list[str]:
        checked = check_queue(self._disk, queue, firsts, at)
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
