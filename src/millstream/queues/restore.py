"""A queue as the store kept it, made again at a start."""

from __future__ import annotations

from millstream.queues.group import Group
from millstream.queues.memtable import Memtable
from millstream.queues.queue import Queue
from millstream.storage.records.queue_records import record_place
from millstream.storage.records.stored_queue import StoredQueue


def restore_queue(queue: Queue, stored: StoredQueue) -> None:
    queue.first = stored.first
    queue.next = stored.next
    queue.visible = stored.next
    queue.offered = stored.next
    queue.maybe_delivered_below = stored.maybe_delivered_below
    queue.producers = stored.producers
    for first, last in stored.gaps.ranges():
        queue.gaps.add(first, last)
    queue.has_expiry = True  # what is in the segments may have one
    offset_ns = int(queue.clock.wall_offset_ns)
    for offset, (priority, wall_ns) in stored.specials.items():
        queue.delayed[offset] = (priority, max(1, wall_ns - offset_ns) if wall_ns else 0)
    first_in_log = record_place(stored.tail[0][1])[1] if stored.tail else stored.next
    queue.memtable = Memtable(first_in_log, queue.is_stream, queue.scheduler.garbage)
    queue.memtable.counts_payload = queue.definition.bounds_ready
    for sequence, body in stored.tail:
        queue.memtable.add(record_place(body)[1], sequence, body)
    for entry in stored.groups.values():
        group = Group(queue, entry.number, entry.name, entry.filter, entry.committed)
        group.restore(entry.settled, entry.returned, offset_ns)
        queue.put_back_group(group)
        group.settled_bytes.recount(group.settled)
    queue.gaps.forget_below(queue.low_mark())
    queue.size.restore(stored.bytes, queue.memtable, queue.low_mark())
