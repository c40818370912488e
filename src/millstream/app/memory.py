"""Memory of a running broker: finds the limit, measures, and does what relief asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from millstream.broker.broker import Broker
from millstream.broker.line import Ending, Line
from millstream.broker.memory_relief import OFFENCE_BYTES, MemoryPort, MemoryRelief, Offender
from millstream.config.memory import to_bytes
from millstream.config.schema import Config
from millstream.model.errors import Unavailable
from millstream.model.limits import Limits
from millstream.model.memory_budget import MemoryBudget
from millstream.runtime.freed_memory import FreedMemory
from millstream.runtime.gate import Gate
from millstream.runtime.memory import give_back_freed_memory
from millstream.runtime.memory_meter import MemoryGroup, ProcessMemory, available_bytes
from millstream.runtime.transport import TransportLink

STUCK_NS: Final = 1_000_000_000  # a connection that takes nothing for so long stands still


class MemoryGuard(MemoryPort):
    def __init__(self, config: Config, limits: Limits) -> None:
        self._settings = config.memory
        self._meter = ProcessMemory()
        self._group = MemoryGroup()
        limit = to_bytes(config.memory.limit, available_bytes(self._group))
        self.budget = MemoryBudget(
            limits, limit, config.memory.high_watermark, config.memory.critical_watermark, self._meter
        )
        self._freed = FreedMemory(self.give_back, lambda: int(self._meter.resident_bytes()))
        self._log = structlog.get_logger("millstream")
        self._gate: Gate | None = None
        self._relief: MemoryRelief | None = None
        self._seal: Callable[[], Awaitable[None]] | None = None
        self._folding: asyncio.Task[None] | None = None
        self._progress: dict[TransportLink, tuple[int, int]] = {}  # bytes taken by then, since when no more

    def start(self, broker: Broker, gate: Gate, seal: Callable[[], Awaitable[None]] | None) -> None:
        self._gate = gate
        self._seal = seal
        keeps_transient = self._settings.transient_queue_policy == "keep"
        self._relief = MemoryRelief(broker, self, self._settings.stall_timeout, keeps_transient)

    def on_tick(self, now_ns: int) -> None:
        if self._relief is not None:
            self._relief.on_tick(now_ns)
        if self._progress and not self.budget.is_high:
            self._progress.clear()
        if not self.budget.is_high:
            self._freed.on_tick(now_ns, int(self.budget.intake))

    def stop(self) -> None:
        if self._folding is not None:
            self._folding.cancel()
        self._meter.close()

    # -------------------------------------------------------------------- port

    def lines(self) -> list[Line]:
        return [link.endpoint for link in self._links() if link.endpoint is not None]

    def _links(self) -> list[TransportLink]:
        return [] if self._gate is None else list(self._gate.links)

    def find_offenders(self, now_ns: int) -> list[Offender]:
        found: list[Offender] = []
        progress: dict[TransportLink, tuple[int, int]] = {}
        for link in self._links():
            endpoint = link.endpoint
            if endpoint is None:
                continue
            unsent = int(endpoint.unsent_bytes())
            size = unsent + int(endpoint.held_bytes())
            if size < OFFENCE_BYTES:
                continue
            taken = int(endpoint.left_bytes())
            before = self._progress.get(link)
            since_ns = before[1] if before is not None and before[0] == taken else now_ns
            progress[link] = (taken, since_ns)
            found.append(HeavyConnection(link, endpoint, size, now_ns - since_ns >= STUCK_NS))
        self._progress = progress
        return found

    def resume(self, count_max: int) -> None:
        gate = self._gate
        if gate is not None and gate.memory_waiters:
            gate.resume_publishers(count_max)

    def fold(self) -> None:
        if self._folding is None and self._seal is not None:
            self._folding = asyncio.get_running_loop().create_task(self._fold(self._seal))

    async def _fold(self, seal: Callable[[], Awaitable[None]]) -> None:
        try:
            await seal()
        except Unavailable:
            await asyncio.sleep(1)  # the storage itself says what is wrong with it
        finally:
            self._folding = None

    def give_back(self) -> None:
        give_back_freed_memory()

    def outside_bytes(self, high: int, critical: int) -> int:
        return self._group.pressure_bytes(int(high), int(critical))

    def on_shrunk(self, offender: Offender, freed: int) -> None:
        self._log.warning(
            "memory_offender",
            kind=offender.kind,
            name=offender.name,
            bytes=int(offender.size_bytes),
            freed=int(freed),
            resident=int(self.budget.resident),
            limit=int(self.budget.limit),
        )


class HeavyConnection(Offender):
    """Either it does not take what it is sent, or it has sent much that is not whole."""

    def __init__(self, link: TransportLink, line: Line, size_bytes: int, is_stuck: bool) -> None:
        super().__init__("connection", line.describe() or link.address, size_bytes, is_stuck)
        self._link = link
        self._line = line

    def shrink(self, wanted: int) -> int:
        self._line.end(
            Ending.OUT_OF_MEMORY
        )  # most protocols tell the client why; one that does not read never hears
        self._link.abort()
        self._link.gate.memory.connections_dropped += 1
        return int(self.size_bytes)
