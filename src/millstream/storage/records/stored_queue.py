"""What survives of a queue: its definition, where it begins and ends, how far each group has come."""

from __future__ import annotations

import json
from typing import final

from millstream.storage.intervals import Intervals
from millstream.storage.offset_gaps import OffsetGaps
from millstream.storage.records import queue_records
from millstream.storage.records.queue_records import decode_record, is_plain, record_offset

PRODUCERS_MAX = 10_000  # that a queue remembers; the one silent for longest is forgotten


@final
class StoredGroup:
    def __init__(self, number: int, name: str, filter: bytes, committed: int) -> None:
        self.number = number
        self.name = name
        self.filter = filter
        self.committed = committed  # all below are settled
        self.settled = Intervals()  # and these above
        self.returned: dict[int, tuple[int, int]] = {}  # offset: attempts so far, not before (wall)

    def settle(self, first: int, last: int) -> None:
        if self.returned:
            for offset in [offset for offset in self.returned if first <= offset <= last]:
                del self.returned[offset]
        if last < self.committed:
            return
        self.settled.add(max(first, self.committed), last)
        self.committed = int(self.settled.next_missing(self.committed))
        self.settled.remove_below(self.committed)

    def move(self, committed: int) -> None:
        """Stand at an offset as if everything below were settled and nothing above."""
        self.committed = committed
        self.settled = Intervals()
        self.returned.clear()


@final
class StoredQueue:
    """`tail` holds the records that only the log has, oldest first, each with the sequence of its fact."""

    def __init__(self, number: int, account: str, name: str, definition: bytes) -> None:
        self.number = number
        self.account = account
        self.name = name
        self.definition = definition
        self.first = 0  # the oldest offset that is kept
        self.next = 0  # the offset of the next record
        self.bytes = 0  # about: what was settled or trimmed goes by the average
        self.maybe_delivered_below = (
            0  # all below may have been handed out in an earlier run; told at a start, not stored
        )
        self.gaps = OffsetGaps()
        self.groups: dict[int, StoredGroup] = {}
        self.producers: dict[bytes, int] = {}
        self.specials: dict[int, tuple[int, int]] = {}  # offset: priority, not before (wall)
        self.tail: list[tuple[int, bytes]] = []

    def append(self, body: bytes) -> None:
        offset = int(record_offset(body))
        if offset < self.next:
            return
        self.next = offset + 1
        self.bytes += len(body)
        if is_plain(body):
            return
        record = decode_record(body)
        if record.producer:
            self.producers.pop(record.producer, None)
            if len(self.producers) >= PRODUCERS_MAX:
                del self.producers[next(iter(self.producers))]
            self.producers[record.producer] = int(record.producer_sequence)
        if record.has_priority_or_delay():
            self.specials[offset] = (int(record.priority), int(record.not_before_wall_ns))

    def trim(self, first: int) -> None:
        if first <= self.first:
            return
        kept = self.count_from(self.first)
        self.bytes = self.bytes * max(0, self.count_from(first)) // kept if kept else 0
        self.first = first
        self.next = max(self.next, first)
        self.specials = {offset: value for offset, value in self.specials.items() if offset >= first}
        for group in self.groups.values():
            if group.committed < first:
                group.settle(group.committed, first - 1)

    def skip_to(self, next: int) -> None:
        """Never give the offsets below `next` that were not given yet."""
        self.gaps.add(self.next, next - 1)
        self.pass_gaps()

    def pass_gaps(self) -> None:
        """Neither its end nor its beginning is in a gap, and for its groups gaps are settled. A gap further on is of a part of the
        log that has not been applied."""
        for first, last in self.gaps.ranges():
            if first > self.next:
                return
            self.next = max(self.next, last + 1)
            if first <= self.first <= last:
                self.first = last + 1
            for group in self.groups.values():
                group.settle(first, last)

    def count_from(self, offset: int) -> int:
        """Records from an offset on that were ever appended."""
        return int(self.gaps.records_between(offset, self.next))

    def is_stream(self) -> bool:
        """Nothing goes before it is trimmed, whatever the groups have settled."""
        return b'"kind":"stream"' in self.definition

    def low_mark(self) -> int:
        """Below this nobody needs a record any more: it was trimmed, or every group has settled it."""
        if not self.groups or self.is_stream():
            return self.first
        low = self.next
        for group in self.groups.values():
            low = min(low, group.committed)
        return max(self.first, low)


def encode_state(queue: StoredQueue) -> bytes:
    """Everything but the records, for the table of a checkpoint."""
    low = queue.low_mark()
    groups = [
        [
            group.number,
            group.name,
            group.filter.decode(),
            group.committed,
            group.settled.ranges(),
            [[offset, attempts, wall] for offset, (attempts, wall) in group.returned.items()],
        ]
        for group in queue.groups.values()
    ]
    fields = {
        "account": queue.account,
        "name": queue.name,
        "definition": queue.definition.decode(),
        "first": queue.first,
        "next": queue.next,
        "bytes": queue.bytes,
        "groups": groups,
        "producers": [[name.decode("latin-1"), sequence] for name, sequence in queue.producers.items()],
        "specials": [
            [offset, priority, wall] for offset, (priority, wall) in queue.specials.items() if offset >= low
        ],
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_state(number: int, body: bytes) -> StoredQueue:
    fields = json.loads(body)
    queue = StoredQueue(number, fields["account"], fields["name"], fields["definition"].encode())
    queue.first = fields["first"]
    queue.next = fields["next"]
    queue.bytes = fields["bytes"]
    queue.producers = {name.encode("latin-1"): sequence for name, sequence in fields["producers"]}
    queue.specials = {offset: (priority, wall) for offset, priority, wall in fields["specials"]}
    for group_number, name, filter, committed, ranges, returned in fields["groups"]:
        group = StoredGroup(group_number, name, filter.encode(), committed)
        for first, last in ranges:
            group.settled.add(first, last)
        group.returned = {offset: (attempts, wall) for offset, attempts, wall in returned}
        queue.groups[group_number] = group
    return queue


@final
class QueueFold:
    """Folds the facts of queues, one after the other. Facts about what is gone are counted, not believed."""

    def __init__(self) -> None:
        self.queues: dict[int, StoredQueue] = {}
        self.orphans = 0
        self.last_number = 0  # of all queues that ever were
        self.changed: dict[int, None] = {}  # numbers of queues some fact was about
        self.removed: dict[int, None] = {}

    def apply(self, kind: int, body: bytes) -> StoredQueue | None:
        """The queue the fact was about, None if it is not there (any more)."""
        if kind == queue_records.QUEUE_SAVED:
            return self._save(body)
        number = queue_records.decode_number(body)
        queue = self.queues.get(number)
        if queue is None:
            self.orphans += 1
            return None
        self.changed[number] = None
        if kind == queue_records.RECORD_APPENDED:
            queue.append(body)
        elif kind == queue_records.QUEUE_REMOVED:
            del self.queues[number]
            del self.changed[number]
            self.removed[number] = None
        elif kind == queue_records.QUEUE_TRIMMED:
            queue.trim(queue_records.decode_pair(body)[1])
        else:
            self._apply_group(queue, kind, body)
        return queue

    def pass_gaps(self) -> None:
        """All of the log has been applied."""
        for queue in self.queues.values():
            if queue.gaps.count:
                queue.pass_gaps()

    def _save(self, body: bytes) -> StoredQueue:
        number, account, name, definition = queue_records.decode_queue(body)
        self.changed[number] = None
        self.last_number = max(self.last_number, number)
        queue = self.queues.get(number)
        if queue is None:
            queue = self.queues[number] = StoredQueue(number, account, name, definition)
        else:
            queue.definition = definition
        return queue

    def _apply_group(self, queue: StoredQueue, kind: int, body: bytes) -> None:
        if kind == queue_records.GROUP_SAVED:
            _, number, committed, name, filter = queue_records.decode_group(body)
            group = queue.groups.get(number)
            if group is None:
                queue.groups[number] = StoredGroup(number, name, filter, committed)
            else:
                group.move(committed)
            return
        number = queue_records.decode_pair(body)[1]
        group = queue.groups.get(number)
        if group is None:
            self.orphans += 1
        elif kind == queue_records.GROUP_REMOVED:
            del queue.groups[number]
        elif kind == queue_records.RECORDS_SETTLED:
            _, _, first, last = queue_records.decode_settled(body)
            low = queue.low_mark()
            kept = queue.count_from(low)
            group.settle(first, last)
            if kept:
                queue.bytes = queue.bytes * queue.count_from(queue.low_mark()) // kept
        else:
            _, _, offset, attempts, not_before = queue_records.decode_returned(body)
            if offset >= group.committed and not group.settled.contains(offset):
                group.returned[offset] = (attempts, not_before)
