"""Work in slices: who runs when, and what becomes of those that are dropped."""

from __future__ import annotations

import gc
import weakref

from millstream.broker.tasks import DROPPED_MAX, STEPS_PER_SLICE, STEPS_PER_TURN, Task, TaskQueue


class Trace:
    """Is there as long as its worker is; a compiled class cannot be referred to weakly."""


class Worker(Task):
    def __init__(self, name: str, slices: int, ran: list[str]) -> None:
        self.trace = Trace()
        self.name = name
        self.slices = slices
        self.ran = ran

    def run(self, steps: int) -> int:
        self.ran.append(self.name)
        self.slices -= 1
        return steps if self.slices else 1

    def on_task_failed(self, error: Exception) -> None:
        raise error


def test_none_gets_a_second_slice_before_every_other_has_had_one() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    for name in "abc":
        tasks.add(Worker(name, 2, ran))
    while tasks.work_off():
        pass
    assert ran == ["a", "b", "c", "a", "b", "c"]


def test_a_task_that_is_added_twice_keeps_its_place_and_runs_once() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    first, second = Worker("a", 1, ran), Worker("b", 1, ran)
    for task in (first, second, first):
        tasks.add(task)
    assert not tasks.work_off()
    assert ran == ["a", "b"]


def test_a_task_that_was_dropped_does_not_run_and_may_come_again() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    first, second = Worker("a", 1, ran), Worker("b", 1, ran)
    tasks.add(first)
    tasks.add(second)
    tasks.drop(first)
    assert tasks.count() == 1
    assert not tasks.work_off()
    assert ran == ["b"]
    tasks.add(first)
    tasks.drop(first)
    tasks.add(first)
    assert not tasks.work_off()
    assert ran == ["b", "a"]


def test_those_that_were_dropped_are_forgotten_although_one_before_them_never_ends() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    tasks.add(Worker("endless", 1 << 40, ran))
    dropped = []
    for _ in range(1000):
        task = Worker("gone", 1, ran)
        dropped.append(weakref.ref(task.trace))
        tasks.add(task)
        tasks.drop(task)
    del task
    gc.collect()
    assert sum(each() is not None for each in dropped) <= DROPPED_MAX + 2
    assert tasks.work_off()
    assert set(ran) == {"endless"}


def test_a_turn_takes_no_more_than_its_steps_however_many_wait() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    for number in range(1000):
        tasks.add(Worker(str(number), 2, ran))
    assert tasks.work_off()
    assert len(ran) <= STEPS_PER_TURN // STEPS_PER_SLICE + 1


class Spender(Worker):
    """What it does costs much, and is counted where it happens."""

    def __init__(self, tasks: TaskQueue, ran: list[str]) -> None:
        super().__init__("spender", 1, ran)
        self._tasks = tasks

    def run(self, steps: int) -> int:
        self._tasks.spend(2 * STEPS_PER_TURN)
        return super().run(steps)


def test_what_a_task_spends_beside_its_steps_is_taken_from_the_turn() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    for _ in range(3):
        tasks.add(Spender(tasks, ran))
    assert tasks.work_off()
    assert len(ran) == 1


def test_who_spent_too_much_on_the_spot_leaves_less_for_tasks_but_one_of_them_runs() -> None:
    tasks = TaskQueue(None)
    ran: list[str] = []
    for _ in range(20):
        tasks.add(Worker("a", 2, ran))
    tasks.spend(STEPS_PER_TURN + STEPS_PER_TURN // 2)
    tasks.work_off()
    assert len(ran) <= STEPS_PER_TURN // STEPS_PER_SLICE // 2 + 1
    ran.clear()
    tasks.spend(10 * STEPS_PER_TURN)
    tasks.work_off()
    assert len(ran) == 1
