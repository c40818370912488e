"""Staged batches and a power that goes: what was confirmed of them comes back, in part of an atom nothing does."""

from __future__ import annotations

import random

import pytest

from simulation.disk import PowerCut, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints
from simulation.node import Node
from simulation.stage_workload import StageWorkload, describe_stages, encode, stages_after
from simulation.table import SimulatedTable
from simulation.workload import Fact

SEEDS = 60
LIVES = 4
FILE_SIZE = 2048  # a few facts, so that checkpoints have something to fold
PLACES = (
    "log.before_write",
    "log.after_write",
    "log.after_sync",
    "log.after_folder_sync",
    "checkpoint.before_commit",
    "checkpoint.after_commit",
    "checkpoint.after_remove",
    "recover.after_sync",
)


class StageRun:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._disk = SimulatedDisk(self._chance)
        self._table = SimulatedTable()
        self._workload = StageWorkload(self._chance)
        self._told: list[tuple[Fact, int]] = []  # each with the position it led to
        self._atoms: dict[int, None] = {0: None}
        self._promised = 0
        self.came_back = 0

    def run(self) -> None:
        for _ in range(LIVES):
            failpoints = DeadlyFailpoints(self._chance.choice(PLACES), self._chance.randrange(1, 12))
            node: Node | None = None
            try:
                node = Node(self._disk, self._table, failpoints, FILE_SIZE)
                self._check(node)
                self._work(node)
            except PowerCut:
                pass
            self._disk = self._disk.crash()
            self._table = (self._table if node is None else node.table).crash()
        self._check(Node(self._disk, self._table, DeadlyFailpoints(), FILE_SIZE))

    def _work(self, node: Node) -> None:
        for _ in range(self._chance.randrange(5, 40)):
            for _ in range(self._chance.randrange(1, 6)):
                for fact in [*self._workload.next_atom(), *self._workload.next_atom()]:
                    node.store.queue_fact(*encode(fact))
                    self._told.append((fact, int(node.log.position)))
                self._atoms[int(node.log.position)] = None
            node.log.flush()
            if self._chance.random() < 0.8:
                node.writer.work()
                self._promised = int(node.log.durable)
            if node.files.sealed and self._chance.random() < 0.4:
                node.checkpoint()

    def _check(self, node: Node) -> None:
        last = int(node.recovered.fold.last_sequence)
        assert last >= self._promised
        assert last in self._atoms
        self._told = [(fact, position) for fact, position in self._told if position <= last]
        self._atoms = {position: None for position in self._atoms if position <= last}
        kept = [fact for fact, _ in self._told]
        assert describe_stages(node.recovered.fold.stages) == stages_after(kept)
        assert node.recovered.fold.stages.orphans == 0
        self._workload.remember(kept)
        self._promised = last
        self.came_back += len(kept)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_confirmed_of_staged_batches_comes_back(seed: int) -> None:
    run = StageRun(seed)
    run.run()
    assert run.came_back


def test_a_fact_that_is_lost_would_be_noticed() -> None:
    workload = StageWorkload(random.Random(0))
    told = [fact for _ in range(200) for fact in workload.next_atom()]
    for at in range(100, 200):
        if told[at].kind == "stage begun":
            assert stages_after(told[: at + 1]) != stages_after(told[:at])
