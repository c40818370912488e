"""The manifest between the log's thread, which begins files, and the loop, which starts and stops: one of them at a time."""

from __future__ import annotations

import threading

from millstream.storage.log.files import LogRegister
from millstream.storage.manifest import ManifestKeeper


class SharedKeeper(LogRegister):
    def __init__(self, keeper: ManifestKeeper) -> None:
        self._keeper = keeper
        self._lock = threading.Lock()

    def begin_log(self, number: int, salt: int, size: int, ended: int, last: int) -> None:
        with self._lock:
            self._keeper.begin_log(number, salt, size, ended, last)

    def open(self) -> None:
        with self._lock:
            self._keeper.open()

    def stop(self, last_sequence: int, last_in_file: int) -> None:
        with self._lock:
            self._keeper.stop(last_sequence, last_in_file)

    def doubt(self, last_session: int) -> None:
        with self._lock:
            self._keeper.doubt(last_session)

    def end_doubt(self) -> bool:
        with self._lock:
            return self._keeper.end_doubt()

    def note_folded(self, file: int, sequence: int) -> None:
        """Without the lock: the loop must not wait for a disk that does not answer. It is one assignment, and only the loop
        makes it."""
        self._keeper.note_folded(file, sequence)
