"""`python -m crash.damage_run --cases 500`: harm every file of a data directory in every way, and see that it is found and named.

Exit 1 when a promise was broken (crash/damage_case.py lists them); the case, the seed and the folder are named then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from crash.damage_case import OWN, SETTINGS, DamagedFolder, Verdict
from crash.damage_harm import Case, Worlds, kind_of, list_cases
from crash.damage_world import STREAM, WORK, Content, control_of, make_payload, populate, read_back
from crash.forked import ForkedBroker
from millstream.build_kind import build_name
from millstream.maintenance.backup import make_backup, restore_backup
from millstream.runtime.control.client import ControlClient
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.data_folder import read_state
from millstream.runtime.disk.files import RealDisk

PROGRESS_EVERY: Final = 25
LATE: Final = 60  # records that only the log has


class Campaign:
    def __init__(self, folder: Path, seed: int, fills_log: bool = True) -> None:
        """`fills_log`: leave several files that no checkpoint could fold, which takes a stop of ten seconds."""
        self._folder = folder
        self._fills_log = fills_log
        self._seed = seed
        self._chance = random.Random(seed)
        self._settings = SETTINGS + (("storage.segment_compression=zstd",) if seed % 2 else ())
        self.worlds = Worlds(folder / "now", folder / "older", folder / "other")
        self.baseline: Content = {}
        self.last_queue = 0

    def prepare(self) -> None:
        """The directories, what clients read from the one to be harmed, and that a restored backup gives the same."""
        self._make("other", "other", is_last=True)
        self._make(OWN, "now", is_last=True, older="older")
        now = self.worlds.now
        self.last_queue = read_state(RealDisk(now), now).queues.last_number
        reader = ForkedBroker(self._folder / "baseline", self._settings)
        shutil.copytree(now, reader.data_dir)
        reader.start()
        self.baseline = read_back(reader, None)
        assert reader.stop() == 0
        self._restore()

    def _make(self, word: str, name: str, is_last: bool, older: str = "") -> None:
        home = self._folder / f"home-{name}"
        home.mkdir(parents=True)
        broker = ForkedBroker(home, self._settings)
        for phase in range(2):
            broker.start()
            populate(broker, word, phase)
            with control_of(broker.data_dir) as control:
                control.call("stream.seal", {"name": STREAM})
            if phase == 1 and word == OWN and self._fills_log:
                self._fill_log(broker, word)
            else:
                assert broker.stop() == 0
            if phase == 0 and older:
                copy_data(broker.data_dir, self._folder / older)
        copy_data(broker.data_dir, self._folder / name)

    def _fill_log(self, broker: ForkedBroker, word: str) -> None:
        """Until it has several files which no checkpoint could fold."""
        with hold_checkpoints(broker.data_dir), control_of(broker.data_dir) as control:
            for name in (STREAM, WORK):
                first = next_number(control, name)
                numbers = range(first, first + LATE)
                messages = [{"payload": make_payload(word, name, number).decode()} for number in numbers]
                control.call("queue.publish", {"name": name, "messages": messages[: LATE // 2]})
                control.call("queue.publish", {"name": name, "messages": messages[LATE // 2 :]})
            assert broker.stop() == 0

    def _restore(self) -> None:
        archive = self._folder / "backup.tar"
        make_backup(self.worlds.now, archive, ignore)
        reader = ForkedBroker(self._folder / "restored", self._settings)
        restore_backup(archive, reader.data_dir, ignore)
        reader.start()
        found = read_back(reader, self.baseline)
        assert reader.stop() == 0
        assert found == self.baseline, "a restored backup differs from what was backed up"

    def choose(self, count: int) -> list[Case]:
        """Spread over all files and harms; more than there are come again, with other chances."""
        cases = list_cases(self.worlds)
        self._chance.shuffle(cases)
        chosen: list[Case] = []
        while len(chosen) < count:
            chosen += cases[: count - len(chosen)]
        return chosen

    def run(self, cases: list[Case], jobs: int) -> list[Verdict]:
        if jobs <= 1:
            return self._run_part(cases, 0, 1)
        files = [self._folder / f"verdicts-{job}.json" for job in range(jobs)]
        pids: list[int] = []
        for job in range(jobs):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                try:
                    verdicts = self._run_part(cases[job::jobs], job, jobs)
                    files[job].write_text(
                        json.dumps([vars(verdict) | {"case": vars(verdict.case)} for verdict in verdicts])
                    )
                    os._exit(0)
                finally:
                    sys.stdout.flush()
                    os._exit(1)
            pids.append(pid)
        ends = [os.waitpid(pid, 0)[1] for pid in pids]
        assert not any(ends), f"a part of the run died: {ends}"
        return [to_verdict(fields) for file in files for fields in json.loads(file.read_text())]

    def _run_part(self, cases: list[Case], job: int, jobs: int) -> list[Verdict]:
        folder = DamagedFolder(self.worlds, self.baseline, self.last_queue, self._folder / f"case-{job}")
        verdicts: list[Verdict] = []
        began = time.monotonic()
        for at, case in enumerate(cases):
            verdict = folder.run(case, random.Random(f"{self._seed} {job} {at}"))
            verdicts.append(verdict)
            for broken in verdict.broken:
                print(f"BROKEN {case.title()}: {broken}", flush=True)
            if verdict.broken:
                keep = self._folder / f"broken-{job}-{at}"
                shutil.copytree(
                    self._folder / f"case-{job}",
                    keep,
                    dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("*.sock"),
                )
            if (at + 1) % PROGRESS_EVERY == 0 and job == 0:
                spent = time.monotonic() - began
                print(
                    f"{(at + 1) * jobs} of {len(cases) * jobs} cases, {spent / (at + 1):.2f} s each",
                    flush=True,
                )
        return verdicts


def to_verdict(fields: dict[str, object]) -> Verdict:
    case = fields.pop("case")
    assert isinstance(case, dict)
    verdict = Verdict(Case(**case))
    for name, value in fields.items():
        setattr(verdict, name, value)
    return verdict


def next_number(control: ControlClient, name: str) -> int:
    shown = control.call("queue.show", {"name": name})
    assert isinstance(shown, dict)
    return int(shown["next_offset"])


def copy_data(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


def ignore(step: str, done: int, total: int) -> None:
    pass


def make_report(seed: int, verdicts: list[Verdict], baseline: int, spent_s: float) -> dict[str, object]:
    kinds: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        row = kinds.setdefault(
            kind_of(verdict.case.name),
            dict.fromkeys(
                ("cases", "unchanged", "refused", "named", "missed", "repaired", "kept", "lost", "broken"), 0
            ),
        )
        row["cases"] += 1
        row["unchanged"] += not verdict.is_changed
        row["refused"] += verdict.is_refused
        row["named"] += verdict.is_named
        row["missed"] += verdict.missed
        row["repaired"] += verdict.was_repaired
        row["kept"] += verdict.kept
        row["lost"] += verdict.lost
        row["broken"] += bool(verdict.broken)
    return {
        "build": build_name(),
        "seed": seed,
        "cases": len(verdicts),
        "seconds": round(spent_s, 1),
        "items_in_baseline": baseline,
        "kinds": kinds,
        "broken": [f"{verdict.case.title()}: {text}" for verdict in verdicts for text in verdict.broken],
    }


def print_table(report: dict[str, object]) -> None:
    kinds = report["kinds"]
    assert isinstance(kinds, dict)
    names = list(next(iter(kinds.values())))
    print(f"{'file':24} " + " ".join(f"{name:>9}" for name in names))
    for kind, row in sorted(kinds.items()):
        print(f"{kind:24} " + " ".join(f"{row[name]:9,}" for name in names))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash.damage_run", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of what is left to chance"
    )
    parser.add_argument("--jobs", type=int, default=4, help="cases at a time")
    parser.add_argument("--only", default="", help="cases whose file or harm holds this word")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="millstream-damage-"))
    began = time.monotonic()
    campaign = Campaign(folder, options.seed)
    campaign.prepare()
    print(
        f"{len(campaign.worlds.names())} files, {len(campaign.baseline)} items in {time.monotonic() - began:.1f} s",
        flush=True,
    )
    cases = campaign.choose(options.cases)
    cases = [case for case in cases if options.only in case.title()]
    verdicts = campaign.run(cases, options.jobs)
    report = make_report(options.seed, verdicts, len(campaign.baseline), time.monotonic() - began)
    print_table(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if report["broken"]:
        print(
            f"{sum(bool(verdict.broken) for verdict in verdicts)} of {len(verdicts)} cases broken; seed {options.seed}; folders in {folder}"
        )
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"all {len(verdicts)} cases were found and named (seed {options.seed}, {build_name()} build)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
