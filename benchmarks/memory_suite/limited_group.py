"""A control group with a memory limit, for one process and its children; version 1 or 2, whichever this machine has.

Invariants
- The group is made for one run and removed after it; nothing else is ever put into it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

FIRST = Path("/sys/fs/cgroup/memory")
SECOND = Path("/sys/fs/cgroup")


class NoGroup(Exception):
    """This machine lets us make no such group: why."""


class LimitedGroup:
    def __init__(self, limit_bytes: int) -> None:
        self._is_first = (FIRST / "memory.limit_in_bytes").exists()
        root = FIRST if self._is_first else SECOND
        self.folder = root / f"millstream-bench-{os.getpid()}-{time.monotonic_ns()}"
        try:
            self.folder.mkdir()
        except OSError as error:
            raise NoGroup(f"no memory control group can be made under {root}: {error.strerror}") from None
        try:
            if self._is_first:
                (self.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
            else:
                (self.folder / "memory.max").write_text(str(limit_bytes))
                with contextlib.suppress(OSError):
                    (self.folder / "memory.swap.max").write_text("0")
        except OSError as error:
            self.remove()
            raise NoGroup(f"{self.folder} takes no limit: {error.strerror}") from None

    def command(self, command: list[str]) -> list[str]:
        """The same command, in the group from its first instruction on."""
        script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return ["/bin/sh", "-c", script, str(self.folder), *command]

    def peak_bytes(self) -> int:
        """The most it ever held, page cache included."""
        name = "memory.max_usage_in_bytes" if self._is_first else "memory.peak"
        return self._number(name)

    def killed(self) -> int:
        """Processes that the kernel has ended for want of memory."""
        name = "memory.oom_control" if self._is_first else "memory.events"
        for line in (self.folder / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def _number(self, name: str) -> int:
        try:
            return int((self.folder / name).read_text())
        except (OSError, ValueError):
            return 0

    def remove(self) -> None:
        for _ in range(50):
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.1)  # its processes are about to go
            else:
                return
