"""Any facts, any place where they end: the log gives back the state that memory has."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.storage.log.format import Record
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.records import session_records
from millstream.storage.records.fold import PLACEHOLDER, Fold
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.store import StoredState
from millstream.storage.table.checkpoint import Checkpoint, load_table
from simulation.disk import Mood, SimulatedDisk
from simulation.exchange_workload import ExchangeWorkload, model_after
from simulation.failpoints import DeadlyFailpoints
from simulation.node import WALL_OFFSET_NS, Node
from simulation.queue_workload import QueueWorkload, find_queue_fault
from simulation.table import SimulatedTable
from simulation.workload import Fact, Workload, describe, describe_exchanges, state_after

FILE_SIZE = 2048


class Told:
    """Facts told to a store on a simulated disk; `batches` says after which of them a batch was written."""

    def __init__(self, chance: random.Random, rounds: int, with_exchanges: bool = True) -> None:
        self.node = Node(SimulatedDisk(1), SimulatedTable(), DeadlyFailpoints(), FILE_SIZE)
        self.facts: list[Fact] = []
        self.batches: list[tuple[int, int]] = [(0, 0)]  # (facts so far, last sequence)
        workloads = (Workload(chance), QueueWorkload(chance))
        exchanges = ExchangeWorkload(random.Random(rounds))
        for _ in range(rounds):
            atom = chance.choice(workloads).next_atom()
            for fact in atom + exchanges.next_atom() if with_exchanges else atom:
                self.node.teller.tell(fact)
                self.facts.append(fact)
            if chance.random() < 0.6:
                self.node.log.flush()
                self.node.writer.work()
                self.batches.append((len(self.facts), int(self.node.log.position)))
        self.node.log.flush()
        self.node.writer.work()

    def records(self) -> list[Record]:
        found: list[Record] = []
        names = log_names(self.node.disk)
        for name in names:
            found += read_file(self.node.disk, name, name == names[-1]).records
        return found


def exchanges_of(state: StoredState) -> dict[object, object]:
    return describe_exchanges(state.exchanges, state.bindings)


def exchanges_after(facts_told: list[Fact]) -> dict[object, object]:
    model = model_after(facts_told)
    return describe_exchanges(model.exchanges(), model.bindings())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 60))
def test_wherever_the_log_ends_the_state_is_that_of_the_facts_before_it(seed: int, rounds: int) -> None:
    told = Told(random.Random(seed), rounds)
    records = told.records()
    for count, last in told.batches:
        fold = Fold(WALL_OFFSET_NS)
        for record in records:
            if record.sequence <= last:
                fold.apply(record)
        assert fold.orphans == fold.queues.orphans == fold.exchanges.orphans == 0
        state = fold.state()
        assert describe(state) == describe(state_after(told.facts[:count]))
        assert exchanges_of(state) == exchanges_after(told.facts[:count])
        assert find_queue_fault(told.facts[:count], state, told.node.disk) == ""


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 80))
def test_a_checkpoint_at_any_place_changes_nothing(seed: int, rounds: int) -> None:
    told = Told(random.Random(seed), rounds)
    told.node.checkpoint()
    disk, table = told.node.disk.crash(Mood.NOTHING), told.node.table.crash()
    again = Node(disk, table, DeadlyFailpoints(), FILE_SIZE)
    assert describe(again.state) == describe(state_after(told.facts))
    assert exchanges_of(again.state) == exchanges_after(told.facts)
    assert find_queue_fault(told.facts, again.state, disk) == ""


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 80))
def test_no_message_is_kept_that_nobody_names_and_none_is_missing(seed: int, rounds: int) -> None:
    told = Told(random.Random(seed), rounds)
    table = SimulatedTable()
    checkpoint = Checkpoint(table, SegmentWriter(SimulatedDisk(2), DeadlyFailpoints(), 1 << 20))
    for record in told.records():
        checkpoint.apply(record)
    checkpoint.finish(1)
    uses: dict[int, int] = {}
    for _, body in table.items(b"d"):
        number = session_records.decode_delivery(body, PLACEHOLDER).message
        uses[number] = uses.get(number, 0) + 1
    for _, body in table.items(b"w"):
        number = session_records.decode_will(body).message
        uses[number] = uses.get(number, 0) + 1
    for _, body in table.items(b"r"):
        number = session_records.decode_retained(body)[1]
        uses[number] = uses.get(number, 0) + 1
    kept = {
        int.from_bytes(key[1:], "big"): int.from_bytes(body[:4], "little") for key, body in table.items(b"m")
    }
    assert kept == uses


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 60), st.booleans())
@example(1424600797, 59, False)  # a will whose message is missing
def test_after_damage_a_checkpoint_believes_what_a_fold_believes(
    seed: int, rounds: int, with_exchanges: bool
) -> None:
    """Whatever records are missing, both ways to the state lead to the same one."""
    chance = random.Random(seed)
    told = Told(chance, rounds, with_exchanges)
    left = [record for record in told.records() if chance.random() < 0.8]
    fold = Fold(WALL_OFFSET_NS)
    table = SimulatedTable()
    checkpoint = Checkpoint(table, SegmentWriter(SimulatedDisk(2), DeadlyFailpoints(), 1 << 20))
    for record in left:
        fold.apply(record)
        checkpoint.apply(record)
    checkpoint.finish(1)
    loaded = Fold(WALL_OFFSET_NS)
    load_table(table, loaded)
    assert describe(loaded.state()) == describe(fold.state())
    assert exchanges_of(loaded.state()) == exchanges_of(fold.state())
