"""Reads a file whose size nobody vouches for: no more of it than its reader can use."""

from __future__ import annotations

import errno
from pathlib import Path


def read_bounded(path: Path, size_max: int) -> bytes:
    """All of a file, also of one that has no size before it was read, as a pipe; OSError if that is more than it may be."""
    with path.open("rb") as file:
        data = file.read(size_max + 1)
    if len(data) > size_max:
        raise OSError(errno.EFBIG, f"it has more than {size_max} bytes", str(path))
    return data
