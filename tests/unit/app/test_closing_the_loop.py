"""How the broker ended is told even when its loop cannot be closed."""

from __future__ import annotations

import asyncio
import errno

import pytest

from millstream.app.server import close_loop


class StuckRunner(asyncio.Runner):
    """As uvloop's loop does when no descriptor is left."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self._fault = fault

    def close(self) -> None:
        super().close()
        raise self._fault


@pytest.mark.parametrize(
    "fault",
    [OSError(errno.EMFILE, "Too many open files"), RuntimeError("Cannot close a running event loop")],
)
def test_a_loop_that_cannot_be_closed_does_not_hide_how_the_broker_ended(fault: Exception) -> None:
    runner = StuckRunner(fault)
    try:
        assert runner.run(asyncio.sleep(0, "the exit code")) == "the exit code"
    finally:
        close_loop(runner)


def test_a_loop_that_can_be_closed_is_closed() -> None:
    runner = asyncio.Runner()
    loop = runner.get_loop()
    close_loop(runner)
    assert loop.is_closed()
