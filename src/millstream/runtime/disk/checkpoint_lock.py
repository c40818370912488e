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

CHECKPOINT_LOCK: Final = "checkpoint.lock"


@contextmanager
def hold_checkpoints(data_dir: Path) -> Iterator[None]:
    """Wait until no checkpoint runs, and let none begin."""
    descriptor = os.open(data_dir / CHECKPOINT_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
