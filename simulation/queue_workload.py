"""Random facts of queues, a model of what they mean, and whether a start has found all of it.

The model is simpler than what it judges: it keeps every record and, for each group, the offsets that are not settled.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.storage.disk import Disk
from millstream.storage.records import queue_records
from millstream.storage.records.queue_records import QueueRecord
from millstream.storage.records.stored_queue import StoredQueue
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.store import StoredState
from simulation.workload import Fact, make_message

QUEUES = 3
WORK = b'{"kind":"work"}'
STREAM = b'{"kind":"stream"}'
READ_BYTES = 700  # small, so that reading goes on where it ended


class ModelQueue:
    def __init__(self, name: str, is_stream: bool) -> None:
        self.name = name
        self.is_stream = is_stream
        self.first = 0
        self.next = 0
        self.records: dict[int, bytes] = {}
        self.groups: dict[int, set[int]] = {}  # group: offsets it has not settled
        self.starts: dict[int, int] = {}  # group: nothing below concerns it
        self.returned: dict[tuple[int, int], int] = {}  # (group, offset): attempts

    def low(self) -> int:
        """Below this nobody needs a record."""
        if self.is_stream or not self.groups:
            return self.first
        return max(self.first, min(min(open_, default=self.next) for open_ in self.groups.values()))

    def needed(self) -> list[int]:
        """Offsets whose records must be there."""
        if self.is_stream or not self.groups:
            return [offset for offset in self.records if offset >= self.first]
        return sorted({offset for open_ in self.groups.values() for offset in open_ if offset >= self.first})


class QueueModel:
    def __init__(self) -> None:
        self.queues: dict[int, ModelQueue] = {}
        self.last_queue = 0  # the highest number there ever was

    def tell(self, fact: Fact) -> None:
        kind, body = fact.number, fact.body
        number = queue_records.decode_number(body)
        if kind == queue_records.QUEUE_SAVED:
            _, _, name, definition = queue_records.decode_queue(body)
            self.queues.setdefault(number, ModelQueue(name, definition == STREAM))
            self.last_queue = max(self.last_queue, number)
            return
        queue = self.queues[number]
        if kind == queue_records.QUEUE_REMOVED:
            del self.queues[number]
        elif kind == queue_records.RECORD_APPENDED:
            offset = queue_records.record_place(body)[1]
            queue.records[offset] = body
            queue.next = offset + 1
            for open_ in queue.groups.values():
                open_.add(offset)
        elif kind == queue_records.QUEUE_TRIMMED:
            queue.first = max(queue.first, queue_records.decode_pair(body)[1])
            for open_ in queue.groups.values():
                open_.difference_update(range(queue.first))
        else:
            self._tell_group(queue, kind, body)

    def _tell_group(self, queue: ModelQueue, kind: int, body: bytes) -> None:
        if kind == queue_records.GROUP_SAVED:
            _, group, committed, _, _ = queue_records.decode_group(body)
            queue.groups[group] = {offset for offset in queue.records if offset >= committed}
            queue.groups[group].difference_update(range(queue.first))
            queue.returned = {place: count for place, count in queue.returned.items() if place[0] != group}
        elif kind == queue_records.GROUP_REMOVED:
            del queue.groups[queue_records.decode_pair(body)[1]]
        elif kind == queue_records.RECORDS_SETTLED:
            _, group, first, last = queue_records.decode_settled(body)
            queue.groups[group].difference_update(range(first, last + 1))
        else:
            assert kind == queue_records.RECORD_RETURNED
            _, group, offset, attempts, _ = queue_records.decode_returned(body)
            queue.returned[(group, offset)] = attempts


class QueueWorkload:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.model = QueueModel()
        self._next_number = 1
        self._next_message = 1

    def remember(self, told: Sequence[Fact], last_queue: int) -> None:
        """Stand where these facts lead, and go on numbering queues as a broker would."""
        self.model = model_after(told)
        self._next_number = last_queue + 1

    def next_atom(self) -> list[Fact]:
        facts = self._choose()
        for fact in facts:
            self.model.tell(fact)
        return facts

    def _choose(self) -> list[Fact]:
        chance = self._chance
        if not self.model.queues or (len(self.model.queues) < QUEUES and chance.random() < 0.3):
            return self._declare()
        number = chance.choice(list(self.model.queues))
        queue = self.model.queues[number]
        kind = chance.choices(
            ("append", "settle", "return", "trim", "group", "remove"), (50, 30, 8, 4, 6, 2)
        )[0]
        group = chance.choice(list(queue.groups)) if queue.groups else 0
        open_ = sorted(queue.groups[group]) if group else []
        if kind == "settle" and open_:
            first = chance.choice(open_[:20])
            last = chance.randrange(first, min(first + 4, queue.next))
            return [
                _fact(queue_records.RECORDS_SETTLED, queue_records.encode_settled(number, group, first, last))
            ]
        if kind == "return" and open_:
            body = queue_records.encode_returned(
                number, group, chance.choice(open_), chance.randrange(1, 9), 77
            )
            return [_fact(queue_records.RECORD_RETURNED, body)]
        if kind == "trim":
            first = chance.randrange(queue.first, queue.next + 1)
            return [_fact(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(number, first))]
        if kind == "group":
            return self._change_group(number, queue)
        if kind == "remove":
            return [_fact(queue_records.QUEUE_REMOVED, queue_records.encode_number(number))]
        return self._append(number, queue)

    def _declare(self) -> list[Fact]:
        number = self._next_number
        self._next_number += 1
        definition = self._chance.choice((WORK, STREAM))
        body = queue_records.encode_queue(
            number, "default", f"queue-{self._chance.randrange(99)}", definition
        )
        group = queue_records.encode_group(number, 1, 0, "one", b"#")
        return [_fact(queue_records.QUEUE_SAVED, body), _fact(queue_records.GROUP_SAVED, group)]

    def _change_group(self, number: int, queue: ModelQueue) -> list[Fact]:
        chance = self._chance
        group = chance.randrange(1, 4)
        if group in queue.groups and group != 1 and chance.random() < 0.5:
            return [_fact(queue_records.GROUP_REMOVED, queue_records.encode_pair(number, group))]
        committed = chance.randrange(queue.low(), queue.next + 1)
        body = queue_records.encode_group(number, group, committed, f"group-{group}", b"#")
        return [_fact(queue_records.GROUP_SAVED, body)]

    def _append(self, number: int, queue: ModelQueue) -> list[Fact]:
        facts: list[Fact] = []
        for offset in range(queue.next, queue.next + self._chance.randrange(1, 6)):
            producer = b"producer" if self._chance.random() < 0.3 else b""
            record = QueueRecord(
                offset, 1000 + offset, 0, offset % 3 // 2, producer, offset if producer else 0
            )
            message = make_message(self._next_message)
            self._next_message += 1
            body = queue_records.encode_record(number, record, message, 0)
            facts.append(_fact(queue_records.RECORD_APPENDED, body))
        return facts


def _fact(kind: int, body: bytes) -> Fact:
    return Fact("queue", number=kind, body=body)


def model_after(told: Sequence[Fact]) -> QueueModel:
    model = QueueModel()
    for fact in told:
        if fact.kind == "queue":
            model.tell(fact)
    return model


# ------------------------------------------------------------------ what was found


def find_queue_fault(told: Sequence[Fact], state: StoredState, disk: Disk) -> str:
    """What is not as the facts say; nothing is good."""
    model = model_after(told)
    found = {queue.number: queue for queue in state.queues}
    if state.last_queue != model.last_queue:
        return f"the last number of a queue was {model.last_queue}, not {state.last_queue}"
    if sorted(found) != sorted(model.queues):
        return f"queues {sorted(found)} instead of {sorted(model.queues)}"
    reader = SegmentReader(disk)
    for number, wanted in model.queues.items():
        queue = found[number]
        fault = _find_place_fault(queue, wanted) or _find_record_fault(queue, wanted, reader)
        if fault:
            return f"queue {number}: {fault}"
    return ""


def _find_place_fault(queue: StoredQueue, wanted: ModelQueue) -> str:
    if (queue.name, queue.first, queue.next) != (wanted.name, wanted.first, wanted.next):
        return f"{queue.name}, {queue.first}, {queue.next}: not {wanted.name}, {wanted.first}, {wanted.next}"
    if sorted(queue.groups) != sorted(wanted.groups):
        return f"groups {sorted(queue.groups)} instead of {sorted(wanted.groups)}"
    for number, open_ in wanted.groups.items():
        group = queue.groups[number]
        seen = {
            offset
            for offset in range(queue.first, queue.next)
            if offset >= group.committed and not group.settled.contains(offset)
        }
        if seen != open_:
            return f"group {number}: lost {sorted(open_ - seen)[:5]}, came back {sorted(seen - open_)[:5]}"
        for offset, (attempts, _) in group.returned.items():
            if offset in open_ and wanted.returned.get((number, offset)) != attempts:
                return f"group {number}: {attempts} attempts at {offset}"
    return ""


def _find_record_fault(queue: StoredQueue, wanted: ModelQueue, reader: SegmentReader) -> str:
    bodies = {queue_records.record_place(body)[1]: body for _, body in queue.tail}
    end = min(bodies, default=queue.next)
    place = wanted.low()
    while place < end:
        part = reader.read(queue.number, place, end, 50, READ_BYTES)
        if part.damage:
            return part.damage[0].sentence()
        for body in part.bodies:
            bodies.setdefault(queue_records.record_place(body)[1], body)
        place = int(part.end)
    for offset in wanted.needed():
        if offset not in bodies:
            return f"lost: the record at {offset}"
    for offset, body in bodies.items():
        if offset >= wanted.low() and wanted.records.get(offset) != body:
            return f"wrong: the record at {offset}"
    return ""
