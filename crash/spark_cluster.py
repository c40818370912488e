"""A standalone Spark cluster on this machine: a master and two workers, each a process with a folder of its own.

The workers get nothing of our environment: what executors import is what the job brings, or what their Python has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import pyspark

from crash.processes import find_descendants, kill_all
from crash.spark_streams import find_port

SPARK_HOME: Final = Path(pyspark.__file__).parent
PASSED_ON: Final = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR")
START_S: Final = 90.0
POLL_S: Final = 0.05
LINES_SHOWN: Final = 12
MASTER: Final = "master"
SETTINGS: Final = (
    "-Dspark.master.rest.enabled=false",  # it would want a port of its own
    "-Dspark.deploy.maxExecutorRetries=-1",  # they are killed more often than a master puts up with
)
REGISTERED: Final = "Successfully registered with master"
READY: Final = "New state: ALIVE"


class ClusterFault(Exception):
    """It did not come up."""


class SparkCluster:
    def __init__(self, folder: Path, workers: int = 2, environment: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._workers = workers
        self._environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._environment |= {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": "2.13",  # else a worker looks for a source tree to find out
        }
        self._environment |= environment or {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"spark://127.0.0.1:{find_port()}"

    def start(self) -> None:
        """Ready for jobs when this returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        port = self.url.rpartition(":")[2]
        self._launch(MASTER, "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        self._wait(MASTER, READY)
        names = [f"worker-{number}" for number in range(1, self._workers + 1)]
        for name in names:
            place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            means = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
            self._launch(name, "worker.Worker", *place, *means, self.url)
        for name in names:
            self._wait(name, REGISTERED)

    def pids(self) -> list[int]:
        """Everything that runs on the workers: executors, and their Python processes."""
        return [
            pid
            for name, process in self._processes.items()
            if name != MASTER
            for pid in find_descendants(process.pid)
        ]

    def end(self) -> None:
        left = self.pids()
        for process in self._processes.values():
            process.kill()
            process.wait()
        kill_all(left)
        self._processes = {}

    def _launch(self, name: str, kind: str, *arguments: str) -> None:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
        command = [str(java), "-XX:TieredStopAtLevel=1", "-Xmx256m", *SETTINGS, "-cp", f"{SPARK_HOME}/jars/*"]
        with self._log_file(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*command, f"org.apache.spark.deploy.{kind}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )

    def _wait(self, name: str, sentence: str) -> None:
        deadline = time.monotonic() + START_S
        process = self._processes[name]
        while sentence not in self.log(name):
            if process.poll() is not None or time.monotonic() > deadline:
                lines = "\n".join(self.log(name).splitlines()[-LINES_SHOWN:])
                self.end()
                raise ClusterFault(f"the {name} of the Spark cluster did not come up:\n{lines}")
            time.sleep(POLL_S)  # another process: there is no event to wait for

    def log(self, name: str) -> str:
        return self._log_file(name).read_text(encoding="utf-8", errors="replace")

    def _log_file(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def pack_connector(connector: Path, file: Path) -> Path:
    """The packages of millstream-spark in one archive, for --py-files."""
    staging = file.with_suffix(".files")
    for package in ("pyspark_millstream", "pyspark_millstream_lake"):
        shutil.copytree(connector / package, staging / package, ignore=shutil.ignore_patterns("__pycache__"))
    made = shutil.make_archive(str(file.with_suffix("")), "zip", staging)
    shutil.rmtree(staging)
    return Path(made)
