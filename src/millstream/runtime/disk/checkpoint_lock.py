"""One lock between those who change the files behind a running broker: checkpoints, backups, repairs.

A checkpoint removes files of the log and drops segments; whoever needs them to stay holds it off for a moment. The lock
goes with the process that has it, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millstream.runtime.disk.files import refuse

CHECKPOINT_LOCK: Final = "checkpoint.lock"


@contextmanager
def hold_checkpoints(data_dir: Path) -> Iterator[None]:
    """Wait until no checkpoint runs, and let none begin."""
    descriptor = _lock(data_dir / CHECKPOINT_LOCK)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        refuse(error, path.name)
    return descriptor
