"""Deadlines of sessions: expiry and delayed wills, earliest first.

Invariants
- A session is here once at most, with its next deadline, and not at all when it has none: one that comes and goes, and one
  that ended long before its time, leave nothing behind.
- `_heap[i]` is not later than `_heap[2 * i + 1]` and `_heap[2 * i + 2]`; every entry knows its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.broker.session import Session


@final
class Entry:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.due_ns: i64 = 0
        self.number: i64 = 0  # of those with one time the first one comes first
        self.place: i64 = 0

    def is_before(self, other: Entry) -> bool:
        return self.due_ns < other.due_ns or (self.due_ns == other.due_ns and self.number < other.number)


@final
class Schedule:
    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._entries: dict[Session, Entry] = {}
        self._count: i64 = 0

    def update(self, session: Session) -> None:
        """What its deadlines are now takes the place of what they were."""
        due_ns = find_deadline(session)
        entry = self._entries.get(session)
        if due_ns == 0:
            if entry is not None:
                self._remove(entry)
            return
        if entry is None:
            entry = self._entries[session] = Entry(session)
            entry.place = len(self._heap)
            self._heap.append(entry)
        self._count += 1
        entry.due_ns = due_ns
        entry.number = self._count
        self._settle(entry)

    def count(self) -> i64:
        return len(self._heap)

    def take_due(self, now_ns: i64, count_max: int) -> list[Session]:
        """So many at most, those that are due longest."""
        due: list[Session] = []
        while self._heap and self._heap[0].due_ns <= now_ns and len(due) < count_max:
            first = self._heap[0]
            due.append(first.session)
            self._remove(first)
        return due

    def next_ns(self) -> i64:
        """0 when nothing is scheduled."""
        return self._heap[0].due_ns if self._heap else 0

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.session]
        last = self._heap.pop()
        if last is not entry:
            self._heap[entry.place] = last
            last.place = entry.place
            self._settle(last)

    def _settle(self, entry: Entry) -> None:
        """To where it belongs, upwards or downwards."""
        heap = self._heap
        place: i64 = entry.place
        while place > 0:
            parent = heap[(place - 1) >> 1]
            if not entry.is_before(parent):
                break
            heap[place] = parent
            parent.place, place = place, parent.place
        while True:
            child: i64 = 2 * place + 1
            if child >= len(heap):
                break
            if child + 1 < len(heap) and heap[child + 1].is_before(heap[child]):
                child += 1
            below = heap[child]
            if not below.is_before(entry):
                break
            heap[place] = below
            below.place = place
            place = child
        heap[place] = entry
        entry.place = place


def find_deadline(session: Session) -> i64:
    """Of an absent session, the first of its deadlines; 0: it has none."""
    if session.is_ended or session.line is not None:
        return 0
    due_ns: i64 = session.expires_ns
    will = session.will
    if will is not None and will.due_ns and (due_ns == 0 or will.due_ns < due_ns):
        due_ns = will.due_ns
    return due_ns
