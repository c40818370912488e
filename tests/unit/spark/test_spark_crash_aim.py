"""Kills of the Spark campaign fall into running batches, or into the moment after a sink's commit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.spark_aim import AGAIN_S, LAKE, QUEUE, RARE_S, Aim, Sight
from crash.spark_process import Checkpoints


class World:
    """Files as Spark and the lake leave them, and a clock that moves when somebody rests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.queue_end = 0
        self.now_s = 0.0
        self.rests: list[float] = []
        self.to_come: list[Callable[[], None]] = []  # one thing happens in each rest
        self.is_over = False
        self.aim = Aim(
            random.Random(1),
            Checkpoints(folder / "checkpoints"),
            folder / "lake",
            lambda: self.queue_end,
            self.rest,
            lambda: self.now_s,
        )

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now_s += seconds
        if self.to_come:
            self.to_come.pop(0)()

    def plan(self, query: str, batch: int, **ends: int) -> None:
        place = json.dumps({queue: {"0": end} for queue, end in ends.items()})
        self._note(query, "offsets", batch, f'v1\n{{"batchTimestampMs":1}}\n{place}')

    def finish(self, query: str, batch: int) -> None:
        self._note(query, "commits", batch, "v1\n{}")

    def fill_lake(self, batch: int) -> None:
        notes = self.folder / "lake" / "_millstream"
        notes.mkdir(parents=True, exist_ok=True)
        (notes / "done-query.json").write_text(json.dumps({"batch": batch}))

    def end(self) -> None:
        self.is_over = True

    def _note(self, query: str, log: str, batch: int, text: str) -> None:
        folder = self.folder / "checkpoints" / query / log
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).write_text(text)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_is_seen_before_the_first_batch(world: World) -> None:
    assert world.aim.look() == Sight(False)


def test_a_sink_that_has_more_than_spark_noted_is_in_doubt(world: World) -> None:
    for query in (LAKE, QUEUE):
        world.plan(query, 0, one=10, two=5)
    assert world.aim.look() == Sight(True)
    world.queue_end = 15
    assert world.aim.look() == Sight(True, doubts=(QUEUE,))
    world.fill_lake(0)
    assert world.aim.look() == Sight(True, doubts=(LAKE, QUEUE))
    for query in (LAKE, QUEUE):
        world.finish(query, 0)
    assert world.aim.look() == Sight(False)


def test_a_moment_between_batches_is_passed_by(world: World) -> None:
    world.plan(LAKE, 0, one=10)
    world.finish(LAKE, 0)
    world.to_come = [lambda: None, lambda: None, lambda: world.plan(LAKE, 1, one=20)]
    world.aim.wait_batch(lambda: world.is_over)
    assert world.aim.look().is_in_batch
    assert len(world.rests) == 3
    assert max(world.rests[1:]) <= AGAIN_S[1]


def test_a_moment_in_a_batch_is_taken_as_it_comes(world: World) -> None:
    world.plan(LAKE, 0, one=10)
    world.aim.wait_batch(lambda: world.is_over)
    assert len(world.rests) == 1


@pytest.mark.parametrize("sink", [LAKE, QUEUE])
def test_the_moment_after_the_commit_of_a_sink_is_waited_for(world: World, sink: str) -> None:
    world.plan(sink, 0, one=10)

    def commit() -> None:
        world.fill_lake(0)
        world.queue_end = 10

    world.to_come = [lambda: None, commit]
    world.aim.wait_doubt(sink, lambda: world.is_over)
    assert sink in world.aim.look().doubts
    assert len(world.rests) == 2


def test_a_moment_that_never_comes_is_given_up(world: World) -> None:
    world.aim.wait_doubt(LAKE, lambda: world.is_over)
    assert world.now_s == pytest.approx(RARE_S, abs=0.1)


def test_nobody_waits_for_a_job_that_is_over(world: World) -> None:
    world.to_come = [world.end]
    world.aim.wait_batch(lambda: world.is_over)
    world.aim.wait_doubt(QUEUE, lambda: world.is_over)
    assert len(world.rests) == 1
