"""Reads old records of queues in a thread of its own and brings them to the loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from mypy_extensions import i64

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.format import folder_name
from millstream.storage.segments.reader import SegmentReader, SegmentSlice
from millstream.storage.segments.record_source import RecordSource, RecordWaiter

COUNT_MAX: Final = 1024
BYTES_MAX: Final = 1024 * 1024
RETRY_S: Final = 1.0  # after a fault of the disk: what cannot be read now must not count as not there
TOLD_MAX: Final = 10_000  # ranges remembered as told; beyond them some may be told again


class _Request:
    def __init__(self, number: int, first: int, end: int, waiter: RecordWaiter) -> None:
        self.number = number
        self.first = first
        self.end = end
        self.waiter = waiter


class SegmentThread(RecordSource):
    """Both are called on the loop: `on_damage` once for every range that cannot be read; `on_trouble` with the cause whenever
    the disk fails to read, and with nothing once all that failed has been read."""

    def __init__(
        self, disk: Disk, on_damage: Callable[[Damage], None], on_trouble: Callable[[str], None]
    ) -> None:
        self._on_trouble = on_trouble
        self._reader = SegmentReader(disk)
        self._loop_reader = SegmentReader(disk)  # for what cannot wait: each belongs to one thread
        self._on_damage = on_damage
        self._told: dict[tuple[str, int, int, str], None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._failed: list[_Request] = []
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="segments", daemon=True)
        self._thread.start()

    def request(self, queue: i64, first: i64, end: i64, waiter: RecordWaiter) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._requests.put(_Request(int(queue), int(first), int(end), waiter))

    def read(self, queue: i64, first: i64, end: i64, count_max: i64) -> list[bytes]:
        found = self._loop_reader.read(queue, first, end, count_max, BYTES_MAX)
        for damage in found.damage:
            self._tell(damage)
        return found.bodies

    def find_time(self, queue: i64, wall_ns: i64) -> i64:
        return self._loop_reader.find_time(queue, wall_ns)

    def close(self) -> None:
        """Requests that wait are not answered any more."""
        self._is_closing.set()
        self._requests.put(None)
        self._thread.join(timeout=10)
        self._loop_reader.close()

    def _run(self) -> None:
        retry_at = 0.0
        while not self._is_closing.is_set():
            if self._failed and time.monotonic() >= retry_at:
                failed, self._failed = self._failed, []
                for request in failed:
                    self._serve(request)
                if not self._failed:
                    self._bring(partial(self._on_trouble, ""))
                retry_at = time.monotonic() + RETRY_S
            timeout = max(retry_at - time.monotonic(), 0.0) if self._failed else None
            try:
                wanted = self._requests.get(timeout=timeout)
            except queue.Empty:
                continue
            if wanted is None:
                break
            if not self._failed:
                retry_at = time.monotonic() + RETRY_S
            self._serve(wanted)
        self._reader.close()

    def _serve(self, request: _Request) -> None:
        try:
            found = self._reader.read(request.number, request.first, request.end, COUNT_MAX, BYTES_MAX)
        except DiskFault as fault:
            self._failed.append(request)
            self._bring(partial(self._on_trouble, f"{folder_name(request.number)}: {fault.text}"))
            return
        self._bring(partial(self._answer, request.waiter, found))

    def _answer(self, waiter: RecordWaiter, found: SegmentSlice) -> None:
        for damage in found.damage:
            self._tell(damage)
        waiter.on_records(found.bodies, found.end)

    def _tell(self, damage: Damage) -> None:
        key = (damage.name, damage.start, damage.end, damage.text)
        if key in self._told:
            return
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told[key] = None
        self._on_damage(damage)

    def _bring(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return  # the loop is closed: nobody waits for the answer any more
