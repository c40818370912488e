"""A disk that gives no room, for this process: the kernel refuses every write that would make a file longer."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from structlog.testing import capture_logs


@contextmanager
def no_room() -> Iterator[None]:
    """Log lines are kept in memory meanwhile: pytest captures output in a file, which may not grow either."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capture_logs():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
