"""What a run of `bench spark` stands on: one broker with its reader, one Spark session, streams that are filled once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from benchmarks.load.usage import find_family, read_text
from benchmarks.spark_suite.meter import Meter
from benchmarks.suite.brokers import PROJECT, BrokerFault, Millstream, find_python_path, read_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = PROJECT / "spark" / "src"
LONG = "long"  # what is read
SHORT = "shrt"  # the same rows, fewer; names of one length make rows of one length
TIMED = "timd"  # published while Spark reads
HEADED = "head"  # rows with a user property
LIVE = "bench"  # where the load generator of `bench queues` publishes to
JVM_END_TIMEOUT_S = 60

CONFIG = """\
mqtt: {{host: 127.0.0.1, port: 0}}
auth: {{allow_anonymous: true, acl_file: "{folder}/acl.yaml"}}
reader: {{enabled: true, host: 127.0.0.1, port: 0}}
queues:
  {long}: {{kind: stream, bindings: ["{long}/#"]}}
  {short}: {{kind: stream, bindings: ["{short}/#"]}}
  {timed}: {{kind: stream, bindings: ["{timed}/#"]}}
  {headed}: {{kind: stream}}
  {live}: {{kind: stream}}
"""
ACL = """\
default: deny
rules:
  - {{allow: all, topics: ["{long}/#", "{short}/#", "{timed}/#", "$queue/#"], users: [anonymous]}}
  - {{allow: all, topics: ["clients/%c/#", "users/%u/#"]}}
"""
NAMES = {"long": LONG, "short": SHORT, "timed": TIMED, "headed": HEADED, "live": LIVE}


class StreamBroker(Millstream):
    """Not pinned: Spark, the reader and the broker share the cores, as they would."""

    def __init__(self, cores: list[int]) -> None:
        super().__init__(cores[0])
        self._cores = cores
        self.reader_port = 0
        self.reader_pid = 0

    def command(self) -> list[str]:
        command = super().command()
        (self.folder / "millstream.yaml").write_text(CONFIG.format(folder=self.folder, **NAMES))
        (self.folder / "acl.yaml").write_text(ACL.format(**NAMES))
        return command

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        self.reader_port = read_port(json.loads((self.folder / "ready.json").read_text()), "reader")
        try:
            self.ask("/v1/health")
        except OSError:
            return False
        for pid in self.pids():
            set_cores(pid, self._cores)
            if b"millstream.reader" in Path(f"/proc/{pid}/cmdline").read_bytes():
                self.reader_pid = pid
        return self.reader_pid > 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is running"
        return self._process.pid

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.reader_port}"

    def ask(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(self.uri + path, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def end_of(self, queue: str) -> int:
        """One past the last offset, everything confirmed included."""
        return int(self.ask(f"/v1/queues/{queue}?fresh=true")["end"])


def set_cores(pid: int, cores: list[int]) -> None:
    """For every thread it has; threads it makes later take after the one that makes them."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.sched_setaffinity(int(thread), cores)


class SparkWorld:
    """A context manager: starts the broker, then Spark; ends both."""

    def __init__(self, cores: list[int], memory: str) -> None:
        self.cores = cores
        self._memory = memory
        self.broker = StreamBroker(cores)
        self.scratch = Path()
        self._session: SparkSession | None = None
        self._jvm = 0
        self._counter = 0

    def __enter__(self) -> SparkWorld:
        self.scratch = Path(tempfile.mkdtemp(prefix="bench-spark-"))
        self.broker.__enter__()
        try:
            self._session = self._start_spark()
        except BaseException:
            self.broker.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import shutil

        if self._session is not None:
            end_session(self._session)
        self.broker.__exit__(None, None, None)
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def spark(self) -> SparkSession:
        assert self._session is not None, "Spark is running"
        return self._session

    def meter(self) -> Meter:
        return Meter(self._jvm, self.broker.pid, self.broker.reader_pid, self.cores)

    @contextlib.contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """Of the session, for the queries that start inside."""
        before = self.spark.conf.get(name)
        self.spark.conf.set(name, value)
        try:
            yield
        finally:
            self.spark.conf.set(name, str(before))

    def folder(self, name: str) -> str:
        """One that is not there yet."""
        self._counter += 1
        return str(self.scratch / f"{name}-{self._counter}")

    def start_publisher(
        self, queue: str, rows: int = 0, rate: int = 0, seconds: float = 0.0
    ) -> subprocess.Popen[str]:
        job = {"port": self.broker.port, "queue": queue, "rows": rows, "rate": rate, "seconds": seconds}
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_suite.publisher"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        return process

    def fill(self, queue: str, rows: int) -> float:
        """At least so many rows are in it afterwards; gives rows a second."""
        has = self.broker.end_of(queue)
        if has >= rows:
            return 0.0
        answer = take_answer(self.start_publisher(queue, rows - has))
        return float(answer["rows"]) / float(answer["seconds"])

    def read(self, queue: str, first: int, end: int, **options: str) -> DataFrame:
        return (
            self.spark.read.format("millstream")
            .options(uri=self.broker.uri, queues=queue, **options)
            .option("startingOffsets", json.dumps({queue: first}))
            .option("endingOffsets", json.dumps({queue: end}))
            .load()
        )

    def read_stream(self, queue: str, first: int | None, **options: str) -> DataFrame:
        starting = "latest" if first is None else json.dumps({queue: first})
        return (
            self.spark.readStream.format("millstream")
            .options(uri=self.broker.uri, queues=queue, startingOffsets=starting, **options)
            .load()
        )

    def _start_spark(self) -> SparkSession:
        from pyspark.sql import SparkSession

        paths = [str(CONNECTOR), *find_python_path().split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.memory": self._memory,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(self.scratch / "warehouse"),
            "spark.local.dir": str(self.scratch / "local"),
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.ui.showConsoleProgress": "false",
        }
        builder = SparkSession.builder.master("local[2]").appName("millstream-bench")
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        self._jvm = find_jvm()
        sys.path.insert(0, str(CONNECTOR))
        from pyspark_millstream.source import register

        register(session)
        return session


def take_answer(publisher: subprocess.Popen[str]) -> dict[str, Any]:
    assert publisher.stdout is not None
    text = publisher.stdout.read()
    if publisher.wait() != 0 or not text:
        raise BrokerFault("the publisher did not come to its end; its words are above")
    answer: dict[str, Any] = json.loads(text.splitlines()[-1])
    return answer


def find_jvm() -> int:
    for pid in find_family(os.getpid()):
        if read_text(f"/proc/{pid}/comm").strip() == "java":
            return pid
    raise BrokerFault("Spark's Java process was not found")


def end_session(session: SparkSession) -> None:
    gateway = session.sparkContext._gateway
    assert gateway is not None, "the session is running"
    session.stop()
    gateway.shutdown()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # Spark's launcher ends with it
        try:
            process.wait(JVM_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
