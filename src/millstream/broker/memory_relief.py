"""What is done when memory is short, by the tick.

Above the high mark those who publish much are not read (the transport sees to that), caches are dropped, the log is folded
early so that records leave memory for segments, and freed memory goes back to the system. Consumers go on: what they take is
what makes room. Above the critical mark, or when the state has lasted for `stall_ns` without getting better, the largest
offenders shrink by policy: connections that do not take what they are sent are dropped, the oldest messages of transient
queues and of the queues of sessions go. All of it is counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.broker.account import Account
from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.broker.conditions import MEMORY_CRITICAL, MEMORY_HIGH
from millstream.broker.line import Line
from millstream.broker.memory_survey import retained_bytes, survey, transient_bytes
from millstream.broker.session import Session
from millstream.model.message import NANOSECONDS
from millstream.queues.overflow import drop_head
from millstream.queues.queue import Queue

MIB: Final[i64] = 1024 * 1024
OFFENCE_BYTES: Final[i64] = 64 * 1024  # who holds less is no offender
SURVEY_NS: Final[i64] = NANOSECONDS
GIVE_BACK_NS: Final[i64] = 2 * NANOSECONDS
SHED_NS: Final[i64] = 250_000_000  # what was shed needs so long to show
DROPPED_MAX: Final[i64] = 20_000  # messages of one queue in one tick, one by one
EVICTED_MAX: Final[i64] = 2_000  # deliveries of one session in one tick
ALONE: Final = ("input", "queue_tails", "transient_queues", "retained")  # kinds that share nothing
OFFENDERS_MAX: Final[i64] = 500  # in one tick
READ_BYTES: Final[i64] = 512 * 1024  # what a publisher that goes on may bring with its first read


@mypyc_attr(allow_interpreted_subclasses=True)
class Offender(ABC):
    """Something of a client's that holds much memory. `is_stuck`: it does not get smaller by itself."""

    def __init__(self, kind: str, name: str, size_bytes: i64, is_stuck: bool) -> None:
        self.kind = kind
        self.name = name
        self.size_bytes: i64 = size_bytes
        self.is_stuck = is_stuck

    @abstractmethod
    def shrink(self, wanted: i64) -> i64:
        """Let go of about so many bytes if it has them; gives how many."""


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryPort(ABC):
    """What relief asks of the world outside."""

    @abstractmethod
    def lines(self) -> list[Line]:
        """All connections."""

    @abstractmethod
    def find_offenders(self, now_ns: i64) -> list[Offender]:
        """Connections that hold more than `OFFENCE_BYTES`."""

    @abstractmethod
    def resume(self, count_max: i64) -> None:
        """Read so many publishers again that were not read."""

    @abstractmethod
    def fold(self) -> None:
        """Ask for a checkpoint, if none runs."""

    @abstractmethod
    def give_back(self) -> None:
        """Hand freed memory back to the system."""

    @abstractmethod
    def outside_bytes(self, high: i64, critical: i64) -> i64:
        """How short of memory the control group is as a whole, on the scale of our own marks; 0: it is not."""

    @abstractmethod
    def on_shrunk(self, offender: Offender, freed: i64) -> None:
        """Tell the operator."""


@final
class MemoryRelief:
    def __init__(self, broker: Broker, port: MemoryPort, stall_ms: i64, keeps_transient: bool) -> None:
        self._broker = broker
        self._port = port
        self._stall_ns: i64 = stall_ms * 1_000_000
        self._keeps_transient = keeps_transient
        self._was_high = False
        self._outside: i64 = 0
        self._surveyed_ns: i64 = 0
        self._gave_back_ns: i64 = 0
        self._shed_ns: i64 = 0
        self._least: i64 = 0  # used since it got high
        self._least_ns: i64 = 0
        self._peak: i64 = 0  # of what the survey found, since it got high
        self._peak_resident: i64 = 0
        self._reusable: i64 = 0

    def on_tick(self, now_ns: i64) -> None:
        memory = self._broker.memory
        if memory.limit == 0:
            return
        if memory.is_high or self._reusable or now_ns - self._surveyed_ns >= 10 * SURVEY_NS:
            self._survey(now_ns)
        memory.retained = retained_bytes(self._broker)
        memory.on_tick(self._reusable, self._outside)
        if memory.is_high:
            self._relieve(now_ns)
        elif self._was_high:
            self._was_high = False
            self._broker.health.end(MEMORY_CRITICAL)
            self._broker.health.end(MEMORY_HIGH)
        if not memory.is_high:
            self._port.resume(max(4, (memory.high_mark - memory.used()) // READ_BYTES))

    def _survey(self, now_ns: i64) -> None:
        memory = self._broker.memory
        if now_ns - self._surveyed_ns < SURVEY_NS:
            return
        self._surveyed_ns = now_ns
        self._outside = self._port.outside_bytes(memory.high_mark, memory.critical_mark)
        memory.by_kind = survey(self._broker, self._port.lines())
        # what many share counts for each of them: together it is never more than there is
        total: i64 = min(sum(memory.by_kind.values()), memory.resident)
        if not memory.is_high and memory.resident < memory.high_mark:
            self._peak = 0
            self._reusable = 0
        elif total > self._peak:
            self._peak = total
            self._peak_resident = memory.resident
            self._reusable = 0
        else:
            # what should have gone and has not is free memory between what is in use
            freed: i64 = (self._peak - total) * 4 // 5
            freed -= max(0, self._peak_resident - memory.resident)
            alone: i64 = sum([memory.by_kind[name] for name in ALONE])  # that is in use, whatever else is
            self._reusable = max(0, min(freed, memory.resident - alone))

    # ----------------------------------------------------------------- relief

    def _relieve(self, now_ns: i64) -> None:
        broker = self._broker
        memory = broker.memory
        used: i64 = memory.used()
        if not self._was_high:
            self._was_high = True
            self._least = used
            self._least_ns = now_ns
            for account in broker.accounts.values():
                account.router.forget_all()
        broker.health.begin(MEMORY_HIGH, self._describe_cause())
        if memory.is_critical:
            broker.health.begin(MEMORY_CRITICAL, self._describe_cause())
        else:
            broker.health.end(MEMORY_CRITICAL)
        if used < self._least - memory.limit // 100:
            self._least = used
            self._least_ns = now_ns
        if memory.by_kind.get("queue_tails", 0) > memory.limit // 32:
            self._port.fold()
        is_stalled = now_ns - self._least_ns >= self._stall_ns
        if (memory.is_critical or is_stalled) and now_ns - self._shed_ns >= SHED_NS:
            self._shed_ns = now_ns
            wanted: i64 = used - (memory.high_mark - memory.limit // 12)
            if memory.is_critical:
                wanted = max(wanted, memory.resident - memory.critical_mark + memory.limit // 20)
            freed: i64 = self._shed(wanted, now_ns)
            self._least = used
            if (
                freed == 0 or freed >= wanted
            ):  # else it goes on: one tick lets go of so many messages and no more
                self._least_ns = max(self._least_ns, now_ns - self._stall_ns // 2)
            self._gave_back_ns = 0
        if now_ns - self._gave_back_ns >= GIVE_BACK_NS:
            self._gave_back_ns = now_ns
            self._port.give_back()
            memory.look()

    def _describe_cause(self) -> str:
        largest = sorted(self._broker.memory.by_kind.items(), key=size_of, reverse=True)[:3]
        parts = [f"{name} {size // MIB} MiB" for name, size in largest if size >= MIB]
        limit = self._broker.memory.limit // MIB
        return f"memory.limit is {limit} MiB; most is in {', '.join(parts) or 'the process itself'}"

    def _shed(self, wanted: i64, now_ns: i64) -> i64:
        """The largest shrink first, those that stand still before those that move; how many bytes went."""
        offenders = self._port.find_offenders(now_ns) + self._find_stored()
        if not self._broker.memory.is_critical:
            offenders = [offender for offender in offenders if offender.is_stuck]
        offenders.sort(key=weight_of, reverse=True)
        freed: i64 = 0
        count: i64 = 0
        for offender in offenders:
            if freed >= wanted or count >= OFFENDERS_MAX:
                break
            gone: i64 = offender.shrink(wanted - freed)
            if gone > 0:
                freed += gone
                count += 1
                self._broker.health.count(MEMORY_CRITICAL, 1)
                self._port.on_shrunk(offender, gone)
        return freed

    def _find_stored(self) -> list[Offender]:
        """Queues of sessions and transient queues."""
        found: list[Offender] = []
        for account in self._broker.accounts.values():
            for session in account.sessions.values():
                if session.queued_bytes() >= OFFENCE_BYTES and account.limits.offline_policy == "evict":
                    found.append(SessionQueue(session))
            if self._keeps_transient:
                continue
            for queue in account.queues.catalog.queues.values():
                if not queue.is_durable and transient_bytes(queue) >= OFFENCE_BYTES:
                    found.append(TransientQueue(queue, account))
        return found


@final
class SessionQueue(Offender):
    def __init__(self, session: Session) -> None:
        super().__init__("session", session.key.client_id, session.queued_bytes(), session.line is None)
        self._session = session

    def shrink(self, wanted: i64) -> i64:
        session = self._session
        bytes_before: i64 = session.queued_bytes()
        before: i64 = session.queued_count()
        session.trim(before - min((before + 1) // 2, EVICTED_MAX), bytes_before)
        dropped: i64 = before - session.queued_count()
        counters = session.account.counters
        counters.dropped_queue_full -= dropped  # it was not full: there are too many like it
        counters.dropped_memory += dropped
        return bytes_before - session.queued_bytes()


@final
class TransientQueue(Offender):
    def __init__(self, queue: Queue, account: Account) -> None:
        name = queue.name if account.name == DEFAULT_ACCOUNT else f"{account.name}: {queue.name}"
        super().__init__("queue", name, transient_bytes(queue), True)
        self._queue = queue
        self._account = account

    def shrink(self, wanted: i64) -> i64:
        queue = self._queue
        before: i64 = transient_bytes(queue)
        target: i64 = before - min(wanted, before // 2)
        dropped: i64 = 0
        while dropped < DROPPED_MAX and transient_bytes(queue) > target and drop_head(queue, False):
            dropped += 1
        self._account.counters.dropped_memory += dropped
        return before - transient_bytes(queue)


def size_of(item: tuple[str, int]) -> int:
    return item[1]


def weight_of(offender: Offender) -> tuple[bool, int]:
    return (offender.is_stuck, int(offender.size_bytes))
