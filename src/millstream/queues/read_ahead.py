"""A stretch of old records, read from segments ahead of the cursor of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.storage.records.queue_records import record_offset
from millstream.storage.segments.record_source import RecordWaiter

if TYPE_CHECKING:
    from millstream.queues.group import Group


@final
class ReadAhead(RecordWaiter):
    def __init__(self) -> None:
        self.end: i64 = 0  # all below it that exist were in the span
        self._group: Group | None = None  # whose cursor waits for a request that is under way
        self._bodies: list[bytes] = []
        self._at: i64 = 0
        self._fetching: i64 = -1  # the offset a request is under way for

    def request(self, group: Group, first: i64, end: i64) -> None:
        if self._fetching < 0:
            self._fetching = first
            self._group = group
            queue = group.queue
            queue.source.request(queue.number, first, end, self)

    def on_records(self, bodies: list[bytes], end: i64) -> None:
        asked = self._fetching
        group = self._group
        self._fetching = -1
        self._group = None
        if group is None:
            return
        if group.cursor >= asked:  # else it was moved back meanwhile: this is not what comes next
            self._fill(bodies, end)
        group.dispatch()

    def clear(self) -> None:
        if self._bodies:
            self._bodies = []
            self._at = 0

    def forget(self) -> None:
        """The cursor was moved: what was read is not what comes next."""
        self._fill([], 0)

    def _fill(self, bodies: list[bytes], end: i64) -> None:
        self._bodies = bodies
        self._at = 0
        self.end = end

    def find(self, offset: i64) -> bytes:
        """The first record at or behind an offset; empty: there is none here."""
        while self._at < len(self._bodies):
            body = self._bodies[self._at]
            if record_offset(body) >= offset:
                return body
            self._at += 1
        return b""
