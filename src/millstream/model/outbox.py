"""Bytes waiting to be sent, gathered per connection and flushed once per loop iteration.

A write per message costs forty to a hundred times as much as one write for many, so output goes into a
pooled byte builder and only connections that have something to send own one. Large parts are kept
by reference beside it, in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

LARGE: Final[i64] = 4096  # a part of this size is passed on by reference, not copied
KEEP: Final[i64] = 1 << 18  # larger builders are not pooled
POOL_MAX: Final[i64] = 256
SHARED: Final[i64] = 1 << 16  # so many bytes in large parts are not joined
FLUSHES_PER_TURN: Final[i64] = 1000  # connections that are written to before others are read again
FLUSHES_PER_LOOK: Final[i64] = 8  # then it is looked how long they have taken
FLUSH_NS: Final[i64] = 10_000_000  # the same in time: output to very many that do not read is slow to write


@mypyc_attr(allow_interpreted_subclasses=True)
class Flushable(ABC):
    @abstractmethod
    def flush(self) -> None:
        """Hand everything that waits to the transport."""

    @abstractmethod
    def on_flush_failed(self, error: Exception) -> None:
        """Its flush raised: our own bug, which must not reach the connections behind it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Wakeup(ABC):
    """Asks the event loop to call `OutboxPool.flush` after the reads that are ready now."""

    @abstractmethod
    def request(self) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink(ABC):
    """Where the output of a connection goes."""

    @abstractmethod
    def send(self, data: bytes | memoryview) -> None: ...

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        """The same for several pieces, in order; one that can keep them apart does not copy them."""
        self.send(b"".join(parts))


@final
class OutboxPool:
    """With more to write than a turn has time for, connections that had nothing to send until this turn go ahead of those
    that are left from turns before: a flood to many does not delay an answer to one."""

    def __init__(self, wakeup: Wakeup, read_ns: Callable[[], int] | None = None) -> None:
        self._wakeup = wakeup
        self._read_ns = read_ns  # None: only the number of connections is bounded
        self._free: list[BytesWriter] = []
        self._dirty: list[Flushable] = []
        self._late: deque[Flushable] = deque()  # left from turns before, in order

    def mark(self, owner: Flushable) -> None:
        """It has something to send: flush it with the others."""
        if not self._dirty:
            self._wakeup.request()
        self._dirty.append(owner)

    def take(self) -> BytesWriter:
        if self._free:
            return self._free.pop()
        return BytesWriter()

    def give_back(self, writer: BytesWriter) -> None:
        if len(writer) <= KEEP and len(self._free) < POOL_MAX:
            writer.truncate(0)
            self._free.append(writer)

    def is_behind(self) -> bool:
        """Whether the last flush has left some for the next turn."""
        return len(self._late) > 0

    def flush(self) -> None:
        """As many connections as a turn has time for; the others in the next one."""
        began_ns: i64 = 0
        if self._read_ns is not None and len(self._dirty) + len(self._late) > FLUSHES_PER_LOOK:
            began_ns = self._read_ns()
        left: i64 = FLUSHES_PER_TURN
        late: i64 = len(self._late)
        while self._dirty and left > 0:
            dirty = self._dirty
            self._dirty = []
            left -= self._flush_some(dirty, left, began_ns)
        if late:
            self._flush_late(min(late, max(left, FLUSHES_PER_LOOK)), began_ns)
        if self._dirty:
            self._late.extend(self._dirty)
            self._dirty = []
        if self._late:
            self._wakeup.request()

    def _flush_some(self, dirty: list[Flushable], left: i64, began_ns: i64) -> i64:
        """Gives how many, or `left` when the time is over."""
        at: i64 = 0
        for owner in dirty:
            if at >= left or (at and at % FLUSHES_PER_LOOK == 0 and self._is_over(began_ns)):
                self._late.extend(dirty[at:])
                return left
            at += 1
            flush(owner)
        return at

    def _flush_late(self, count: i64, began_ns: i64) -> None:
        done: i64 = 0
        while done < count and (done < FLUSHES_PER_LOOK or not self._is_over(began_ns)):
            for _ in range(min(FLUSHES_PER_LOOK, count - done)):
                flush(self._late.popleft())
                done += 1

    def _is_over(self, began_ns: i64) -> bool:
        if began_ns == 0 or self._read_ns is None:
            return False
        return self._read_ns() - began_ns >= FLUSH_NS


def flush(owner: Flushable) -> None:
    try:
        owner.flush()
    except Exception as error:  # noqa: BLE001 one connection's fault stays with it
        owner.on_flush_failed(error)


@final
class Outbox:
    """Output of one connection since its last flush. `open` must precede every use of `writer`.

    A single part needs no builder: it is passed on as it is. The second one makes a builder necessary.
    """

    def __init__(self, pool: OutboxPool, owner: Flushable) -> None:
        self._pool = pool
        self._owner = owner
        self.is_open = False
        self.writer: BytesWriter = NO_WRITER
        self._single: bytes | memoryview | None = None
        self._parts: list[bytes | memoryview] | None = None
        self._parts_size: i64 = 0

    def open(self) -> BytesWriter:
        if not self.is_open:
            self.is_open = True
            self._pool.mark(self._owner)
            self.writer = self._pool.take()
        elif self._single is not None:
            self._build()
        return self.writer

    def write(self, data: bytes | memoryview) -> None:
        if not self.is_open:
            self.is_open = True
            self._pool.mark(self._owner)
            self._single = data
            return
        if self._single is not None:
            self._build()
        if len(data) >= LARGE or not isinstance(data, bytes):
            self._add_part(data)
        else:
            self.writer.write(data)

    def size_bytes(self) -> i64:
        if not self.is_open:
            return 0
        single = self._single
        if single is not None:
            return len(single)
        return self._parts_size + len(self.writer)

    def take_all(self) -> bytes | memoryview:
        """Everything in order, as one piece; the outbox is closed and empty afterwards."""
        if not self.is_open:
            return b""
        self.is_open = False
        single = self._single
        if single is not None:
            self._single = None
            return single
        writer = self.writer
        self.writer = NO_WRITER
        parts = self._parts
        data: bytes | memoryview
        if parts is None:
            data = writer.getvalue()
        else:
            self._parts = None
            self._parts_size = 0
            if len(writer):
                parts.append(writer.getvalue())
            data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._pool.give_back(writer)
        return data

    def send_to(self, sink: Sink) -> i64:
        """Everything in order; the outbox is closed and empty afterwards. Gives how many bytes. Large parts that many
        connections share stay shared: a copy for each would be the fan-out times as much memory."""
        parts = self._parts
        if parts is None or self._parts_size < SHARED:
            data = self.take_all()
            if data:
                sink.send(data)
            return len(data)
        size: i64 = self.size_bytes()
        self.is_open = False
        writer = self.writer
        self.writer = NO_WRITER
        self._parts = None
        self._parts_size = 0
        if len(writer):
            parts.append(writer.getvalue())
        self._pool.give_back(writer)
        sink.send_parts(parts)
        return size

    def _build(self) -> None:
        single = self._single
        assert single is not None
        self._single = None
        self.writer = self._pool.take()
        if len(single) >= LARGE or not isinstance(single, bytes):
            self._add_part(single)
        else:
            self.writer.write(single)

    def _add_part(self, data: bytes | memoryview) -> None:
        """Keep a large part by reference, behind what was written before it."""
        writer = self.writer
        parts = self._parts
        if parts is None:
            parts = self._parts = []
        if len(writer):
            self._parts_size += len(writer)
            parts.append(writer.getvalue())
            writer.truncate(0)
        parts.append(data)
        self._parts_size += len(data)


NO_WRITER: Final = BytesWriter()
