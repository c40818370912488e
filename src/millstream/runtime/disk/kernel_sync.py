"""fdatasync done by the kernel itself, without a thread of ours: asked for by one call, told by an eventfd.

A thread costs two wake-ups and two changes of the interpreter's lock for every batch, which on a fast disk is more than
the sync itself. Where the system has no such call, or does not allow it, `open_kernel_sync` gives None and a thread does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mypy_extensions import mypyc_attr

# io_setup, io_destroy, io_submit, io_getevents
_CALLS: Final = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_IOCB: Final = struct.Struct("<QIIHhIQQqQII")
_EVENT_SIZE: Final = 32
_FDSYNC: Final = 3
_WITH_EVENTFD: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@mypyc_attr(allow_interpreted_subclasses=True)
class KernelSync:
    """One sync at a time; `on_done` gets 0 or the number of the error."""

    def __init__(self, calls: tuple[int, int, int, int]) -> None:
        _, self._destroy, self._submit, self._events = calls
        self._context = ctypes.c_ulong(0)
        if _LIBC.syscall(calls[0], 8, ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._list = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._event = ctypes.create_string_buffer(_EVENT_SIZE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_done: Callable[[int], None] | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._eventfd, self._on_ready)

    def start(self, descriptor: int, on_done: Callable[[int], None]) -> bool:
        """False: the kernel takes none now."""
        _IOCB.pack_into(
            self._iocb, 0, 0, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _WITH_EVENTFD, self._eventfd
        )
        if _LIBC.syscall(self._submit, self._context, 1, self._list) != 1:
            return False
        self._on_done = on_done
        return True

    def wait(self) -> None:
        """Block until what was started is done."""
        while self._on_done is not None:
            self._take(1)

    def close(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            stop_reading: Callable[[int], object] = self._loop.remove_reader  # not every loop says a bool
            stop_reading(self._eventfd)
        _LIBC.syscall(self._destroy, self._context)  # waits for what is under way
        os.close(self._eventfd)

    def _on_ready(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        self._take(0)

    def _take(self, at_least: int) -> None:
        if _LIBC.syscall(self._events, self._context, at_least, 1, self._event, None) != 1:
            return
        result: int = struct.unpack_from("<q", self._event, 16)[0]
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(-result)


def open_kernel_sync(folder: Path) -> KernelSync | None:
    """Tried once on a file of that folder: some file systems and sandboxes have no such call."""
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return None
    try:
        kernel = KernelSync(calls)
    except OSError:
        return None
    answers: list[int] = []
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"x")
        file.flush()
        if kernel.start(file.fileno(), answers.append):
            kernel.wait()
    if answers == [0]:
        return kernel
    kernel.close()
    return None
