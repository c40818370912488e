"""Deadlines of connections in coarse buckets: one timer for all, nothing to cancel.

A connection that is due says when it wants to be looked at again; keep-alive costs one look per interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.runtime.transport.link import TransportLink

BUCKET_NS: Final[i64] = 250_000_000


@final
class Deadlines:
    def __init__(self) -> None:
        self._buckets: dict[int, list[TransportLink]] = {}
        self._first: i64 = 0

    def add(self, due: TransportLink, due_ns: i64) -> None:
        if due_ns == 0:
            return
        bucket: i64 = due_ns // BUCKET_NS + 1  # never early
        if bucket < self._first:
            bucket = self._first
        found = self._buckets.get(int(bucket))
        if found is None:
            self._buckets[int(bucket)] = [due]
        else:
            found.append(due)

    def on_tick(self, now_ns: i64) -> None:
        last: i64 = now_ns // BUCKET_NS
        if self._first == 0:
            self._first = min(self._buckets) if self._buckets else last
        if (
            last - self._first > 4 * len(self._buckets) + 16
        ):  # the clock jumped, or long idle: skip empty buckets
            due_keys = sorted(key for key in self._buckets if key <= last)
        else:
            due_keys = [int(key) for key in range(int(self._first), int(last) + 1)]
        self._first = last + 1
        for key in due_keys:
            bucket = self._buckets.pop(key, None)
            if bucket is None:
                continue
            for due in bucket:
                self.add(due, due.on_due(now_ns))
