"""One life of the streaming job: a process with its Java machine and its workers, watched from outside, killed as a whole or
in part.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from crash.broker import PROJECT
from crash.processes import command_of, find_descendants, kill_all
from crash.spark_job import STARTED, Plan

CONNECTOR: Final = PROJECT / "spark" / "src"
LINES_SHOWN: Final = 12
QUERIES: Final = ("lake", "queue")


def python_environment() -> dict[str, str]:
    """So that every Python of Spark finds the connector, and what the harness is made of."""
    paths = [str(CONNECTOR), *os.environ.get("PYTHONPATH", "").split(os.pathsep), str(PROJECT)]
    return {
        "PYTHONPATH": os.pathsep.join(path for path in dict.fromkeys(paths) if path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


class Job:
    def __init__(self, plan: Plan, folder: Path, life: int) -> None:
        self._log_file = folder / f"job-{life:04d}.log"
        plan_file = folder / f"plan-{life:04d}.json"
        plan.write(plan_file)
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crash.spark_job", str(plan_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | python_environment(),
                cwd=folder,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def is_over(self) -> bool:
        return self.poll() is not None

    def is_started(self) -> bool:
        return STARTED in self._log_file.read_text(encoding="utf-8", errors="replace")

    def kill(self, with_workers: bool = True) -> None:
        """Python, Java, executors; without the Python workers those are left alone for as long as they live."""
        family = find_descendants(self._process.pid)
        if not with_workers:
            family = [pid for pid in family if "java" in command_of(pid).split(" ", 1)[0]]
        if self.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL) if with_workers else self._process.kill()
        kill_all(family)
        self._process.wait()

    def last_lines(self) -> str:
        lines = self._log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LINES_SHOWN:])


class Checkpoints:
    """How far the queries came, by the files Spark keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def done(self) -> int:
        """Batches that are finished, of all queries together."""
        return sum(self.last_done(query) + 1 for query in QUERIES)

    def last_done(self, query: str) -> int:
        """-1 before the first."""
        return _highest(self.folder / query / "commits")

    def records_done(self, query: str) -> int:
        """Records of the source, up to the end of the last finished batch, where it was read from its first record on."""
        batch = self.last_done(query)
        if batch < 0:
            return 0
        text = (self.folder / query / "offsets" / str(batch)).read_text(encoding="utf-8")
        place = json.loads(text.splitlines()[-1])
        return sum(end for partitions in place.values() for end in partitions.values())

    def is_in_batch(self) -> bool:
        """Whether a query has planned a batch and not finished it."""
        return any(_highest(self.folder / query / "offsets") > self.last_done(query) for query in QUERIES)


def _highest(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)
