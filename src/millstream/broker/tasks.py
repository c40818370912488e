"""Work that is too much for one turn of the loop: carried out in slices, in turn with everybody else's.

A step stands for about a microsecond. What costs more than a look-up says how many steps it took, wherever it happens: on the
spot, in a read (`spend`), or as a task, after the reads of a turn (`run`).

Invariants
- A turn takes at most STEPS_PER_TURN on the spot and as much again for tasks, and one slice beyond each; with more on the spot,
  tasks get less.
- Tasks take turns: none gets a second slice before every other that waits has had one.
- Which one is next is known at once, however many have gone before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.outbox import Wakeup

STEP_NS: Final[i64] = 1000  # what a step stands for
STEPS_PER_TURN: Final[i64] = 8_000
STEPS_PER_SLICE: Final[i64] = 1_000  # of one task, and of one read
DROPPED_MAX: Final[i64] = 64  # that may keep a place in the line beside as many as wait


@mypyc_attr(allow_interpreted_subclasses=True)
class Task(ABC):
    @abstractmethod
    def run(self, steps: i64) -> i64:
        """Take about so many steps; gives how many it were. Fewer: it is done, or waits for something and comes back."""

    @abstractmethod
    def on_task_failed(self, error: Exception) -> None:
        """Our own bug, which must not reach the tasks behind it."""


@final
class TaskQueue:
    def __init__(self, wakeup: Wakeup | None) -> None:
        self._wakeup = wakeup
        self._waiting: dict[Task, None] = {}
        self._line: deque[Task] = deque()  # the same in the order of their turns, and some that were dropped
        self.left: i64 = STEPS_PER_TURN  # for what is done on the spot in this turn, then for tasks

    def spend(self, steps: i64) -> None:
        """On the spot; or in a task, beside what it says it took."""
        self.left -= steps

    def add(self, task: Task) -> None:
        """Run it after the reads of this turn; one that waits already keeps its place."""
        if not self._waiting and self._wakeup is not None:
            self._wakeup.request()
        if task not in self._waiting:
            self._waiting[task] = None
            self._line.append(task)

    def start(self, task: Task) -> None:
        """A slice of it now, if this turn has time for it; the rest in turn with the others."""
        if self.left > 0:
            steps = task.run(STEPS_PER_SLICE)
            self.left -= steps
            if steps < STEPS_PER_SLICE:
                return
        self.add(task)

    def drop(self, task: Task) -> None:
        if task in self._waiting:
            del self._waiting[task]
            if len(self._line) > 2 * len(self._waiting) + DROPPED_MAX:
                self._line = deque(self._waiting)

    def count(self) -> int:
        return len(self._waiting)

    def work_off(self) -> bool:
        """At the end of a turn; True while there is more."""
        if self._waiting:
            self.left = max(
                1, STEPS_PER_TURN + min(0, self.left)
            )  # what was too much on the spot is taken off
            while self.left > 0 and self._waiting:
                steps = self._run_first()
                self.left -= steps
        self.left = STEPS_PER_TURN
        return len(self._waiting) > 0

    def _run_first(self) -> i64:
        task = self._line.popleft()
        if task not in self._waiting:
            return 1  # it was dropped
        del self._waiting[task]
        steps: i64 = STEPS_PER_SLICE
        try:
            steps = task.run(STEPS_PER_SLICE)
        except Exception as error:  # noqa: BLE001 one connection's fault stays with it
            task.on_task_failed(error)
        else:
            if steps >= STEPS_PER_SLICE:
                self._waiting[task] = None
                self._line.append(task)
        return steps + 1
