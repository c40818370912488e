"""What ended connections leave behind is freed after a flood, though nobody makes new objects."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: in this one, other tests have left free memory behind, so that it need not grow.
PROGRAM = """
import gc, weakref

from millstream.app.memory import MemoryGuard
from millstream.config.load import config_of
from millstream.model.limits import Limits
from millstream.model.message import NANOSECONDS
from millstream.runtime.memory.freed_memory import GROWN_BYTES


class Ended:
    "As a connection is: it refers to itself."

    def __init__(self):
        self.me = self
        self.held = b"x" * (2 * GROWN_BYTES)


gc.disable()
guard = MemoryGuard(config_of({}), Limits())
guard.on_tick(NANOSECONDS)
ended = weakref.ref(Ended())
assert ended() is not None
for second in range(2, 30):
    guard.on_tick(second * NANOSECONDS)
print("kept" if ended() else "freed")
guard.stop()
"""


def test_what_ended_connections_hold_is_freed_after_a_flood() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "freed"
