"""File descriptors of the process: how many connections they leave room for, and whether any is left.

Connections are bounded below the limit, so that files of the log and of queues can be opened however many clients
come. The event loop closes a connection that finds no descriptor without telling anybody; so it is looked for here.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final, final

import structlog

from millstream.broker.conditions import DESCRIPTORS_EXHAUSTED
from millstream.broker.health import Health
from millstream.runtime.start_fault import StartFault
from millstream.runtime.transport.gate import Gate

RESERVED: Final = 128  # for everything that is no connection
NEEDED: Final = 64  # to start at all
WANTED_MAX: Final = 1 << 20


def raise_limit() -> int:
    """As far as this user may; how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, WANTED_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return WANTED_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def check_limit() -> None:
    """StartFault when a broker cannot even open its own files."""
    limit = raise_limit()
    if limit < NEEDED:
        text = f"the limit of {limit} file descriptors is too low: a broker needs {NEEDED}, and one for each connection"
        raise StartFault(text, "ulimit -n 65536", is_setting=True)


@final
class Descriptors:
    """Looked at twice a second: a limit can be changed from outside."""

    def __init__(self, health: Health, gate: Gate) -> None:
        self._health = health
        self._gate = gate
        self._wanted = int(gate.limits.connections_max)
        self._limit = 0
        self._log = structlog.get_logger("millstream")
        self.on_tick()

    def on_tick(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != self._limit:
            self._limit = limit
            self._bound_connections(limit)
        try:
            os.close(os.open("/", os.O_PATH | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._health.begin(DESCRIPTORS_EXHAUSTED, self._describe(error))
            return
        self._health.end(DESCRIPTORS_EXHAUSTED)

    def _bound_connections(self, limit: int) -> None:
        room = self._wanted
        if limit != resource.RLIM_INFINITY:
            room = max(limit - min(RESERVED, limit // 2), 1)
        is_low = room < self._wanted
        self._gate.connections_max = min(room, self._wanted)
        self._gate.descriptors = limit if is_low else 0
        if is_low:
            self._log.info(
                "descriptors_limited", descriptors=limit, connections_max=room, wanted=self._wanted
            )

    def _describe(self, error: OSError) -> str:
        if error.errno == errno.ENFILE:
            return "the system has no file descriptor left"
        return f"all {self._limit:,} file descriptors of the process are in use"
