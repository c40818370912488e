"""A process that works for one broker goes with it, however the broker goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int) -> None:
    """From here on. What is left half done, the next one does again, and ports and files are free for it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it was gone before we could ask
