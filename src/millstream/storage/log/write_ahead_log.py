"""The write-ahead log: facts gather in a batch while the batch before them is written and synced.

`append` only copies into memory. When the writer is free, everything gathered goes to it as one batch; what comes
meanwhile gathers for the next. So one sync serves everybody who waits, and its length sets the pace by itself.

Who waits for each confirm before sending the next message answers just after a batch was confirmed. If the next batch
began at that moment, two halves of the publishers would take turns, and each message would wait for two syncs. So after
a long sync the writer lets the log linger: until as many facts have come as the confirmed batch held, or the short
time is over (`go_on`).

Invariants
- `durable` never runs ahead of what the disk has confirmed, and never goes back.
- After a sync error nothing is durable any more: the log is fenced, and it is never tried again.
- Batches reach the disk in the order of their sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from millstream.model.outbox import Wakeup
from millstream.storage.log.format import append_head, append_record

LARGE: Final[i64] = 256 * 1024  # bytes of a body that is copied once, into its batch, and not twice
STALL_NS: Final[i64] = 600_000_000  # publishers are told within a second


@final
class Batch:
    """Records on their way to the disk."""

    def __init__(self, first: i64, count: i64, records: bytes) -> None:
        self.first: i64 = first
        self.count: i64 = count
        self.records = records

    def last(self) -> i64:
        return self.first + self.count - 1


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchWriter(ABC):
    """Writes and syncs one batch at a time, away from the loop, and answers to the log."""

    @abstractmethod
    def submit(self, batch: Batch, log: Log) -> None: ...


@final
class Log:
    def __init__(
        self, writer: BatchWriter, wakeup: Wakeup, next_sequence: i64, stall_ns: i64 = STALL_NS
    ) -> None:
        self._writer = writer
        self._wakeup = wakeup
        self._stall_ns: i64 = stall_ns
        self._parts: list[bytes] = []  # large bodies and what came before them
        self._parts_bytes: i64 = 0
        self._gathering = BytesWriter()  # what came behind them
        self._first: i64 = next_sequence
        self._count: i64 = 0
        self._is_writing = False
        self.position: i64 = next_sequence - 1  # the last fact appended
        self.durable: i64 = next_sequence - 1  # all up to here are safe
        self.fault = ""  # why nothing more becomes durable
        self.is_full = (
            False  # the batch cannot be written now: room is missing, or something else that may pass
        )
        self.full_cause = ""
        self.lacks_room = False
        self.is_stalled = False  # the disk has taken nothing for too long
        self._since_ns: i64 = 0  # when the batch under way was first seen by a tick
        self._wanted: i64 = 0  # while lingering: go on as soon as this many have gathered

    def append(self, kind: int, body: bytes) -> i64:
        if self._count == 0:
            self._wakeup.request()
        if len(body) >= LARGE:
            self._append_large(kind, body)
        else:
            append_record(self._gathering, kind, body)
        self._count += 1
        self.position += 1
        return self.position

    def _append_large(self, kind: int, body: bytes) -> None:
        append_head(self._gathering, kind, body)
        self._parts.append(self._gathering.getvalue())
        self._parts.append(body)
        self._parts_bytes += len(self._gathering) + len(body)
        self._gathering.truncate(0)

    def _take_records(self) -> bytes:
        records = self._gathering.getvalue()
        self._gathering.truncate(0)
        if self._parts:
            self._parts.append(records)
            records = b"".join(self._parts)
            self._parts = []
            self._parts_bytes = 0
        return records

    def unsafe_bytes(self) -> i64:
        return self._parts_bytes + len(self._gathering)

    def is_due(self) -> bool:
        """Whether there is something to hand over, and it can be now."""
        return self._count != 0 and not self._is_writing and self._count >= self._wanted and not self.fault

    def flush(self) -> None:
        """Hand over what has gathered, unless a batch is under way. Called after the reads of an iteration."""
        if not self.is_due():
            return
        self._wanted = 0
        batch = Batch(self._first, self._count, self._take_records())
        self._first += self._count
        self._count = 0
        self._is_writing = True
        self._writer.submit(batch, self)

    def on_written(self, batch: Batch, lingers: bool = False) -> None:
        """With `lingers` the writer calls `go_on` a little later, whatever comes until then."""
        self._is_writing = False
        if self.fault:
            return  # it was written where nobody will find it
        self.is_full = False
        self.is_stalled = False
        self._since_ns = 0
        self.durable = batch.last()
        self._wanted = self._count + batch.count if lingers else 0
        self.flush()

    def go_on(self) -> None:
        """Nobody else is waited for."""
        self._wanted = 0
        self.flush()

    def on_tick(self, now_ns: i64) -> None:
        """Notice a disk that does not answer."""
        if not self._is_writing:
            return
        if self._since_ns == 0:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._stall_ns:
            self.is_stalled = True

    def on_full(self, cause: str = "", lacks_room: bool = True) -> None:
        """The batch waits until it can be written: nothing is lost, nothing is confirmed."""
        self.is_full = True
        self.full_cause = cause
        self.lacks_room = lacks_room

    def on_failed(self, text: str) -> None:
        """The disk may have lost what it confirmed to have written: this node stops."""
        self._is_writing = False
        self.fault = text
