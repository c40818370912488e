"""Processor time and memory of processes, read from /proc.

`wait` is the time a thread stood ready while another process had its core: it tells a broker that is slow from a
machine that is busy.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Final

from benchmarks.load.job import Result

NANOSECONDS: Final = 1_000_000_000


class Usage:
    """Processor seconds used, and seconds spent waiting for a processor."""

    __slots__ = ("cpu_s", "wait_s")

    def __init__(self, cpu_s: float, wait_s: float) -> None:
        self.cpu_s = cpu_s
        self.wait_s = wait_s


def read_usage(pids: list[int]) -> Usage:
    """Sum over all threads of the processes; a process or thread that is gone counts nothing."""
    cpu_ns = 0
    wait_ns = 0
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            fields = read_text(f"/proc/{pid}/task/{thread}/schedstat").split()
            if len(fields) >= 2:
                cpu_ns += int(fields[0])
                wait_ns += int(fields[1])
    return Usage(cpu_ns / NANOSECONDS, wait_ns / NANOSECONDS)


class UsageWindow:
    """From its making to `close`: the time, and the processor time of the broker and of this process."""

    def __init__(self, broker_pids: list[int]) -> None:
        self._broker_pids = broker_pids
        self._broker = read_usage(broker_pids)
        self._own = read_usage([os.getpid()])
        self.started = perf_counter()

    def close(self, result: Result) -> None:
        result.seconds = perf_counter() - self.started
        own = read_usage([os.getpid()])
        self._close_broker(result)
        result.generator_cpu_s = own.cpu_s - self._own.cpu_s
        result.generator_wait_s = own.wait_s - self._own.wait_s

    def _close_broker(self, result: Result) -> None:
        after = read_usage(self._broker_pids)
        result.broker_cpu_s = after.cpu_s - self._broker.cpu_s
        result.broker_wait_s = after.wait_s - self._broker.wait_s


def read_rss_bytes(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        for line in read_text(f"/proc/{pid}/status").splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # the process ended between listing and reading


def find_family(pid: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_text(f"/proc/{name}/stat")
            fields = stat[stat.rfind(")") + 2 :].split()
            if len(fields) > 1:
                parents[int(name)] = int(fields[1])
    family = [pid]
    for member in family:  # grows while it is walked: children are appended behind their parent
        family.extend(child for child, parent in parents.items() if parent == member)
    return family
