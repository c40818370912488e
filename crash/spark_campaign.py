"""A campaign with Spark: streams are fed and copied without rest, something is killed, again and again; then the copies are
held against the source, offset by offset.

Lives of the job differ: in the limit of a batch, in the streams there are, in how the lake gets its records. Every second one
hands ranges over and lets the tasks that write fetch them, as the lake pipeline does; in the others they go through Spark.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from crash.broker import PROJECT, BrokerFault
from crash.copies import CopyVerdict, check_copy
from crash.processes import command_of, find_descendants, kill_all, open_files_of
from crash.spark_aim import LAKE, QUEUE, Aim, Sight
from crash.spark_cluster import ClusterFault, SparkCluster
from crash.spark_job import HONEST, Plan
from crash.spark_process import Checkpoints, Job, python_environment
from crash.spark_sinks import SLOW
from crash.spark_streams import Feed, StreamBroker, read_lake

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
BROKER: Final = "broker"
VICTIMS: Final = (DRIVER, EXECUTOR, BROKER)
TARGET: Final = "target"
PATTERN: Final = "source-[0-9]+"
LOCAL: Final = "local[2]"
BACKEND: Final = "CoarseGrainedExecutorBackend"  # the Java machine of an executor
TASKS: Final = "pyspark.daemon"  # the Python that runs its tasks
STAGED: Final = "/.staging-"  # in the paths of files of the lake that are being written
RATE: Final = 300  # messages a second, over all streams
ROWS_MAX: Final = (50, 200, 1000, 5000)
DRAIN_ROWS: Final = 50_000
POLL_S: Final = 0.05
START_S: Final = 120.0
PROGRESS_S: Final = 120.0
DRAIN_S: Final = 600.0
EARLY: Final = 0.1  # of the drivers die before their queries run
ORPHANS: Final = 0.3  # of the drivers die without their workers, which finish what they do
AIMED: Final = 0.4  # of the others die when a sink has a batch of which Spark does not know
WRITING: Final = 0.8  # of the executors die when one of their tasks writes
DOUBTS: Final = {DRIVER: (LAKE, QUEUE), BROKER: (QUEUE,)}
AVAILABLE_NOW: Final = 0.25
EARLY_S: Final = (0.0, 8.0)
AWAY_S: Final = (0.0, 1.0)


@dataclass
class Result:
    name: str
    seed: int
    folder: Path
    kills: int = 0
    in_batch: int = 0  # kills while a query had a batch under way
    lake_in_doubt: int = 0  # of these: the lake had it, and Spark did not know yet
    queue_in_doubt: int = 0  # of these: the queue had it
    in_task: int | None = None  # of executors: one that wrote a file of the lake
    handed_over: int = 0  # kills while the lake's tasks fetched the records themselves
    lives: int = 0
    available_now: int = 0  # lives that were to end by themselves
    batches: int = 0
    streams: int = 0
    seconds: float = 0.0
    verdicts: list[CopyVerdict] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class SparkCampaign:
    """`victims` are killed one after the other; `formats` are the sinks, chosen anew for each life when there are several.
    `tell` gets a line about every kill."""

    def __init__(
        self,
        name: str,
        victims: list[str],
        seed: int,
        formats: tuple[tuple[str, str], ...] = (HONEST, SLOW),
        folder: Path | None = None,
        rate: int = RATE,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._victims = victims
        self._chance = random.Random(seed)
        self._formats = formats
        folder = folder or Path(tempfile.mkdtemp(prefix="crash-spark-"))
        self.result = Result(name, seed, folder)
        self._folder = folder
        self._broker = StreamBroker(folder)
        self._feed = Feed(self._broker, rate)
        self._cluster: SparkCluster | None = None
        self._checkpoints = Checkpoints(folder / "checkpoints")
        self._aim = Aim(self._chance, self._checkpoints, folder / "lake", self._find_end)
        self._tell = tell
        self._began = time.monotonic()
        self._job: Job | None = None
        self._is_bounded = False  # the job ends by itself
        self._is_handed_over = False
        self._done_before = 0

    def run(self) -> Result:
        result = self.result
        self._began = time.monotonic()
        try:
            self._broker.start()
            self._broker.create_stream(TARGET)
            self._add_stream()
            self._feed.start()
            if EXECUTOR in self._victims:
                self._cluster = SparkCluster(self._folder / "cluster", environment=python_environment())
                self._cluster.start()
            for number, victim in enumerate(self._victims):
                self._vary(number)
                self._kill(victim)
            self._drain()
            self._judge()
        except (BrokerFault, ClusterFault) as fault:
            result.faults.append(str(fault))
        finally:
            self._end()
        result.seconds = time.monotonic() - self._began
        if not result.faults:
            shutil.rmtree(self._folder, ignore_errors=True)  # a worker of a killed job may still write there
        return result

    def _end(self) -> None:
        if self._feed.is_alive():
            self._feed.halt()
        if self._job is not None:
            self._job.kill()
        if self._cluster is not None:
            self._cluster.end()
        self._broker.close()

    # ------------------------------------------------------------------- lives

    def _vary(self, number: int) -> None:
        """Now and then there is one more stream, and a job whose driver nobody kills begins anew with other limits."""
        quarter = max(1, len(self._victims) // 4)
        if number and number % quarter == 0:
            self._add_stream()
            if self._job is not None and self._victims[number] != DRIVER:
                self._job.kill()
                self._job = None

    def _add_stream(self) -> None:
        self.result.streams += 1
        name = f"source-{self.result.streams}"
        self._broker.create_stream(name)
        self._feed.add_queue(name)

    def _ensure_job(self, is_bounded: bool) -> Job:
        job = self._job
        if job is not None and job.poll() is not None:
            if job.poll() != 0 or not self._is_bounded:
                raise BrokerFault(f"the job ended by itself with code {job.poll()}:\n{job.last_lines()}")
            job = None
        if job is None:
            job = self._begin(self._chance.choice(ROWS_MAX), is_bounded)
        return job

    def _begin(self, rows_max: int, is_bounded: bool) -> Job:
        folder = self._folder
        self.result.lives += 1
        self._is_handed_over = self.result.lives % 2 == 1
        plan = Plan(
            self._broker.uri,
            PATTERN,
            str(folder / "lake"),
            TARGET,
            str(self._checkpoints.folder),
            str(folder / "scratch"),
            self._cluster.url if self._cluster is not None else LOCAL,
            rows_max,
            is_bounded,
            self._chance.choice(self._formats),
            java_options(),
            is_handed_over=self._is_handed_over,
        )
        self.result.available_now += is_bounded
        self._is_bounded = is_bounded
        self._done_before = self._checkpoints.done()
        self._job = Job(plan, folder, self.result.lives)
        return self._job

    # ------------------------------------------------------------------- kills

    def _kill(self, victim: str) -> None:
        chance = self._chance
        job = self._wait_moment(victim)
        while job.poll() is not None:  # its work was done before its moment came
            job = self._wait_moment(victim)
        if victim == DRIVER:
            job.kill(with_workers=chance.random() >= ORPHANS)
            self._job = None
            sight = self._aim.look()  # as Spark left it; afterwards, as it may note a batch meanwhile
        elif victim == EXECUTOR:
            sight = self._kill_executor(job)
        else:
            sight = self._aim.look()
            self._broker.kill()
            time.sleep(chance.uniform(*AWAY_S))
            self._broker.start()
        self._note_kill(sight)
        self._done_before = self._checkpoints.done()

    def _wait_moment(self, victim: str) -> Job:
        """A job that runs, at the moment at which something is to die."""
        chance = self._chance
        job = self._ensure_job(victim == DRIVER and chance.random() < AVAILABLE_NOW)
        if victim == DRIVER and chance.random() < EARLY:
            time.sleep(chance.uniform(*EARLY_S))
            return job
        self._wait_progress(job)
        if chance.random() >= (WRITING if victim == EXECUTOR else AIMED):
            self._aim.wait_batch(job.is_over)
        elif victim == EXECUTOR:
            self._aim.wait_until(lambda: bool(find_writers(self._cluster)), job.is_over)
        else:
            self._aim.wait_doubt(chance.choice(DOUBTS[victim]), job.is_over)
        return job

    def _kill_executor(self, job: Job) -> Sight:
        """One of the Java machines, or the Python processes of one; of one that writes, where there is any."""
        deadline = time.monotonic() + START_S
        while True:
            executors = find_executors(self._cluster)
            if executors:
                families = {pid: find_descendants(pid) for pid in executors}
                writers = set(find_writers(self._cluster))
                busy = [pid for pid in executors if writers.intersection(families[pid])]
                executor = self._chance.choice(busy or executors)
                workers = [pid for pid in families[executor] if TASKS in command_of(pid)]
                kill_all(workers if workers and self._chance.random() < 0.5 else [executor])
                return replace(self._aim.look(), is_in_task=bool(busy))  # to look takes longer than a task
            if job.poll() is not None or time.monotonic() > deadline:
                raise BrokerFault(f"the job has no executors:\n{job.last_lines()}")
            time.sleep(POLL_S)

    def _note_kill(self, sight: Sight) -> None:
        result = self.result
        result.kills += 1
        result.in_batch += sight.is_in_batch
        if sight.is_in_task is not None:
            result.in_task = (result.in_task or 0) + sight.is_in_task
        result.lake_in_doubt += LAKE in sight.doubts
        result.queue_in_doubt += QUEUE in sight.doubts
        result.handed_over += self._is_handed_over
        facts = ["in a batch" if sight.is_in_batch else "between batches"]
        facts += ["in a task"] if sight.is_in_task else []
        facts += [f"{sink} in doubt" for sink in sight.doubts]
        facts += ["handed over"] if self._is_handed_over else []
        self._tell(
            f"{result.name} {result.kills}/{len(self._victims)} after {time.monotonic() - self._began:.0f} s: "
            f"{', '.join(facts)}; life {result.lives}, {self._checkpoints.done():,} batches done"
        )

    def _find_end(self) -> int:
        """Of the queue that is filled; -1 while nobody answers."""
        try:
            return self._broker.end_of(TARGET)
        except OSError:
            return -1

    def _wait_progress(self, job: Job) -> None:
        """Until a batch was finished since the last kill. A job that ends by itself has made its progress."""
        deadline = time.monotonic() + START_S + PROGRESS_S
        while self._checkpoints.done() <= self._done_before:
            if job.poll() is not None:
                return
            if time.monotonic() > deadline:
                raise BrokerFault(f"no batch was finished:\n{job.last_lines()}\n{self._broker.last_lines()}")
            time.sleep(POLL_S)

    # ----------------------------------------------------------------- the end

    def _drain(self) -> None:
        self._feed.halt()
        if self._job is not None:
            self._job.kill()
            self._job = None
        job = self._begin(DRAIN_ROWS, True)
        deadline = time.monotonic() + DRAIN_S
        while job.poll() is None:
            if time.monotonic() > deadline:
                raise BrokerFault(f"the rest was not copied in {DRAIN_S:.0f} s:\n{job.last_lines()}")
            time.sleep(POLL_S)
        if job.poll() != 0:
            raise BrokerFault(f"the last run ended with code {job.poll()}:\n{job.last_lines()}")
        self._job = None

    def _judge(self) -> None:
        result = self.result
        names = [f"source-{number}" for number in range(1, result.streams + 1)]
        source = self._broker.read_sources(names)
        if self._feed.refusal:
            result.faults.append(self._feed.refusal)
        if lost := self._feed.find_lost(source):
            result.faults.append(f"{len(lost)} confirmed messages are in no stream: {', '.join(lost[:5])}")
        result.batches = self._checkpoints.done()
        result.verdicts = [
            check_copy("lake", source, read_lake(self._folder / "lake")),
            check_copy("queue", source, self._broker.read_copy(TARGET)),
        ]
        for verdict in result.verdicts:
            result.faults += verdict.faults


def find_executors(cluster: SparkCluster | None) -> list[int]:
    assert cluster is not None
    return [pid for pid in cluster.pids() if BACKEND in command_of(pid)]


def find_writers(cluster: SparkCluster | None) -> list[int]:
    """The Python processes of tasks that have a file of the lake open."""
    assert cluster is not None
    workers = [pid for pid in cluster.pids() if TASKS in command_of(pid)]
    return [pid for pid in workers if any(STAGED in name for name in open_files_of(pid))]


def java_options() -> str:
    """A job that lives for seconds must not spend them on compiling; the tests leave an archive of loaded classes."""
    options = ["-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr"]
    options += [
        f"-XX:SharedArchiveFile={file}" for file in sorted(PROJECT.glob("build/spark-classes-*.jsa"))[-1:]
    ]
    return " ".join(options)
