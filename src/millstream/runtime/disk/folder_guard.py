"""Notices that the data directory, or a part of it that must stay, was removed or replaced under a running broker.

What is written to a file that has no name any more is confirmed by the system and gone at the next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PARTS: Final = (".", "lock", "log", "state/data.mdb", "queues")


class FolderGuard:
    """Remembers which files and folders the parts were; those that are not there yet are guarded once they are."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._identities: dict[str, tuple[int, int]] = {}
        self._learn()

    def _learn(self) -> None:
        for part in PARTS:
            if part in self._identities:
                continue
            try:
                status = (self._data_dir / part).stat()
            except OSError:
                continue
            self._identities[part] = (status.st_dev, status.st_ino)

    def find_loss(self) -> str:
        """Which part is not what it was, as a clause; empty: all are. A part that cannot be looked at now is not lost."""
        for part, identity in self._identities.items():
            path = self._data_dir if part == "." else self._data_dir / part
            try:
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} was removed while the broker runs"
            except OSError:
                continue
            if (status.st_dev, status.st_ino) != identity:
                return f"{path} was replaced while the broker runs"
        if len(self._identities) < len(PARTS):
            self._learn()
        return ""
