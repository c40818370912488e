"""What a stream may let go: by count, by size, by age. A stream without a bound keeps everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from millstream.storage.records.queue_records import record_time

if TYPE_CHECKING:
    from millstream.queues.queue import Queue


def retain(queue: Queue) -> None:
    definition = queue.definition
    first: i64 = queue.first
    count: i64 = definition.retention_count
    if count and queue.depth() > count:
        first = queue.gaps.go_on(first, queue.depth() - count)
    limit: i64 = definition.retention_bytes
    if limit and queue.size.bytes > limit:
        by_size = queue.size.find_first_within(queue.memtable, limit)
        if by_size > first:
            first = by_size
    age_s = definition.retention_age_s
    if (
        0 < age_s < queue.clock.wall_ns() // 1_000_000_000
    ):  # more nanoseconds than those may be more than i64 holds
        by_age = find_young(queue, queue.clock.wall_ns() - age_s * 1_000_000_000)
        if by_age > first:
            first = by_age
    if first > queue.first:
        queue.trim(first)


def find_young(queue: Queue, wall_ns: i64) -> i64:
    """The first offset at or after a time; the end of the queue if all are older."""
    memtable = queue.memtable
    low: i64 = memtable.first if memtable.first > queue.first else queue.first
    if queue.first < memtable.first:
        found = queue.source.find_time(queue.number, wall_ns)
        if 0 <= found < memtable.first:
            return found if found > queue.first else queue.first
    high: i64 = memtable.end
    while low < high:  # times in a queue never go back far enough to matter
        middle: i64 = (low + high) // 2
        found = middle
        body = memtable.get(found)
        while not body and found + 1 < high:  # lost to damage, or skipped: the next one tells
            found += 1
            body = memtable.get(found)
        if not body or record_time(body) >= wall_ns:
            high = middle
        else:
            low = found + 1
    return low
