"""A timer for waits far below a millisecond, told by a file descriptor: those of the event loop count milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import time
from collections.abc import Callable
from typing import Final, final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_SPEC: Final = struct.Struct("@llll")  # interval, then the first time: seconds and nanoseconds each
_NANOSECONDS: Final = 1_000_000_000


@final
class ShortTimer:
    """Rings once for every start; a new start forgets the one before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], None]) -> None:
        self._descriptor: int = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = loop
        self._on_ring = on_ring
        loop.add_reader(self._descriptor, self._on_ready)

    def start(self, wait_ns: int) -> None:
        spec = _SPEC.pack(0, 0, *divmod(max(wait_ns, 1), _NANOSECONDS))
        if _LIBC.timerfd_settime(self._descriptor, 0, spec, None) != 0:
            self._loop.call_soon(self._on_ring)  # better early than never

    def close(self) -> None:
        if self._descriptor < 0:
            return
        if not self._loop.is_closed():
            stop_reading: Callable[[int], object] = self._loop.remove_reader  # not every loop says a bool
            stop_reading(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def _on_ready(self) -> None:
        with contextlib.suppress(BlockingIOError):  # started anew in the meantime
            os.read(self._descriptor, 8)
            self._on_ring()


def open_short_timer(loop: asyncio.AbstractEventLoop, on_ring: Callable[[], None]) -> ShortTimer | None:
    """None where the system has none."""
    try:
        return ShortTimer(loop, on_ring)
    except (OSError, AttributeError):
        return None
