"""Processor time of everything that takes part, by part, and of everything else on the machine meanwhile.

jvm      Spark's Java process
python   Spark's Python workers and their daemons
reader   the reader beside the broker
broker   the broker itself
rest     this process, publishers, burners
"""

from __future__ import annotations

import os
import time
from typing import Final

from benchmarks.load.queue_job import CHILDREN_SYSTEM, CHILDREN_USER, PROCESS_CLOCK, TICKS_PER_S, read_core_s
from benchmarks.load.usage import find_family, read_text

PARTS: Final = ("jvm", "python", "reader", "broker", "rest")


class Times:
    """Processor seconds of each process, and of children of it that ended; and which part it belongs to."""

    def __init__(self, jvm: int, broker: int, reader: int) -> None:
        self.own: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.parts: dict[int, str] = {}
        spark = set(find_family(jvm))
        brokers = set(find_family(broker))
        for pid in find_family(os.getpid()):
            self.own[pid] = read_cpu_s(pid)
            self.ended[pid] = read_children_cpu_s(pid)
            self.parts[pid] = "rest"
            if pid in spark:
                self.parts[pid] = "jvm" if pid == jvm else "python"
            elif pid in brokers:
                self.parts[pid] = "reader" if pid == reader else "broker"


def used_between(before: Times, now: Times) -> dict[str, float]:
    """By part. A worker that ended left its time with its parent, all of it: what it had used before is taken off. One that
    was nobody's child any more took its time along."""
    used = dict.fromkeys(PARTS, 0.0)
    inherited = dict.fromkeys(PARTS, 0.0)
    for pid, part in now.parts.items():
        used[part] += max(now.own[pid] - before.own.get(pid, 0.0), 0.0)
        # What Java's children left are workers of Python.
        heir = "python" if part == "jvm" else part
        inherited[heir] += max(now.ended[pid] - before.ended.get(pid, 0.0), 0.0)
    for pid, part in before.parts.items():
        if pid not in now.parts:
            inherited[part] -= before.own[pid] + before.ended[pid]
    return {part: used[part] + max(inherited[part], 0.0) for part in PARTS}


class Meter:
    """From its making to `take`."""

    def __init__(self, jvm: int, broker: int, reader: int, cores: list[int]) -> None:
        self._processes = (jvm, broker, reader)
        self._cores = cores
        self._before = Times(*self._processes)
        self._busy_s = self._read_busy_s()
        self._started = time.monotonic()

    def take(self) -> dict[str, float]:
        """Seconds, and processor seconds of each part; `foreign_s` is what other programs used."""
        seconds = time.monotonic() - self._started
        busy_s = self._read_busy_s() - self._busy_s
        used = used_between(self._before, Times(*self._processes))
        facts = {f"{part}_cpu_s": value for part, value in used.items()}
        facts["foreign_s"] = max(busy_s - sum(used.values()), 0.0)
        facts["seconds"] = seconds
        facts["cores"] = float(len(self._cores))
        return facts

    def _read_busy_s(self) -> float:
        return sum(read_core_s(core) for core in self._cores)


def read_cpu_s(pid: int) -> float:
    """With the threads that ended."""
    try:
        return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)
    except OSError:
        return 0.0  # it ended a moment ago: its parent has its time


def read_children_cpu_s(pid: int) -> float:
    """Of children that ended."""
    stat = read_text(f"/proc/{pid}/stat")
    fields = stat[stat.rfind(")") + 2 :].split()
    if len(fields) <= CHILDREN_SYSTEM:
        return 0.0
    return (int(fields[CHILDREN_USER]) + int(fields[CHILDREN_SYSTEM])) / TICKS_PER_S
