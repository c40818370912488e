"""A memory limit around one process and its children: a cgroup of version 1 or 2, else an address-space limit."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from types import TracebackType

ROOT_V1 = Path("/sys/fs/cgroup/memory")
ROOT_V2 = Path("/sys/fs/cgroup")
REMOVE_TRIES = 50


class Confinement:
    """A context manager; `join` is called in the process that is to be confined."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._folder: Path | None = None
        self.kind = "address space (RLIMIT_AS)"

    def __enter__(self) -> Confinement:
        name = f"millstream-attack-{os.getpid()}-{time.monotonic_ns()}"
        if (ROOT_V1 / "memory.limit_in_bytes").exists():
            self._make(ROOT_V1 / name, "memory.limit_in_bytes", "cgroup v1")
        elif (ROOT_V2 / "cgroup.controllers").exists():
            self._make(ROOT_V2 / name, "memory.max", "cgroup v2")
            if self._folder is not None:
                with contextlib.suppress(OSError):  # a kernel without swap accounting
                    (self._folder / "memory.swap.max").write_text("0")
        return self

    def _make(self, folder: Path, limit_file: str, kind: str) -> None:
        try:
            folder.mkdir()
            (folder / limit_file).write_text(str(self._limit))
        except OSError:
            with contextlib.suppress(OSError):  # not root, or the controller is not delegated
                folder.rmdir()
            return
        self._folder = folder
        self.kind = kind

    def join(self) -> None:
        if self._folder is None:
            resource.setrlimit(resource.RLIMIT_AS, (self._limit * 2, self._limit * 2))
        else:
            (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self) -> int:
        """How many processes the kernel ended because the limit was reached."""
        if self._folder is None:
            return 0
        for name in ("memory.oom_control", "memory.events"):
            path = self._folder / name
            if path.exists():
                for line in path.read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def peak_bytes(self) -> int:
        """Of everything that is charged, the cache of written files included; 0 where it is not told."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if self._folder is not None and (self._folder / name).exists():
                return int((self._folder / name).read_text())
        return 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in range(REMOVE_TRIES if self._folder is not None else 0):
            try:
                assert self._folder is not None
                self._folder.rmdir()
                return
            except OSError:
                time.sleep(0.1)  # its last process is still being taken down
