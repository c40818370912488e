"""`python -m crash.failpoints --runs 20`: the broker dies at every place that has a name, under load, so many times each.

The names are read from the source. Some places belong to the broker, some to the process that makes its checkpoints; when
that one dies the broker goes on and starts another, which dies there again, and is killed a little later. Some places can
only be reached after another death, or after harm to the files that takes nothing away: that comes first then.

Lives follow each other on the same data, so that what one leaves behind is there for the next; after `--block` lives
at each name everything is fetched and judged. Exit 1 when a promise was broken or a place was not reached.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import millstream
from crash.broker import Broker, BrokerFault
from crash.campaign import STALL_S, Campaign, Result
from crash.harm import name_unfinished, spoil_log, tear_last_batch
from crash.journal import PATHS
from millstream.build_kind import build_name
from millstream.runtime.disk.failpoints import VARIABLE

PATTERN: Final = re.compile(r"\bhit\(\s*\"([a-z0-9_.]+)\"")
PARTS: Final = ("log", "checkpoint", "segment", "recover", "quarantine")  # what this load gets to
PATIENCE_S: Final = 3.0
LINGER_S: Final = 0.05  # a broker whose checkpoint died lives so much longer
CHILD_DEATHS: Final = 4  # of the process that makes checkpoints, in one life of its broker
TRIES: Final = 3  # to get to a place, or to where it can be reached from
IDLE_BLOCKS_MAX: Final = 2  # that may bring nothing new before it is given up
SETTINGS: Final = (
    "storage.log_file_size=64KiB",
    "storage.segment_size=64KiB",
    "log.level=debug",
    "log.format=json",
    "log.repeat_burst=1000000",
)
CHILD_DIED: Final = '"checkpoint_failed"'
KILLED: Final = '"it was killed"'  # any other reason was not asked for
COUNTS: Final = {  # a place is passed up to so often before it kills; any other once
    "log.before_write": 60,
    "log.after_write": 60,
    "log.after_sync": 60,
    "log.before_create": 3,
    "log.after_create": 3,
    "log.after_header": 3,
    "log.after_header_sync": 3,
    "log.after_folder_sync": 3,
    "log.after_register": 3,
    "checkpoint.before_commit": 2,
    "checkpoint.after_commit": 2,
    "checkpoint.after_drop": 2,
    "checkpoint.after_remove": 2,
    "segment.before_write": 4,
    "segment.after_write": 4,
    "segment.before_sync": 4,
    "segment.after_sync": 4,
    "segment.before_index": 4,
    "segment.after_index": 4,
    "segment.before_remove": 2,
    "segment.after_remove_index": 2,
    "segment.after_remove": 2,
    "recover.after_rewrite": 2,
    "recover.after_sync": 2,
}

Harm = Callable[[Path, random.Random], bool]


def leave_alone(data_dir: Path, chance: random.Random) -> bool:
    return True


# where a place can be reached from: a death before it, and what is done to the files then
WAYS: Final[dict[str, tuple[str, Harm]]] = {
    "recover.after_remove_folded": ("checkpoint.after_commit", leave_alone),
    "recover.after_remove_unused": ("log.after_create", name_unfinished),
    "recover.before_cut": ("log.after_write", tear_last_batch),
    "recover.after_cut": ("log.after_write", tear_last_batch),
    "quarantine.before_rename": ("segment.before_sync", spoil_log),
    "quarantine.after_rename": ("segment.before_sync", spoil_log),
    "segment.before_cut": ("segment.after_finish", leave_alone),
    "segment.after_cut": ("segment.after_finish", leave_alone),
    "segment.after_cut_sync": ("segment.after_finish", leave_alone),
    "segment.before_index_rewrite": ("segment.after_finish", leave_alone),
    "segment.after_index_rewrite": ("segment.after_finish", leave_alone),
}


def find_names() -> list[str]:
    """Every failpoint in the source."""
    folder = Path(millstream.__file__).parent
    names: dict[str, None] = {}
    for file in sorted(folder.rglob("*.py")):
        for name in PATTERN.findall(file.read_text(encoding="utf-8")):
            names[name] = None
    return sorted(names)


class Tally:
    """What happened at each place, over all blocks."""

    def __init__(self, names: list[str], runs: int) -> None:
        self.names = names
        self.runs = runs
        self.lives: dict[str, int] = dict.fromkeys(names, 0)
        self.deaths: dict[str, int] = dict.fromkeys(names, 0)
        self.owners: dict[str, str] = {}  # which process passes there
        self.limits: dict[str, int] = {}

    def missing(self) -> list[str]:
        return [name for name in self.names if self.deaths.get(name, 0) < self.runs]

    def note(self, name: str, deaths: int, owner: str) -> None:
        self.lives[name] = self.lives.get(name, 0) + 1
        self.deaths[name] = self.deaths.get(name, 0) + deaths
        if deaths:
            self.owners[name] = owner

    def limit(self, name: str) -> int:
        return self.limits.get(name, COUNTS.get(name, 1))


class FailpointRun(Campaign):
    """After a first life without trouble, each life ends at the next of `names`, if it can be reached."""

    def __init__(
        self,
        names: list[str],
        seed: int,
        tally: Tally | None = None,
        folder: Path | None = None,
        kind: type[Broker] = Broker,
        module: str = "millstream",
        stall_s: float = STALL_S,
    ) -> None:
        super().__init__(PATHS, len(names) + 1, seed, module, SETTINGS, folder, stall_s, kind)
        self._waiting = list(reversed(names))
        self._counts = random.Random(seed)
        self.tally = tally if tally is not None else Tally(names, 1)
        self.story: list[str] = []  # every life: how often its place was to be passed, and whether it was

    def run_round(self) -> None:
        if self.broker.starts == 0:
            super().run_round()
            return
        name = self._waiting.pop()
        for _ in range(TRIES):
            if self._prepare(name) and self._live(name):
                return

    def _prepare(self, name: str) -> bool:
        if name not in WAYS:
            return True
        place, harm = WAYS[name]
        if not any(self._live(place) for _ in range(TRIES)):
            return False
        is_harmed = harm(self.broker.data_dir, self._counts)
        self.story.append(f"{harm.__name__}: {is_harmed}")
        return is_harmed

    def _live(self, name: str) -> bool:
        """A life that is to end there; whether it did."""
        count = self._counts.randint(1, self.tally.limit(name))
        try:
            self.come_up({VARIABLE: f"{name}:{count}"})
            self.driver.run(self._is_done, PATIENCE_S)
            if self.broker.poll() is None:
                self.driver.run(self._is_dead, LINGER_S)
        except BrokerFault:
            if self.broker.poll() != -signal.SIGKILL:
                raise  # only one that died there may fail to start
        if self.broker.poll() not in (None, -signal.SIGKILL):
            raise BrokerFault(f"the broker ended by itself:\n{self.broker.last_lines()}")
        owner = "broker" if self._is_dead() else "checkpoint"
        deaths = 1 if self._is_dead() else self._child_deaths()
        if not deaths:
            self.tally.limits[name] = max(1, count - 1)  # it is not passed so often in a life
        self.tally.note(name, deaths, owner)
        self.story.append(f"{name}:{count} {deaths}")
        self.go_down()
        return deaths > 0

    def _is_dead(self) -> bool:
        return self.broker.poll() is not None

    def _is_done(self) -> bool:
        return self._is_dead() or self._child_deaths() >= CHILD_DEATHS

    def _child_deaths(self) -> int:
        lines = [line for line in self.broker.log().splitlines() if CHILD_DIED in line]
        for line in lines:
            if KILLED not in line:
                raise BrokerFault(f"a checkpoint failed by itself: {line}")
        return len(lines)


class Totals:
    def __init__(self) -> None:
        self.blocks = 0
        self.kills = 0
        self.confirmed = 0
        self.lost = 0
        self.reordered = 0
        self.broken: list[str] = []

    def add(self, result: Result) -> None:
        self.blocks += 1
        self.kills += result.kills
        for verdict in result.verdicts.values():
            self.confirmed += verdict.confirmed
            self.lost += verdict.lost
            self.reordered += verdict.reordered
        self.broken += [f"seed {result.seed}, kept in {result.folder}: {fault}" for fault in result.faults]


def run_blocks(tally: Tally, seed: int, lives: int, kind: type[Broker]) -> Totals:
    """Until every place was reached often enough, or cannot be."""
    totals = Totals()
    began = time.monotonic()
    idle = 0
    while tally.missing() and idle < IDLE_BLOCKS_MAX:
        number = totals.blocks
        names = [name for name in tally.missing() for _ in range(lives)]
        random.Random(seed + number).shuffle(names)
        folder = Path(tempfile.mkdtemp(prefix=f"crash-block-{number}-"))
        before = sum(tally.deaths[name] for name in names)
        run = FailpointRun(names, seed + number, tally, folder, kind)
        result = run.run()
        totals.add(result)
        idle = 0 if sum(tally.deaths[name] for name in names) > before else idle + 1
        if result.faults:
            (folder / "story.txt").write_text("\n".join(run.story) + "\n", encoding="utf-8")
        print(
            f"block {number + 1}: {result.kills} lives, {sum(tally.deaths.values())} deaths so far, "
            f"{len(tally.missing())} places to go, {totals.confirmed:,} confirmed, {totals.lost} lost, "
            f"{totals.reordered} reordered, {len(result.faults)} faults, {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return totals


def make_table(tally: Tally) -> list[str]:
    lines = [f"{'failpoint':32} {'dies there':11} {'lives':>6} {'deaths':>7}"]
    for name in sorted(tally.deaths):
        deaths = tally.deaths[name]
        text = "" if deaths >= tally.runs or name not in tally.names else "  not reached often enough"
        lines.append(f"{name:32} {tally.owners.get(name, '-'):11} {tally.lives[name]:6} {deaths:7}{text}")
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash.failpoints", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="deaths at each name")
    parser.add_argument("--block", type=int, default=2, help="lives at each name before all is judged")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--only", default="", help="names that begin so")
    parser.add_argument(
        "--exec", action="store_true", help="start every broker from its file; slower than a fork"
    )
    options = parser.parse_args(arguments)
    found = [name for name in find_names() if name.startswith(options.only)]
    names = [name for name in found if name.partition(".")[0] in PARTS]
    kind = Broker
    if not options.exec:
        from crash.forked import ForkedBroker

        kind = ForkedBroker
    tally = Tally(names, options.runs)
    totals = run_blocks(tally, options.seed, options.block, kind)
    for line in make_table(tally):
        print(line)
    others = [name for name in found if name not in names]
    if others:
        print(f"left to their own tests: {', '.join(others)}")
    print(
        f"{len(names)} failpoints, {sum(tally.deaths.values())} deaths there in {totals.kills} lives of a broker, "
        f"{totals.confirmed:,} messages confirmed, {totals.lost} lost, {totals.reordered} reordered, "
        f"{len(totals.broken)} promises broken, {len(tally.missing())} places not reached often enough "
        f"(seed {options.seed}, {build_name()} build)"
    )
    for line in totals.broken:
        print(f"BROKEN {line}")
    return 1 if totals.broken or tally.missing() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
