"""Which processes came from which, as the kernel tells it; and the end of some of them, without a warning."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def find_children() -> dict[int, list[int]]:
    """By parent, all that run now."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            after_name = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        except OSError:
            continue  # it has ended meanwhile
        children.setdefault(int(after_name.split()[1]), []).append(int(folder.name))
    return children


def find_descendants(pid: int) -> list[int]:
    children = find_children()
    found: list[int] = []
    fresh = [pid]
    while fresh:
        fresh = [child for parent in fresh for child in children.get(parent, [])]
        found += fresh
    return found


def command_of(pid: int) -> str:
    """Empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def open_files_of(pid: int) -> list[str]:
    """Paths, and what the kernel calls pipes and sockets; none when it has ended."""
    folder = Path(f"/proc/{pid}/fd")
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found: list[str] = []
    for name in names:
        try:
            found.append(os.readlink(folder / name))
        except OSError:
            continue  # closed meanwhile
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it was faster
