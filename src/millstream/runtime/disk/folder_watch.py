"""Whether a file of a folder was removed or renamed, as the kernel tells: by inotify, which costs nothing while none is.

To ask for the state of a file before every confirm takes about a tenth of what a durable message takes in all. Where the
system has no such watch, `open_folder_watch` gives None and it is asked for. Names that another machine removes, on a network
file system, are not told here.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mypy_extensions import mypyc_attr

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_MOVED_FROM: Final = 0x40
_DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_ONLY_FOLDERS: Final = 0x0100_0000
_READ_BYTES: Final = 65_536


@mypyc_attr(allow_interpreted_subclasses=True)
class FolderWatch:
    """`has_changed` is set before anything that the loop hears of later; whoever looks for himself clears it first."""

    def __init__(self, folder: Path) -> None:
        self.has_changed = True  # nobody has looked yet
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor: int = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        events = _MOVED_FROM | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
        if _LIBC.inotify_add_watch(self._descriptor, os.fsencode(folder), events) < 0:
            os.close(self._descriptor)
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._descriptor, self._on_ready)

    def close(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            stop_reading: Callable[[int], object] = self._loop.remove_reader  # not every loop says a bool
            stop_reading(self._descriptor)
        os.close(self._descriptor)

    def _on_ready(self) -> None:
        self.has_changed = True
        try:
            os.read(self._descriptor, _READ_BYTES)  # what is left makes the loop call again
        except BlockingIOError:
            return


def open_folder_watch(folder: Path) -> FolderWatch | None:
    """None where the system has none, or has no more of them for this user."""
    try:
        return FolderWatch(folder)
    except (OSError, AttributeError):
        return None
