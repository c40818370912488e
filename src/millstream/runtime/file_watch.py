"""Looks whether files have changed, cheaply and often enough that a change of rights takes effect within two seconds."""

from __future__ import annotations

from pathlib import Path


class FileWatch:
    """Remembers what a file looked like; `has_changed` is True once for each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark = self._look()

    def has_changed(self) -> bool:
        mark = self._look()
        if mark == self._mark:
            return False
        self._mark = mark
        return True

    def _look(self) -> tuple[int, int, int]:
        try:
            state = self.path.stat()
        except OSError:
            return (0, 0, 0)
        return (state.st_mtime_ns, state.st_size, state.st_ino)
