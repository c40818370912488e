"""Groups that may hand out again because a receiver of very many has room: each has its turn once, in slices.

A client with thousands of consumers answers its deliveries one by one, in packets of a few bytes, and each answer may make room for
any of them. So however often it is asked for, one round goes on at a time.

Invariants
- What asks for a round while one goes on gets another one behind it: who came too early then has room now.
- Each round begins with another group than the one before.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.tasks import Task, TaskQueue
from millstream.queues.group import Group
from millstream.queues.scheduler import STEPS_PER_DELIVERY

CONSUMERS_FEW: Final = 32  # of one receiver: they are told on the spot
GROUPS_PER_STEP: Final[i64] = 8


@final
class GroupRound(Task):
    def __init__(self, tasks: TaskQueue) -> None:
        self._tasks = tasks
        self._groups: list[Group] = []
        self._first: i64 = 0  # whose turn it is at the beginning of a round
        self._done: i64 = 0  # so many of this round have had their turn
        self._is_wanted = False  # another round

    def goes_on(self) -> bool:
        """Whether a round goes on; then there will be another one."""
        self._is_wanted = len(self._groups) > 0
        return self._is_wanted

    def begin(self, groups: list[Group]) -> None:
        """Where none goes on."""
        self._groups = groups
        self._done = 0
        self._is_wanted = False
        self._tasks.add(self)

    def drop(self) -> None:
        """There is nobody to hand out to any more."""
        self._groups = []
        self._tasks.drop(self)

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        groups = self._groups
        count: i64 = len(groups)
        while left > 0 and self._done < count:
            end: i64 = min(self._done + GROUPS_PER_STEP, count)
            while self._done < end:
                group = groups[(self._first + self._done) % count]
                self._done += 1
                left -= dispatch(group)
            left -= 1
        if self._done < count:
            return steps if left > 0 else steps - left
        self._done = 0
        self._first += 1
        if self._is_wanted:
            self._is_wanted = False
            return max(steps, steps - left)
        self._groups = []
        return min(steps - left, steps - 1)

    def on_task_failed(self, error: Exception) -> None:
        self.drop()
        raise error


def dispatch(group: Group) -> i64:
    """How many steps it took."""
    scheduler = group.queue.scheduler
    before: i64 = scheduler.left
    group.dispatch()
    return (before - scheduler.left) * STEPS_PER_DELIVERY


def groups_once(groups: list[Group]) -> list[Group]:
    """In their order."""
    return list(dict.fromkeys(groups))
