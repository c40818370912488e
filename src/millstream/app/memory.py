"""Memory of a running broker: finds the limit, measures, and does what relief asks for."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from millstream.broker.broker import Broker
from millstream.broker.line import Ending, Line
from millstream.broker.memory_port import OFFENCE_BYTES, MemoryPort, Offender
from millstream.broker.memory_relief import MemoryRelief
from millstream.config.memory import to_bytes
from millstream.config.schema import Config
from millstream.model.errors import Unavailable
from millstream.model.limits import Limits
from millstream.model.memory_budget import MemoryBudget
from millstream.runtime.memory.allocator import give_back_freed_memory
from millstream.runtime.memory.freed_memory import FreedMemory, Heap
from millstream.runtime.memory.meter import MemoryGroup, ProcessMemory, available_bytes
from millstream.runtime.transport.gate import Gate
from millstream.runtime.transport.link import TransportLink

STEPS_PER_END: Final = 100  # of a connection
BYTES_PER_STEP: Final = 8192  # that it had, which are freed one by one
COLLECTED_MAX: Final = (
    20_000  # connections, sessions and queues; with more, the garbage collector holds the loop for too long
)
SMALL_PER_OBJECT: Final = 10
STUCK_NS: Final = 1_000_000_000  # a connection that takes nothing for so long stands still


class BrokerHeap(Heap):
    def __init__(self, meter: ProcessMemory) -> None:
        self._meter = meter
        self._broker: Broker | None = None
        self._gate: Gate | None = None

    def start(self, broker: Broker, gate: Gate) -> None:
        self._broker = broker
        self._gate = gate

    def resident_bytes(self) -> int:
        return int(self._meter.resident_bytes())

    def is_settled(self) -> bool:
        broker = self._broker
        if broker is None:
            return True
        if broker.scheduler.garbage.count() or broker.tasks.count():
            return False
        return not any(account.queues.catalog.is_releasing() for account in broker.accounts.values())

    def collect(self) -> None:
        """Connections and queues that have ended refer to themselves, and Python frees such objects only when very many new
        ones are made: on a quiet broker, hours later."""
        if self._count() <= COLLECTED_MAX:
            gc.collect()

    def give_back(self) -> None:
        give_back_freed_memory()

    def _count(self) -> int:
        """Of what the collector would look at: connections, sessions and queues, and the small ones: records in memory, levels
        of the topics of retained messages."""
        count = 0 if self._gate is None else len(self._gate.links)
        for account in [] if self._broker is None else self._broker.accounts.values():
            queues = account.queues.catalog.queues.values()
            small = sum(int(queue.memtable.end - queue.memtable.first) for queue in queues) + int(
                account.retained.nodes
            )
            count += len(account.sessions) + len(queues) + small // SMALL_PER_OBJECT
        return count


class MemoryGuard(MemoryPort):
    def __init__(self, config: Config, limits: Limits) -> None:
        self._settings = config.memory
        self._meter = ProcessMemory()
        self._group = MemoryGroup()
        limit = to_bytes(config.memory.limit, available_bytes(self._group))
        self.budget = MemoryBudget(
            limits, limit, config.memory.high_watermark, config.memory.critical_watermark, self._meter
        )
        self._heap = BrokerHeap(self._meter)
        self._freed = FreedMemory(self._heap)
        self._log = structlog.get_logger("millstream")
        self._broker: Broker | None = None
        self._gate: Gate | None = None
        self._relief: MemoryRelief | None = None
        self._seal: Callable[[], Awaitable[None]] | None = None
        self._folding: asyncio.Task[None] | None = None
        self._progress: dict[Line, tuple[int, int]] = {}  # bytes taken by then, since when no more
        self._links_by_line: dict[Line, TransportLink] = {}  # of this search
        self._searched: dict[Line, tuple[int, int]] = {}  # as `_progress`, of this search

    def start(self, broker: Broker, gate: Gate, seal: Callable[[], Awaitable[None]] | None) -> None:
        self._broker = broker
        self._gate = gate
        self._seal = seal
        self._heap.start(broker, gate)
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

    def begin_search(self) -> list[Line]:
        for link in self._links():
            if link.endpoint is not None:
                self._links_by_line[link.endpoint] = link
        return list(self._links_by_line)

    def find_offender(self, line: Line, now_ns: int) -> Offender | None:
        link = self._links_by_line[line]
        size = int(line.unsent_bytes()) + int(line.held_bytes())
        if self._gate is not None and link in self._gate.memory_waiters:
            size += int(line.owned_bytes())  # it may wait for what it holds itself
        if size < OFFENCE_BYTES:
            return None
        taken = int(line.left_bytes())
        before = self._progress.get(line)
        since_ns = before[1] if before is not None and before[0] == taken else now_ns
        self._searched[line] = (taken, since_ns)
        return HeavyConnection(link, line, size, now_ns - since_ns >= STUCK_NS)

    def end_search(self) -> None:
        self._progress, self._searched = self._searched, {}
        self._links_by_line = {}

    def resume(self, count_max: int) -> None:
        gate = self._gate
        if gate is not None and gate.memory_waiters:
            gate.resume_publishers(count_max)

    def find_held(self) -> tuple[str, int]:
        gate = self._gate
        if gate is None or not gate.memory_waiters:
            return "", 0
        link = next(iter(gate.memory_waiters))
        name = "" if link.endpoint is None else link.endpoint.describe()
        if link.address not in name:
            name = f"{name} from {link.address}" if name else link.address
        return name, len(gate.memory_waiters)

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

    def shrink(self, wanted: int, steps: int) -> int:
        self.is_done = True
        self.steps = STEPS_PER_END + int(self.size_bytes) // BYTES_PER_STEP
        self._line.end(
            Ending.OUT_OF_MEMORY
        )  # most protocols tell the client why; one that does not read never hears
        self._link.abort()
        self._link.gate.memory.connections_dropped += 1
        return int(self.size_bytes)
