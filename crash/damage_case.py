"""One file is harmed: what `storage verify` says, what a start says, what clients read, what a repair brings back.

What must hold, whatever was done to whichever file:
- no client gets a payload that was not published to that place, before a repair or after it;
- whatever clients miss or see twice was named, by the start and by `verify`;
- the two find damage in the same cases;
- a start that is refused says which command is next, and changes nothing;
- after a repair the broker starts, `verify` finds nothing, and no number of a queue is given again;
- what the harmed files do not hold is there, before a repair and after it (crash/damage_oracle.py);
- no process ends by a signal or with a traceback.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Final

from crash.damage_harm import Case, Worlds, do_harm
from crash.damage_oracle import GROUP, Holdings
from crash.damage_world import SETTINGS, Content, Key, make_payload, read_back
from crash.forked import ForkedBroker, ForkedProcess, run_child
from millstream.runtime.disk.data_folder import read_state
from millstream.runtime.disk.files import RealDisk

NAMING: Final = ("storage_damaged", "storage_cut")
CHECKED_S: Final = 20.0
COMMAND_S: Final = 60.0
OWN: Final = "own"
LOCKS: Final = ("lock", "checkpoint.lock", "backup.lock", "state/lock.mdb")
WITHOUT_PAYLOAD: Final = ("queue", "group", "exchange", "binding")


class Verdict:
    """What came of one case. `broken` are the promises that were not kept."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.broken: list[str] = []
        self.is_changed = True
        self.is_refused = False
        self.is_named = False
        self.missed = 0  # by clients of the broker that started on it
        self.kept = 0  # after a repair
        self.lost = 0
        self.was_repaired = False


class DamagedFolder:
    def __init__(self, worlds: Worlds, baseline: Content, last_queue: int, folder: Path) -> None:
        self._worlds = worlds
        self._baseline = baseline
        self._holdings = Holdings(worlds.now, baseline)
        self._spared: list[Key] = []
        self._last_queue = last_queue
        self._folder = folder
        self._broker = ForkedBroker(folder, SETTINGS)

    def run(self, case: Case, chance: random.Random) -> Verdict:
        verdict = Verdict(case)
        data = self._broker.data_dir
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._broker = ForkedBroker(self._folder, SETTINGS)
        shutil.copytree(self._worlds.now, data)
        verdict.is_changed = do_harm(self._worlds, data, case, chance)
        harmed = find_changed(self._worlds.now, data)
        self._spared = self._holdings.find_spared(harmed, data)
        try:
            rows = self._verify(verdict)
            found, text = self._start(verdict)
            self._compare(verdict, rows, found, text)
            if any(row["is_damaged"] for row in rows):
                self._repair(verdict, rows)
                destroyed = self._holdings.find_destroyed(harmed, data)
                if destroyed:
                    verdict.broken.append(f"neither there nor in quarantine: {destroyed}")
        except AssertionError as error:
            verdict.broken.append(f"the harness got no answer: {error}")
        finally:
            self._broker.close()
        return verdict

    # ------------------------------------------------------------------- each step

    def _command(self, verdict: Verdict, *arguments: str) -> tuple[int, str, str]:
        out, errors = self._folder / "out", self._folder / "errors"
        pid = os.fork()
        if pid == 0:
            run_child(out, [*arguments, "--set", f"data_dir={self._broker.data_dir}"], {}, errors)
        code = ForkedProcess(pid).wait(COMMAND_S)
        text = errors.read_text(errors="replace")
        self._check_ending(verdict, " ".join(arguments), code, text)
        return code, out.read_text(errors="replace"), text

    def _check_ending(self, verdict: Verdict, what: str, code: int, text: str) -> None:
        if code < 0:
            verdict.broken.append(f"{what} ended by signal {-code}")
        if "Traceback" in text:
            verdict.broken.append(f"{what}: a traceback: {text.strip().splitlines()[-1]}")

    def _verify(self, verdict: Verdict) -> list[dict[str, object]]:
        code, out, errors = self._command(verdict, "storage", "verify", "-o", "json")
        try:
            rows = json.loads(out)
        except ValueError:
            rows = []
            if code != 0:  # it says in one sentence why it cannot
                rows = [{"file": errors, "state": errors, "is_damaged": False, "lost": []}]
        is_damaged = any(row["is_damaged"] for row in rows)
        if is_damaged != (code == 1) and code >= 0 and rows:
            verdict.broken.append(f"verify ended with {code}: {errors.strip()}")
        return list(rows)

    def _start(self, verdict: Verdict) -> tuple[Content | None, str]:
        """(what clients read, what was said); None: it does not start."""
        before = digest(self._broker.data_dir)
        self._broker.begin()
        if not self._broker.wait_ready():
            text = self._broker.log()
            self._check_ending(verdict, "start", self._broker.poll() or 0, text)
            verdict.is_refused = True
            if "millstream " not in text.rpartition("next:")[2]:
                verdict.broken.append(f"a refused start names no command: {text.strip()}")
            if digest(self._broker.data_dir) != before:
                verdict.broken.append("a refused start changed files")
            return None, text
        found = read_back(self._broker, self._baseline)
        self._wait_checked()
        code = self._broker.stop()
        text = self._broker.log()
        self._check_ending(verdict, "broker", code, text)
        if code != 0:
            verdict.broken.append(f"the broker ended with {code}: {text.strip().splitlines()[-1]}")
        return found, text

    def _wait_checked(self) -> None:
        """Until all segments have been read in the background."""
        deadline = time.monotonic() + CHECKED_S
        if not any((self._broker.data_dir / "queues").glob("*/*")):
            return
        while "storage_checked" not in self._broker.log() and "storage_not_checked" not in self._broker.log():
            assert time.monotonic() < deadline, "the segments were not checked"
            time.sleep(0.02)  # another process: there is no event to wait for

    def _compare(
        self, verdict: Verdict, rows: list[dict[str, object]], found: Content | None, text: str
    ) -> None:
        named = [row for row in rows if row["is_damaged"] or "never confirmed" in str(row["state"])]
        notices = [row for row in rows if row not in named and not row.get("kind")]
        lines = [line for line in text.splitlines() if any(f'"{word}"' in line for word in NAMING)]
        is_named = verdict.is_refused or bool(lines)
        verdict.is_named = is_named or bool(named)
        if is_named != bool(named or notices):
            who = "the start" if is_named else "verify"
            said = (lines or text.splitlines() or [""])[-1] if is_named else [row["file"] for row in named]
            verdict.broken.append(f"only {who} names damage: {said}")
        elif is_named and not any(is_told(row, text) for row in named + notices):
            verdict.broken.append(
                f"verify names {[row['file'] for row in named + notices]}, the start: {text[-400:]}"
            )
        if found is not None:
            self._find_wrong(verdict, found, "")
            self._find_taken(verdict, found, "")
            different = self._count_different(found)
            verdict.missed = different
            if different and not (is_named and (named or notices)):
                verdict.broken.append(f"{different} differences nobody named: {self._example(found)}")

    def _repair(self, verdict: Verdict, before: list[dict[str, object]]) -> None:
        """A broker that started in spite of the damage has told of it, and may have left nothing to repair."""
        code, out, errors = self._command(verdict, "storage", "repair", "--yes", "-o", "json")
        if code != 0:
            verdict.broken.append(f"the repair ended with {code}: {errors.strip()[-300:]}")
            return
        verdict.was_repaired = True
        lost = json.loads(out)["lost"] + [row["lost"] for row in before if row["lost"]]
        rows = self._verify(verdict)
        if any(row["is_damaged"] for row in rows):
            verdict.broken.append(
                f"damaged after a repair: {[row['file'] for row in rows if row['is_damaged']]}"
            )
        found, text = self._start(verdict)
        if found is None:
            verdict.broken.append(f"no start after a repair: {text.strip()[-300:]}")
            return
        self._find_wrong(verdict, found, "after a repair ")
        self._find_taken(verdict, found, "after a repair ")
        verdict.lost = self._count_different(found)
        verdict.kept = sum(key in found for key in self._baseline)
        if verdict.lost and not lost:
            verdict.broken.append(
                f"{verdict.lost} differences after a repair that names no loss: {self._example(found)}"
            )
        data = self._broker.data_dir
        if read_state(RealDisk(data), data).queues.last_number < self._last_queue:
            verdict.broken.append("after a repair numbers of queues may be given again")

    # ------------------------------------------------------------------- comparing

    def _find_wrong(self, verdict: Verdict, found: Content, when: str) -> None:
        for key, payload in found.items():
            if len(key) < 2 or key[0] in WITHOUT_PAYLOAD or key[:1] + key[2:] == ("session",):
                continue
            known = self._baseline.get(key)
            if payload == known:
                continue
            is_stale = key[0] == "retained"  # an update was lost: that is a difference, which must be named
            if not is_own(payload) or (known is not None and not is_stale):
                verdict.broken.append(f"{when}a wrong payload at {key}: {payload[:60]!r}")
                return

    def _find_taken(self, verdict: Verdict, found: Content, when: str) -> None:
        taken = [
            key
            for key in self._spared
            if key not in found or (key[0] != GROUP and found[key] != self._baseline[key])
        ]
        if taken:
            verdict.broken.append(
                f"{when}{len(taken)} items are gone or changed that the harmed file does not hold: {taken[:3]}"
            )

    def _count_different(self, found: Content) -> int:
        missing = sum(found.get(key) != value for key, value in self._baseline.items())
        return missing + sum(key not in self._baseline for key in found)

    def _example(self, found: Content) -> str:
        different = [key for key, value in self._baseline.items() if found.get(key) != value]
        different += [key for key in found if key not in self._baseline]
        return str(different[:3])


def is_own(payload: bytes) -> bool:
    word, _, rest = payload.partition(b" ")
    name, _, rest = rest.partition(b" ")
    number = rest.partition(b" ")[0]
    return (
        word == OWN.encode()
        and number.isdigit()
        and payload == make_payload(OWN, name.decode(errors="replace"), int(number))
    )


def is_told(row: dict[str, object], text: str) -> bool:
    """Whether the start speaks of the file, or of one in the folder, that `verify` names."""
    return str(row["file"]) in text or str(row["file"]).rpartition(".")[0] + "." in text


def find_changed(whole: Path, harmed: Path) -> list[str]:
    """Names of the files that are not what they were."""
    before, after = digest(whole), digest(harmed)
    return [name for name, content in before.items() if after.get(name) != content]


def digest(folder: Path) -> dict[str, str]:
    """Of all that a start must leave alone where it is refused."""
    found: dict[str, str] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in LOCKS:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
