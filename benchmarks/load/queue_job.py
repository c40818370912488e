"""What a queue scenario asks of the generator beyond an ordinary job, and the window it is measured in."""

from __future__ import annotations

import json
import os
from time import clock_gettime
from typing import Final

from benchmarks.load.job import Job, Result, whole
from benchmarks.load.usage import UsageWindow, find_family, read_text

CREDIT_DEFAULT: Final = 100
BUSY_FIELDS: Final = (1, 2, 3, 8)  # of a line of /proc/stat: user, nice, system, steal
# of /proc/<pid>/stat behind the name: what children that ended have used
CHILDREN_USER: Final = 13
CHILDREN_SYSTEM: Final = 14
PROCESS_CLOCK: Final = 2  # the kernel's number for "all threads of a process, to the nanosecond"
TICKS_PER_S: Final = float(os.sysconf("SC_CLK_TCK"))


class QueueJob(Job):
    """One queue scenario against one running broker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        fields: dict[str, object] = json.loads(text)
        self.protocol = str(fields.get("protocol", "mqtt"))
        self.fill = whole(fields, "fill", 0)  # messages stored before, or instead of, the measured window
        self.consumers = whole(fields, "consumers", 1)
        self.credit = whole(fields, "credit", CREDIT_DEFAULT)  # per consumer
        self.is_stream = bool(fields.get("is_stream", False))
        self.has_session = bool(fields.get("has_session", False))  # a persistent session instead of a queue
        self.steps = whole(fields, "steps", 10)
        self.broker_core = whole(fields, "broker_core", -1)
        self.folder = str(fields.get("folder", "."))
        self.batches = [int(part) for part in str(fields.get("batches", "1")).split(",")]


def read_core_s(core: int) -> float:
    """Processor seconds of one core since the start of the machine, time stolen by others on the host included."""
    name = f"cpu{core} "
    for line in read_text("/proc/stat").splitlines():
        if line.startswith(name):
            fields = line.split()
            ticks = sum([int(fields[index]) for index in BUSY_FIELDS if index < len(fields)])
            return ticks / TICKS_PER_S
    return 0.0


def read_family_cpu_s(pids: list[int]) -> float:
    """Processor seconds of the processes, of their threads that ended, and of their children, ended ones too."""
    total = 0.0
    for pid in find_families(pids):
        try:
            total += clock_gettime((~pid << 3) | PROCESS_CLOCK)
        except OSError:
            continue  # it ended a moment ago: its parent has its time
        stat = read_text(f"/proc/{pid}/stat")
        fields = stat[stat.rfind(")") + 2 :].split()
        if len(fields) > CHILDREN_SYSTEM:
            total += (int(fields[CHILDREN_USER]) + int(fields[CHILDREN_SYSTEM])) / TICKS_PER_S
    return total


def find_families(pids: list[int]) -> list[int]:
    """Each process and its descendants, each once."""
    found: dict[int, None] = {}
    for pid in pids:
        for member in find_family(pid):
            found[member] = None
    return list(found)


class Window(UsageWindow):
    """A broker of many threads on one core waits for itself, so its waiting says nothing; what other programs used of
    its core does, and that is what `broker_wait_s` holds here.
    """

    def __init__(self, broker_pids: list[int], broker_core: int) -> None:
        self._core = broker_core
        self._family_s = read_family_cpu_s(broker_pids)
        self._core_s = read_core_s(broker_core)
        super().__init__(broker_pids)

    def _close_broker(self, result: Result) -> None:
        result.broker_cpu_s = read_family_cpu_s(self._broker_pids) - self._family_s
        foreign_s = read_core_s(self._core) - self._core_s - result.broker_cpu_s
        result.broker_wait_s = max(foreign_s, 0.0)
