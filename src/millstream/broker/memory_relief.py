"""What is done when memory is short, by the tick.

Above the high mark those who publish much are not read (the transport sees to that), caches are dropped, the log is folded
early so that records leave memory for segments, and freed memory goes back to the system. Consumers go on: what they take is
what makes room. Above the critical mark, or when the state has lasted for `stall_ns` without getting better, the largest
offenders shrink by policy: connections that do not take what they are sent are dropped, the oldest messages of transient
queues and of the queues of sessions go. All of it is counted. What takes long is done in slices (`TaskQueue`), over as many
turns as it takes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.conditions import MEMORY_CRITICAL, MEMORY_HIGH, PUBLISHERS_SLOWED
from millstream.broker.memory_port import MemoryPort
from millstream.broker.memory_shedding import Shedding
from millstream.broker.memory_survey import MemorySurvey, retained_bytes
from millstream.model.message import NANOSECONDS

MIB: Final[i64] = 1024 * 1024
SURVEY_NS: Final[i64] = NANOSECONDS
GIVE_BACK_NS: Final[i64] = 2 * NANOSECONDS
TOLD_NS: Final[i64] = NANOSECONDS  # between two times that held publishers are named
SHED_NS: Final[i64] = 250_000_000  # what was shed needs so long to show
ALONE: Final = ("input", "queue_tails", "transient_queues", "retained", "wills")  # kinds that share nothing
READ_BYTES: Final[i64] = 512 * 1024  # what a publisher that goes on may bring with its first read
NORMAL_NS: Final[i64] = 5 * NANOSECONDS  # it has not been high for so long: the condition ends
KEPT_TRIMS: Final[i64] = 3  # in a row without less memory: what nothing explains is fragmented


@final
class MemoryRelief:
    def __init__(self, broker: Broker, port: MemoryPort, stall_ms: i64, keeps_transient: bool) -> None:
        self._broker = broker
        self._port = port
        self._stall_ns: i64 = stall_ms * 1_000_000
        self._survey = MemorySurvey(broker)
        self._is_surveyed = True  # what the survey found is known
        self._shedding = Shedding(broker, port, keeps_transient)
        self._is_shed = True  # what was let go of is known
        self._was_high = False
        self._outside: i64 = 0
        self._surveyed_ns: i64 = 0
        self._gave_back_ns: i64 = 0
        self._told_ns: i64 = 0
        self._least: i64 = 0  # used since it got high
        self._least_ns: i64 = 0
        self._peak: i64 = 0  # of what the survey found, since it got high
        self._peak_resident: i64 = 0
        self._reusable: i64 = 0
        self._high_ns: i64 = 0  # when it was high last
        self._critical_ns: i64 = 0  # the same
        self._base: i64 = -1  # resident, apart from what the survey finds; -1: not known
        self._trimmed: i64 = 0  # resident after the last trim
        self._kept_trims: i64 = 0  # in a row: it did not get less

    def on_tick(self, now_ns: i64) -> None:
        memory = self._broker.memory
        if memory.limit == 0:
            return
        if memory.resident == 0:
            memory.look()
        if (
            memory.is_high
            or self._reusable
            or memory.fragmented
            or now_ns - self._surveyed_ns >= 10 * SURVEY_NS
        ):
            self._begin_survey(now_ns)
        if not self._is_surveyed and not self._survey.is_going_on:
            self._is_surveyed = True
            self._on_surveyed()
        memory.retained = retained_bytes(self._broker)
        memory.on_tick(self._reusable, self._outside)
        if memory.is_high:
            self._high_ns = now_ns
            self._relieve(now_ns)
        else:
            self._was_high = False
            if now_ns - self._high_ns >= NORMAL_NS:
                self._broker.health.end(MEMORY_CRITICAL)
                self._broker.health.end(MEMORY_HIGH)
        if not memory.is_high:
            self._port.resume(max(4, (memory.high_mark - memory.used()) // READ_BYTES))

    def _begin_survey(self, now_ns: i64) -> None:
        memory = self._broker.memory
        if now_ns - self._surveyed_ns < SURVEY_NS or not self._is_surveyed:
            return
        self._surveyed_ns = now_ns
        self._outside = self._port.outside_bytes(memory.high_mark, memory.critical_mark)
        self._is_surveyed = False
        self._survey.begin(self._port.lines())

    def _on_surveyed(self) -> None:
        memory = self._broker.memory
        memory.by_kind = self._survey.by_kind()
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
        self._find_fragmented(total)

    def _find_fragmented(self, total: i64) -> None:
        """The allocator gives back only what is free in one piece. What remains resident, and is neither the process itself nor
        anything that the survey found, is free for what comes."""
        memory = self._broker.memory
        if self._base < 0 or (total < memory.limit // 16 and memory.resident - total < self._base):
            self._base = max(0, memory.resident - total)
        if not memory.is_high and memory.resident < memory.high_mark:
            self._kept_trims = 0
            memory.fragmented = 0
        elif self._kept_trims >= KEPT_TRIMS or memory.fragmented:
            memory.fragmented = max(0, memory.resident - (self._base + total) * 5 // 4)

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
            self._critical_ns = now_ns
            broker.health.begin(MEMORY_CRITICAL, self._describe_cause())
        elif now_ns - self._critical_ns >= NORMAL_NS:
            broker.health.end(MEMORY_CRITICAL)
        if used < self._least - memory.limit // 100:
            self._least = used
            self._least_ns = now_ns
        if memory.by_kind.get("queue_tails", 0) > memory.limit // 32:
            self._port.fold()
        is_stalled = now_ns - self._least_ns >= self._stall_ns
        self._note_shed(used, now_ns)
        is_due = self._is_shed and now_ns - self._shedding.ended_ns >= SHED_NS
        if (memory.is_critical or is_stalled) and is_due:
            wanted: i64 = used - (memory.high_mark - memory.limit // 12)
            if memory.is_critical:
                wanted = max(wanted, memory.resident - memory.critical_mark + memory.limit // 20)
            self._is_shed = False
            self._shedding.begin(wanted, now_ns)
            self._note_shed(used, now_ns)
        if now_ns - self._told_ns >= TOLD_NS:
            self._tell_held(now_ns)
        if now_ns - self._gave_back_ns >= GIVE_BACK_NS:
            self._gave_back_ns = now_ns
            self._port.give_back()
            memory.look()
            is_kept = memory.resident > self._trimmed - memory.limit // 128
            self._kept_trims = self._kept_trims + 1 if is_kept else 0
            self._trimmed = memory.resident

    def _tell_held(self, now_ns: i64) -> None:
        name, count = self._port.find_held()
        if count:
            self._told_ns = now_ns
            others = f", and {count - 1} others wait" if count > 1 else ""
            self._broker.health.report(PUBLISHERS_SLOWED, f"{name} waits for memory{others}")

    def _note_shed(self, used: i64, now_ns: i64) -> None:
        """Once it is over."""
        shedding = self._shedding
        if self._is_shed or shedding.is_going_on:
            return
        self._is_shed = True
        self._least = used
        if shedding.freed == 0 or shedding.freed >= shedding.wanted:  # else it goes on
            self._least_ns = max(self._least_ns, now_ns - self._stall_ns // 2)
        self._gave_back_ns = 0

    def _describe_cause(self) -> str:
        largest = sorted(self._broker.memory.by_kind.items(), key=size_of, reverse=True)[:3]
        parts = [f"{name} {size // MIB} MiB" for name, size in largest if size >= MIB]
        limit = self._broker.memory.limit // MIB
        return f"memory.limit is {limit} MiB; most is in {', '.join(parts) or 'the process itself'}"


def size_of(item: tuple[str, int]) -> int:
    return item[1]
