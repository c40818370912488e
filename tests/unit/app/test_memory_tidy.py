"""What ended connections leave behind is freed after a flood, though nobody makes new objects."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from millstream.app.memory import MemoryGuard
from millstream.config.load import config_of
from millstream.model.limits import Limits
from millstream.model.message import NANOSECONDS
from millstream.runtime.freed_memory import GROWN_BYTES


class Ended:
    """As a connection is: it refers to itself."""

    def __init__(self) -> None:
        self.me = self
        self.held = b"\x01" * (2 * GROWN_BYTES)


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_what_ended_connections_hold_is_freed_after_a_flood() -> None:
    guard = MemoryGuard(config_of({}), Limits())
    guard.on_tick(NANOSECONDS)
    ended = weakref.ref(Ended())
    assert ended() is not None
    for second in range(2, 30):
        guard.on_tick(second * NANOSECONDS)
    assert ended() is None
    guard.stop()
