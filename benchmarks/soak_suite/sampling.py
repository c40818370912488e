"""The broker's size over time, read from outside, and the line through it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.load.usage import find_family, read_text, read_usage

KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1 << 20
HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Sample:
    seconds: float  # since the load began
    rss_bytes: int
    anonymous_bytes: int  # of it, what is not a file's
    descriptors: int
    threads: int
    data_bytes: int
    cpu_s: float  # of its children too
    child_rss_bytes: int = (
        0  # of the process that folds the log: it is there while there is something to fold
    )


def take_sample(pid: int, data: Path, started: float) -> Sample:
    """The broker by itself. Its child comes and goes, and would show as a step of its own size."""
    family = find_family(pid)
    status = read_status(pid)
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        descriptors = 0  # the broker has ended, which is told elsewhere
    return Sample(
        round(time.monotonic() - started, 1),
        status.get("VmRSS", 0) * KIBIBYTE,
        status.get("RssAnon", 0) * KIBIBYTE,
        descriptors,
        status.get("Threads", 0),
        measure_folder(data),
        round(read_usage(family).cpu_s, 2),
        sum(read_status(member).get("VmRSS", 0) for member in family if member != pid) * KIBIBYTE,
    )


def read_status(pid: int) -> dict[str, int]:
    """The figures of a process; none when it has ended."""
    found: dict[str, int] = {}
    for line in read_text(f"/proc/{pid}/status").splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon", "Threads"):
            found[name] = int(value.split()[0])
    return found


def measure_folder(folder: Path) -> int:
    """What its files take on the disk."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            pass  # removed meanwhile
    return total


def fit_slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: the slope and its standard error; zeros for fewer than three points."""
    count = len(points)
    if count < 3:
        return 0.0, 0.0
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return 0.0, 0.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, (rest / (count - 2) / spread) ** 0.5
