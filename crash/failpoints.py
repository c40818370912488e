"""`python -m crash.failpoints --runs 20`: the broker dies at every place that has a name, under load, so many times each.

The names are read from the source. Some places belong to the broker, some to the process that makes its checkpoints; when
that one dies the broker goes on, and is killed a little later. Exit 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import millstream
from crash.broker import BrokerFault
from crash.campaign import Campaign
from crash.journal import PATHS
from millstream.runtime.failpoints import VARIABLE

PATTERN: Final = re.compile(r"\bhit\(\s*\"([a-z0-9_.]+)\"")
COUNT_MAX: Final = 6  # the place is passed up to so often before it kills
PATIENCE_S: Final = 4.0
LINGER_S: Final = 0.1  # a broker whose checkpoint died lives so much longer
SETTINGS: Final = (
    "storage.log_file_size=64KiB",
    "storage.segment_size=64KiB",
    "log.level=error",
    "log.format=json",
)
CHILD_DIED: Final = "checkpoint_failed"


def find_names() -> list[str]:
    """Every failpoint in the source."""
    folder = Path(millstream.__file__).parent
    names: dict[str, None] = {}
    for file in sorted(folder.rglob("*.py")):
        for name in PATTERN.findall(file.read_text(encoding="utf-8")):
            names[name] = None
    return sorted(names)


class FailpointRun(Campaign):
    """After a first life without trouble, each life ends at the next of `names`, if it is ever reached."""

    def __init__(self, names: list[str], seed: int, folder: Path | None = None) -> None:
        super().__init__(PATHS, len(names) + 1, seed, settings=SETTINGS, folder=folder)
        self._names = names
        self._counts = random.Random(seed)
        self._limits: dict[str, int] = {}
        self.reached: dict[str, int] = {}

    def run_round(self) -> None:
        if self.broker.starts == 0:
            super().run_round()
            return
        name = self._names[self.broker.starts - 1]
        count = self._counts.randint(1, self._limits.get(name, COUNT_MAX))
        try:
            self.come_up({VARIABLE: f"{name}:{count}"})
            self.driver.run(self._is_reached, PATIENCE_S)
            if self.broker.poll() is None:
                self.driver.run(lambda: False, LINGER_S)
        except BrokerFault:
            if self.broker.poll() != -signal.SIGKILL:
                raise  # only one that died there may fail to start
        if self._is_reached():
            self.reached[name] = self.reached.get(name, 0) + 1
        else:
            self._limits[name] = max(1, count - 1)  # a short process does not pass there so often
        self.go_down()

    def _is_reached(self) -> bool:
        return self.broker.poll() is not None or CHILD_DIED in self.broker.log()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash.failpoints", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="for each name")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--only", default="", help="names that begin so")
    options = parser.parse_args(arguments)
    names = [name for name in find_names() if name.startswith(options.only)]
    print(
        f"{'failpoint':36} {'runs':>5} {'reached':>8} {'confirmed':>10} {'lost':>6} {'reordered':>10} {'faults':>7}"
    )
    broken: list[str] = []
    reached = 0
    for number, name in enumerate(names):
        folder = Path(tempfile.mkdtemp(prefix=f"crash-{name}-"))
        run = FailpointRun([name] * options.runs, options.seed + number, folder)
        result = run.run()
        reached += run.reached.get(name, 0)
        verdicts = result.verdicts.values()
        confirmed, lost, reordered = (
            sum(getattr(verdict, field) for verdict in verdicts)
            for field in ("confirmed", "lost", "reordered")
        )
        print(
            f"{name:36} {options.runs:5} {run.reached.get(name, 0):8} {confirmed:10,} {lost:6} {reordered:10} "
            f"{len(result.faults):7}",
            flush=True,
        )
        broken += [
            f"{name} (seed {result.seed}, kept in {result.folder}): {fault}" for fault in result.faults
        ]
    print(f"{len(names)} failpoints, reached {reached} times, {len(broken)} promises broken")
    for line in broken:
        print(f"BROKEN {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
