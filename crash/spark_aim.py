"""When to kill: at random moments of running batches, never while the queries rest; and now and then at the worst moment of
all, when a sink has a batch and Spark has not noted that yet.

What is known comes from outside: Spark's checkpoints, the notes of the lake, the end of the queue.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crash.spark_process import Checkpoints
from crash.spark_streams import find_last_batch

LAKE: Final = "lake"
QUEUE: Final = "queue"
AFTER_S: Final = (0.0, 3.0)
AGAIN_S: Final = (0.0, 0.3)
POLL_S: Final = 0.005
RARE_S: Final = 10.0


@dataclass(frozen=True)
class Sight:
    """What a kill falls into."""

    is_in_batch: bool
    is_in_task: bool | None = None  # of an executor that dies
    doubts: tuple[str, ...] = ()  # the sinks that have a batch of which Spark does not know


class Aim:
    """`find_end` gives the end of the queue that is filled, which holds one record for each of the source."""

    def __init__(
        self,
        chance: random.Random,
        checkpoints: Checkpoints,
        lake: Path,
        find_end: Callable[[], int],
        rest: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chance = chance
        self._checkpoints = checkpoints
        self._lake = lake
        self._find_end = find_end
        self._rest = rest
        self._clock = clock

    def look(self) -> Sight:
        doubts = tuple(sink for sink in (LAKE, QUEUE) if self._is_in_doubt(sink))
        return Sight(self._checkpoints.is_in_batch(), doubts=doubts)

    def wait_batch(self, is_over: Callable[[], bool]) -> None:
        """A moment like any other of those in which a batch is under way."""
        self._rest(self._chance.uniform(*AFTER_S))
        while not self._checkpoints.is_in_batch() and not is_over():
            self._rest(self._chance.uniform(*AGAIN_S))

    def wait_doubt(self, sink: str, is_over: Callable[[], bool]) -> None:
        """Until the sink has a batch of which Spark does not know."""
        self.wait_until(lambda: self._is_in_doubt(sink), is_over)

    def wait_until(self, is_now: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        """Not for long, as that moment may be too short to be seen."""
        deadline = self._clock() + RARE_S
        while not is_now() and not is_over() and self._clock() < deadline:
            self._rest(POLL_S)

    def _is_in_doubt(self, sink: str) -> bool:
        # The sink comes first: a batch that Spark notes meanwhile is no doubt.
        if sink == LAKE:
            return find_last_batch(self._lake) > self._checkpoints.last_done(LAKE)
        return self._find_end() > self._checkpoints.records_done(QUEUE)
