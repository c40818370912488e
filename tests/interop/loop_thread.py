"""An event loop in a thread of its own, for clients that live in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

from foreign_client import TIMEOUT_S

_Result = TypeVar("_Result")


class LoopThread:
    """Started by the first use; one serves all clients."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[object, object, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)


_shared: list[LoopThread] = []


def run_in_loop(coroutine: Coroutine[object, object, _Result]) -> _Result:
    if not _shared:
        _shared.append(LoopThread())
    return _shared[0].run(coroutine)
