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


class Meter:
    """From its making to `take`."""

    def __init__(self, jvm: int, broker: int, reader: int, cores: list[int]) -> None:
        self._jvm = jvm
        self._broker = broker
        self._reader = reader
        self._cores = cores
        self._before = self._read()
        self._busy_s = self._read_busy_s()
        self._started = time.monotonic()

    def take(self) -> dict[str, float]:
        """Seconds, and processor seconds of each part; `foreign_s` is what other programs used."""
        seconds = time.monotonic() - self._started
        busy_s = self._read_busy_s() - self._busy_s
        now = self._read()
        facts = {f"{part}_cpu_s": now[part] - self._before[part] for part in PARTS}
        facts["foreign_s"] = max(busy_s - sum(facts.values()), 0.0)
        facts["seconds"] = seconds
        facts["cores"] = float(len(self._cores))
        return facts

    def _read_busy_s(self) -> float:
        return sum(read_core_s(core) for core in self._cores)

    def _read(self) -> dict[str, float]:
        found = dict.fromkeys(PARTS, 0.0)
        spark = set(find_family(self._jvm))
        broker = set(find_family(self._broker))
        for pid in find_family(os.getpid()):
            part = "rest"
            if pid == self._jvm:
                part = "jvm"
            elif pid in spark:
                part = "python"
            elif pid == self._reader:
                part = "reader"
            elif pid in broker:
                part = "broker"
            found[part] += read_cpu_s(pid)
            found["python" if part == "jvm" else part] += read_children_cpu_s(pid)
        return found


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
