"""Failpoints on a real process: `MILLSTREAM_TEST_FAILPOINT=name:count` dies at the count-th time it is reached."""

from __future__ import annotations

import os
import signal
from typing import Final, final

from millstream.storage.disk import Failpoints

VARIABLE: Final = "MILLSTREAM_TEST_FAILPOINT"


@final
class NoFailpoints(Failpoints):
    def hit(self, name: str) -> None:
        pass


@final
class DeadlyFailpoint(Failpoints):
    """Kills this process as `kill -9` would, at a place a test has chosen."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._left = count

    def hit(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def find_failpoints() -> Failpoints:
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return NoFailpoints()
    name, _, count = wanted.partition(":")
    return DeadlyFailpoint(name, int(count or "1"))
