"""Results of Celery's tasks in files that are replaced whole.

Celery's own file backend writes a result in place: who reads it while the next state of the same task is written,
or two states at once, finds parts of both.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from celery.backends.filesystem import FilesystemBackend
from kombu.utils.encoding import ensure_bytes


class WholeFiles(FilesystemBackend):  # type: ignore[misc] # Celery has no types
    """`celery_results:WholeFiles+file://FOLDER` as the backend's address."""

    def set(self, key: Any, value: Any) -> None:
        file = os.fsdecode(self._filename(key))
        part = f"{file}.{os.getpid()}-{threading.get_ident()}"
        with open(part, "wb") as outfile:
            outfile.write(ensure_bytes(value))
        os.replace(part, file)
