"""Tells the C allocator to keep what was freed, and to give it back when memory is short.

Every large read makes a buffer of up to 256 KiB that lives for microseconds. glibc would map and unmap it each time,
and the page faults cost more than everything the broker does with the bytes.
"""

from __future__ import annotations

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_KEEP_BYTES: Final = 64 * 1024 * 1024
_LARGE_BYTES: Final = 32 * 1024 * 1024  # the most glibc accepts


def keep_freed_memory() -> bool:
    """True when the allocator took the settings; others than glibc have no such thing and need none."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = (
        (_MMAP_THRESHOLD, _LARGE_BYTES),
        (_TRIM_THRESHOLD, _KEEP_BYTES),
        (_TOP_PAD, 1024 * 1024),
        (_ARENA_MAX, 2),
    )
    return all(mallopt(key, value) == 1 for key, value in settings)


def give_back_freed_memory() -> bool:
    """Hand all free pages of the C library back to the system. True when there were any."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    return bool(trim(0))
