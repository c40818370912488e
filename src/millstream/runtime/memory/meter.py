"""How much memory there is and how much of it this process has, as Linux tells: /proc and the control groups v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, final

from mypy_extensions import i64

from millstream.model.memory_budget import MemoryMeter

UNLIMITED: Final = 1 << 60  # version 1 writes "no limit" as a number of about this size
GROUP_HIGH: Final = (
    0.90  # of a group's limit: as much that cannot be reclaimed is too much for one who is in it
)
GROUP_CRITICAL: Final = 0.97


@final
class ProcessMemory(MemoryMeter):
    """Reads one small file that stays open: some microseconds."""

    def __init__(self, path: str = "/proc/self/statm") -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def resident_bytes(self) -> i64:
        if self._file < 0:
            return 0
        return int(os.pread(self._file, 128, 0).split(b" ", 2)[1]) * self._page_bytes

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@final
class MemoryGroup:
    """The control group this process is in, or the nearest one around it with a limit."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._folder: Path | None = None
        self._is_second = False
        self.limit = 0  # bytes; 0: none
        self._find(root)

    def _find(self, root: Path) -> None:
        try:
            lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            return
        for line in lines:
            parts = line.split(":", 2)
            if len(parts) != 3:
                continue
            _, controllers, path = parts
            if controllers == "":
                self._look_up(root / "sys/fs/cgroup", path, "memory.max", is_second=True)
                self._look_up(root / "sys/fs/cgroup/unified", path, "memory.max", is_second=True)
            elif "memory" in controllers.split(","):
                self._look_up(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes", is_second=False)

    def _look_up(self, mount: Path, path: str, name: str, *, is_second: bool) -> None:
        """From the group up to the mount: the smallest limit holds. In a container the path may begin elsewhere."""
        folder = mount / path.strip("/")
        if not folder.is_dir():
            folder = mount
        while True:
            limit = _read_number(folder / name)
            if 0 < limit < UNLIMITED and (self.limit == 0 or limit < self.limit):
                self.limit = limit
                self._folder = folder
                self._is_second = is_second
            if folder == mount:
                return
            folder = folder.parent

    def unreclaimable_bytes(self) -> int:
        """Of all processes in the group, without what the kernel can take back; 0 where it does not tell."""
        folder = self._folder
        if folder is None:
            return 0
        try:
            pairs = [line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines()]
        except (OSError, UnicodeDecodeError):
            return 0
        found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        if self._is_second:
            return sum(found.get(name, 0) for name in ("anon", "shmem", "kernel", "sock"))
        return found.get("total_rss", 0) + found.get("total_shmem", 0)

    def pressure_bytes(self, high: int, critical: int) -> int:
        """How full the group is on the scale of our own marks; 0: not so full that it matters."""
        if self.limit == 0:
            return 0
        share = self.unreclaimable_bytes() / self.limit
        if share < GROUP_HIGH:
            return 0
        return high + round(
            (critical - high) * min(1.0, (share - GROUP_HIGH) / (GROUP_CRITICAL - GROUP_HIGH))
        )


def machine_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Of memory in this machine; 0 where the system does not tell."""
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def available_bytes(group: MemoryGroup) -> int:
    """What this process and its children can have at most: the machine's, or the group's where that is less."""
    sizes = [size for size in (machine_bytes(), group.limit) if size > 0]
    return min(sizes, default=0)


def _read_number(path: Path) -> int:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
