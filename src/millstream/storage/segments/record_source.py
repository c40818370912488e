"""The port to records that are no longer in memory: the segments of a queue, read away from the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class RecordWaiter(ABC):
    @abstractmethod
    def on_records(self, bodies: list[bytes], end: i64) -> None:
        """Records in order of their offsets; every kept one below `end` is among them or was asked for before."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RecordSource(ABC):
    """Offsets may have gaps: what was settled before it reached a segment is not there."""

    @abstractmethod
    def request(self, queue: i64, first: i64, end: i64, waiter: RecordWaiter) -> None:
        """Bring some records with first <= offset < end, later, on the loop."""

    @abstractmethod
    def read(self, queue: i64, first: i64, end: i64, count_max: i64) -> list[bytes]:
        """The same now. Blocks: for single records and for commands only."""

    @abstractmethod
    def find_time(self, queue: i64, wall_ns: i64) -> i64:
        """The offset of the first record in segments at or after that time; -1: there is none. Blocks."""
