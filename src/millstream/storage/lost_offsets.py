"""Offsets that may have been given by facts of the log that are lost: they are never given again.

Facts are numbered without gaps, so a loss between two of them is seen by whoever applies them: a start, or a checkpoint while the
broker runs. Which queue lost something is not known. One that appends again behind the loss says where it stands; any other
one may have given an offset with each of the facts.

A start skips these offsets at once. A checkpoint cannot, because the broker that runs knows better and goes on to append: it notes in
the table how far each queue may be, and the next start skips what is left of that.

    0 lost q <queue>   where the queue ended at the last loss, one past the last offset it may have given
    0 lost r <first>   last fact of a range that a start has found lost: a checkpoint that meets it again does not count it again
"""

from __future__ import annotations

import struct
from typing import Final, final

from millstream.storage.intervals import Intervals
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.table.port import Table

_QUEUE: Final = b"\0lostq"
_RANGE: Final = b"\0lostr"
_KEY: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct("<QQ")
_LAST: Final = struct.Struct("<Q")


@final
class LostOffsets:
    def __init__(self, queues: QueueFold) -> None:
        self._queues = queues
        self._ends: dict[int, tuple[int, int]] = {}  # by queue: where it ended at the last loss, and at most
        self._counted = Intervals()  # lost facts, of files of the log that are still there
        self.skipped: list[tuple[int, int, int]] = []  # (queue, first, last)
        self._has_changed = False

    def load(self, table: Table) -> None:
        """What checkpoints and starts before this one have found. The queues of the table are loaded."""
        for key, pair in table.items(_QUEUE):
            at, end = _PAIR.unpack(pair)
            self._ends[_KEY.unpack(key[len(_QUEUE) :])[0]] = (at, end)
        for key, last in table.items(_RANGE):
            self._counted.add(_KEY.unpack(key[len(_RANGE) :])[0], _LAST.unpack(last)[0])

    def on_gap(self, first: int, last: int) -> None:
        """These facts are missing behind those that were applied."""
        count = last - first + 1
        for known_first, known_last in self._counted.ranges():
            count -= max(0, min(last, known_last) - max(first, known_first) + 1)
        if count:
            self.on_lost(count)
            self._counted.add(first, last)

    def on_lost(self, count: int) -> None:
        """So many facts are missing behind those that were applied, and the next one may get the number of the first of them."""
        self._has_changed = True
        for number, queue in self._queues.queues.items():
            queue.pass_gaps()
            self._ends[number] = (queue.next, self._find_end(number) + count)

    def skip(self) -> None:
        """All of the log has been applied, and no broker knows better."""
        self._queues.pass_gaps()
        for number, queue in self._queues.queues.items():
            first, end = queue.next, self._find_end(number)
            if end > first:
                queue.skip_to(end)
                self.skipped.append((number, first, end - 1))
        self._has_changed = self._has_changed or bool(self._ends)
        self._ends.clear()

    def store(self, table: Table, last_sequence: int) -> bool:
        """Goes with the next commit; `last_sequence` is how far the log is folded by then. Whether there was anything."""
        is_known = bool(self._ends) or bool(self._counted.count)
        if not (self._has_changed or is_known):
            return False
        for prefix in (_QUEUE, _RANGE):
            for key, _ in table.items(prefix):
                table.delete(key)
        for number in list(self._ends):
            if number in self._queues.queues and self._find_end(number) > self._queues.queues[number].next:
                table.put(_QUEUE + _KEY.pack(number), _PAIR.pack(*self._ends[number]))
            else:
                del self._ends[number]
        self._counted.remove_below(last_sequence + 1)
        for first, last in self._counted.ranges():
            table.put(_RANGE + _KEY.pack(first), _LAST.pack(last))
        self._has_changed = False
        return True

    def _find_end(self, number: int) -> int:
        """One past the last offset that may have been given."""
        queue = self._queues.queues[number]
        if number not in self._ends:
            return queue.next
        at, end = self._ends[number]
        has_appended = queue.next != at and queue.first < queue.next  # and was not trimmed to there
        return queue.next if has_appended else max(queue.next, end)
