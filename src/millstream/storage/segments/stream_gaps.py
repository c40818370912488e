"""Offsets of a stream that no segment has: a file is missing, or a record never came there from a log that was damaged.

A stream keeps every offset from its first to its next, so that a gap is a loss. One that a repair has told of is noted in
the table and not told again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import final

from millstream.storage.disk import Disk
from millstream.storage.offset_gaps import load_gaps
from millstream.storage.records.stored_queue import QueueFold, StoredQueue
from millstream.storage.segments.check import CheckedSegment, check_segment
from millstream.storage.segments.format import decode_names, folder_name
from millstream.storage.table.checkpoint import load_queues
from millstream.storage.table.port import Table


@final
class StreamGap:
    def __init__(self, queue: StoredQueue, first: int, last: int) -> None:
        self.queue = queue
        self.first = first
        self.last = last

    def sentence(self) -> str:
        return f"the offsets {self.first} to {self.last} of the queue {self.queue.name!r}"


def check_queue(disk: Disk, queue: StoredQueue, firsts: list[int], at: int) -> CheckedSegment:
    """One of the segments of a queue. Of a stream everything that was committed must be in the last one too."""
    is_last = at + 1 == len(firsts)
    complete_to = queue.next - 1 if is_last and queue.is_stream() else -1
    return check_segment(disk, queue.number, firsts[at], is_last, complete_to)


def find_gaps(
    queue: StoredQueue, segments: list[CheckedSegment], known: list[tuple[int, int]]
) -> list[StreamGap]:
    """What is in none of all segments of a stream. Ranges that a segment itself reports as lost are not among it."""
    if not queue.is_stream() or any([checked.is_foreign or checked.read_fault for checked in segments]):
        return []
    missing: list[tuple[int, int]] = []
    expected = int(queue.first)
    for at, checked in enumerate(segments):
        if checked.first > expected:
            missing.append((expected, checked.first - 1))
        missing.extend(checked.jumps)
        end = segments[at + 1].first if at + 1 < len(segments) else int(queue.next)
        expected = max(expected, checked.next_expected(end))
    if expected < queue.next:
        missing.append((expected, int(queue.next) - 1))
    gaps: list[StreamGap] = []
    for first, last in missing:
        # what stands from `next` on was never committed, and is cut off before anything is appended
        last = min(last, int(queue.next) - 1)
        for part_first, part_last in _leave_out(max(first, int(queue.first)), last, known):
            gaps.append(StreamGap(queue, part_first, part_last))
    return gaps


def _leave_out(first: int, last: int, known: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What `known`, in order, does not cover of a range."""
    parts: list[tuple[int, int]] = []
    at = max(0, bisect_right(known, (first, first)) - 1)
    while at < len(known) and known[at][0] <= last:
        known_first, known_last = known[at]
        at += 1
        if known_last < first:
            continue
        if known_first > first:
            parts.append((first, known_first - 1))
        first = known_last + 1
    if first <= last:
        parts.append((first, last))
    return parts


def find_all_gaps(disk: Disk, table: Table) -> list[StreamGap]:
    """Of every stream, as of the last checkpoint."""
    queues = QueueFold()
    load_queues(table, queues)
    gaps: list[StreamGap] = []
    for number, queue in queues.queues.items():
        if queue.is_stream():
            firsts = decode_names(disk.names(folder_name(number)))[0]
            segments = [check_queue(disk, queue, firsts, at) for at in range(len(firsts))]
            gaps.extend(find_gaps(queue, segments, load_gaps(table, number)))
    return gaps
