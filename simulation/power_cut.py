"""One life of a disk: a broker writes, the power goes, it starts again; and what must hold each time.

- Everything confirmed is there. In `os` mode: everything up to the last sync.
- Nothing is there that was never told, and nothing of an atom without the rest of it.
- The order is kept, and the state is the one those facts make in memory.
- What was handed out in an earlier life and may come again is known to have been, or in doubt; after a clean stop
  nothing else is.
- No start is refused, no damage is reported where there was none, and a file that is damaged is kept as it was found.
"""

from __future__ import annotations

import random

from millstream.storage.disk import DiskFault
from millstream.storage.manifest import Incomplete
from millstream.storage.segments.stream_gaps import find_all_gaps
from millstream.storage.table.checkpoint import read_meta
from simulation.deaths import (
    ANY_MOOD,
    FAILPOINTS,
    QUARANTINE_FAILPOINTS,
    REMOVE_UNUSED,
    WAYS,
    Death,
    choose_death,
    find_spoilable,
    name_unfinished,
    quarantine_name,
    spoil,
)
from simulation.deliveries import Deliveries
from simulation.disk import PowerCut, SimulatedDisk
from simulation.exchange_workload import ExchangeWorkload, model_after
from simulation.failpoints import DeadlyFailpoints
from simulation.node import Node
from simulation.queue_workload import QueueWorkload, find_queue_fault
from simulation.table import SimulatedTable
from simulation.workload import Fact, Workload, describe, describe_exchanges, state_after

ENDINGS = ("failpoint", "failpoint", "moment", "quiet", "start", "sync error", "write error", "full disk")


class Broken(Exception):
    """A promise was not kept."""


class Outcome:
    """What one seed did. `trace` is all that happened, for comparison with a second run of the seed."""

    def __init__(self, seed: int, mode: str) -> None:
        self.seed = seed
        self.mode = mode
        self.endings: list[str] = []
        self.told = 0
        self.confirmed = 0
        self.survived = 0  # facts that were not confirmed and came back all the same
        self.fault = ""
        self.trace: list[str] = []
        self.failpoints: dict[str, int] = {}  # how often each was reached
        self.deaths = 0  # at the one failpoint that was asked for


class PowerCutRun:
    """`planted` is a bug to be found: "hasty" confirms before writing, "lying" is a disk that ignores syncs."""

    def __init__(self, seed: int, planted: str = "", failpoint: str = "") -> None:
        self._chance = random.Random(seed)
        self._planted = planted
        self._failpoint = failpoint
        self._with_sync = bool(failpoint or planted) or self._chance.random() < 0.75
        self._file_size = self._chance.choice((1024, 4096, 16384))
        self._segment_size = self._chance.choice((1500, 100_000))
        self._compression = random.Random(seed)  # switched on and off from life to life
        self._disk = SimulatedDisk(self._chance)
        self._disk.is_lying = planted == "lying"
        self._table = SimulatedTable()
        self._workload = Workload(self._chance)
        self._queue_workload = QueueWorkload(self._chance)
        self._exchange_workload = ExchangeWorkload(random.Random(seed))
        self._deliveries = Deliveries(random.Random(seed))
        self._stops = random.Random(seed)  # whether an end is a clean one
        self._told: list[tuple[Fact, int]] = []  # each with the position it led to
        self._atoms: dict[int, None] = {0: None}  # positions between two atoms
        self._promised = 0  # the position up to which everything must come back
        self._cached = 0  # and up to which it must as long as the power stays on
        self._spoiled: dict[str, bytes] = {}  # files that were damaged on purpose, as they were found
        self.outcome = Outcome(seed, "fsync" if self._with_sync else "os")

    def run(self) -> Outcome:
        lives = self._chance.randrange(1, 5)
        if self._failpoint in WAYS:
            lives += 4  # some of them lead there only
        try:
            for _ in range(lives):
                self._live()
                if self._failpoint in QUARANTINE_FAILPOINTS:
                    self._spoil()
                if self._failpoint == REMOVE_UNUSED:
                    self._name_unfinished()
            self._deliveries.on_start()
            self._recover_and_check(Node(self._disk, self._table, DeadlyFailpoints(), self._file_size))
        except Broken as broken:
            self.outcome.fault = str(broken)
        except Incomplete as refusal:
            self.outcome.fault = f"the start was refused: {refusal}"
        self.outcome.told = len(self._told)
        return self.outcome

    # -------------------------------------------------------------------- a life

    def _live(self) -> None:
        chance = self._chance
        ending = chance.choice(ENDINGS)
        death = Death(chance.choice(FAILPOINTS))
        if self._failpoint:
            ending, death = "failpoint", choose_death(chance, self._failpoint)
        disk = self._disk
        failpoints = death.arm(chance, disk) if ending == "failpoint" else DeadlyFailpoints()
        moods = death.moods if ending == "failpoint" else ANY_MOOD
        node: Node | None = None
        is_kill = chance.random() < 0.2
        if ending in ("moment", "start"):
            disk.cut_power_at = disk.steps + chance.randrange(1, 8 if ending == "start" else 250)
        try:
            self._deliveries.on_start()
            is_hasty = self._planted == "hasty"
            node = Node(
                disk,
                self._table,
                failpoints,
                self._file_size,
                self._with_sync,
                is_hasty,
                self._segment_size,
                self._compression.random() < 0.5,
            )
            self._recover_and_check(node)
            if chance.random() < 0.5:
                node.checkpoint()
            self._work(node, ending)
            if ending in ("quiet", "moment") and self._stops.random() < 0.5:
                ending = self._stop(node)
        except PowerCut as cut:
            self._note(f"power cut: {cut}")
            if ending == "failpoint":
                ending = death.ending()
                self.outcome.deaths += str(cut) == self._failpoint
        self.outcome.endings.append(f"{ending}, process only" if is_kill else ending)
        if node is not None:
            if is_kill and not node.log.fault:
                self._cached = int(node.log.durable)
        for place, count in failpoints.seen.items():
            self.outcome.failpoints[place] = self.outcome.failpoints.get(place, 0) + count
        self.outcome.trace.extend(disk.trace)
        self._disk = disk.kill() if is_kill else disk.crash(chance.choice(moods))
        self._cached = self._cached if is_kill else 0
        self._table = (node.table if node is not None else self._table).crash()

    def _spoil(self) -> None:
        name = find_spoilable(self._disk, read_meta(self._table)[1])
        if name and name not in self._spoiled:
            self._spoiled[name] = spoil(self._disk, name, self._chance)
            self._note(f"spoiled: {name}")

    def _name_unfinished(self) -> None:
        ending = self.outcome.endings[-1]
        if "log.after_create" in ending or "log.after_header" in ending:
            self._note(f"unfinished: {name_unfinished(self._disk)}")

    def _work(self, node: Node, ending: str) -> None:
        chance = self._chance
        rounds = chance.randrange(5, 80)
        fault_at = chance.randrange(rounds)
        for round_number in range(rounds):
            if round_number == fault_at and ending in ("sync error", "write error"):
                node.disk.fail_next(ending.partition(" ")[0])
            elif ending == "full disk" and round_number in (fault_at, fault_at + 10):
                node.disk.fill(chance.randrange(2000) if round_number == fault_at else None)
            for _ in range(chance.randrange(1, 5)):
                workload = self._workload if chance.random() < 0.5 else self._queue_workload
                self._tell(node, workload.next_atom() + self._exchange_workload.next_atom())
            node.log.flush()
            if chance.random() < 0.8:
                node.writer.work()
                if self._with_sync:
                    self._promise(int(node.log.durable))
            if not self._with_sync and chance.random() < 0.15:
                self._sync(node)
            if node.files.sealed and chance.random() < 0.3:
                node.checkpoint()
            self._deliveries.hand_out(self._told, self._queue_workload.model, int(node.log.durable))
        self._check_fence(node)

    def _tell(self, node: Node, atom: list[Fact]) -> None:
        for fact in atom:
            node.teller.tell(fact)
            self._told.append((fact, int(node.log.position)))
            self._deliveries.on_told(fact)
        self._atoms[int(node.log.position)] = None

    def _stop(self, node: Node) -> str:
        self._tell(node, self._deliveries.end(self._queue_workload.model))
        if not node.stop():
            return "a stop that failed"
        self._promise(int(node.log.durable))
        self._deliveries.on_stopped(node.maybe_delivered_below)
        return "clean stop"

    def _sync(self, node: Node) -> None:
        """What `os` mode does now and then. A sync that fails promises nothing and fences the log."""
        written = int(node.log.durable)
        try:
            node.files.sync()
        except DiskFault as fault:
            node.log.on_failed(fault.text)
        if not node.log.fault:
            self._promise(written)

    def _promise(self, position: int) -> None:
        if position < self._promised:
            raise Broken(f"durable went back from {self._promised} to {position}")
        self._promised = position

    def _check_fence(self, node: Node) -> None:
        if not node.log.fault:
            return
        node.log.flush()
        node.writer.work()
        if self._with_sync and int(node.log.durable) != self._promised:
            raise Broken("something became durable after a fault of the disk")

    def _note(self, text: str) -> None:
        self.outcome.trace.append(text)

    # ------------------------------------------------------------------ a start

    def _recover_and_check(self, node: Node) -> None:
        found = node.recovered
        last = int(found.fold.last_sequence)
        self._note(f"found {last} of {len(self._told)}, promised {self._promised}")
        promised = max(self._promised, self._cached)
        if last < promised:
            raise Broken(f"lost: promised up to {promised}, found up to {last}")
        self.outcome.confirmed = self._promised
        for damage in found.damage:
            if damage.name not in self._spoiled:
                raise Broken(f"damage where there was none: {damage.sentence()}")
        self._check_kept(node)
        self._check_prefix(node, last)
        self.outcome.survived += last - self._promised
        self._promised = last

    def _check_kept(self, node: Node) -> None:
        for name, content in self._spoiled.items():
            kept = quarantine_name(name)
            if kept not in node.disk.names("quarantine") or node.disk.content(kept) != content:
                raise Broken(f"{name} was damaged, and is not kept as it was")

    def _check_prefix(self, node: Node, last: int) -> None:
        if last not in self._atoms:
            raise Broken(f"an atom came back in part: {last}")
        self._told = [(fact, position) for fact, position in self._told if position <= last]
        self._atoms = {position: None for position in self._atoms if position <= last}
        kept = [fact for fact, _ in self._told]
        difference = find_difference(describe(state_after(kept)), describe(node.state))
        difference = difference or find_queue_fault(kept, node.state, node.disk)
        model = model_after(kept)
        difference = difference or find_difference(
            describe_exchanges(model.exchanges(), model.bindings()),
            describe_exchanges(node.state.exchanges, node.state.bindings),
        )
        is_damaged = bool(node.recovered.damage)
        difference = difference or self._deliveries.find_fault(node.state, last, is_damaged)
        if difference:
            raise Broken(difference)
        for gap in find_all_gaps(node.disk, node.table):
            raise Broken(f"verify would miss what is there: {gap.sentence()}")
        if node.recovered.fold.orphans:
            raise Broken(f"{node.recovered.fold.orphans} facts name what is not there")
        self._workload.remember(kept)
        self._exchange_workload.remember(kept)
        self._queue_workload.remember(kept, node.state.last_queue)


def find_difference(wanted: dict[object, object], found: dict[object, object]) -> str:
    for key in wanted:
        if key not in found:
            return f"lost: {key}"
        if wanted[key] != found[key]:
            return f"wrong: {key}: {found[key]} instead of {wanted[key]}"
    for key in found:
        if key not in wanted:
            return f"made up: {key}"
    return ""
