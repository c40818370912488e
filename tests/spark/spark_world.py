"""What all tests on real Spark share: one session for the whole run, and a broker with its reader, started once.

A session costs ten seconds and a gigabyte, so there is one, whichever test files ask for it. The first run of a
machine leaves an archive of the loaded Java classes under build/, which halves the start of the next ones.
A test file gets the fixtures `spark`, `streams` and `own_streams` with `pytest_plugins = ["spark_fixtures"]`.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from conftest import BrokerProcess
from pyspark.sql import DataFrame, SparkSession

from millstream.runtime.control.client import SOCKET_NAME, ControlClient

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / "spark" / "src"
PUBLISH_AT_ONCE = 256
JVM_END_TIMEOUT_S = 60
PORT_TIMEOUT_S = 30.0

_numbers = itertools.count(1)


def unique(name: str) -> str:
    """A queue name no other test uses."""
    return f"{name}-{next(_numbers)}"


# --------------------------------------------------------------------- Spark


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        pytest.skip("there is no java; Spark needs version 17 or later")
    return found


def _class_archive() -> Path:
    """Of this Java and this PySpark: another one would be ignored by the virtual machine, with a warning."""
    java = subprocess.run([_find_java(), "-version"], capture_output=True, check=True).stderr
    mark = hashlib.sha256(java + pyspark.__version__.encode()).hexdigest()[:12]
    return ROOT / "build" / f"spark-classes-{mark}.jsa"


def _java_options(archive: Path, fresh: Path) -> str:
    # C1 only: a test never runs long enough to earn back what the second compiler costs.
    options = ["-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if archive.exists():
        options.append(f"-XX:SharedArchiveFile={archive}")
    else:
        options.append(f"-XX:ArchiveClassesAtExit={fresh}")
    return " ".join(options)


@functools.cache
def spark_session() -> SparkSession:
    archive = _class_archive()
    archive.parent.mkdir(exist_ok=True)
    fresh = archive.with_suffix(f".{os.getpid()}.new")
    scratch = Path(tempfile.mkdtemp(prefix="millstream-spark-"))
    paths = [str(CONNECTOR), *(path for path in sys.path if path and Path(path).is_dir())]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))  # tasks import what the test can import
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("millstream-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", _java_options(archive, fresh))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.streaming.metricsEnabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    atexit.register(_end_session, session, archive, fresh, scratch)
    return session


def _end_session(session: SparkSession, archive: Path, fresh: Path, scratch: Path) -> None:
    gateway = session.sparkContext._gateway
    assert gateway is not None
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
    if fresh.exists():
        fresh.rename(archive)  # whole, or not at all
    shutil.rmtree(scratch, ignore_errors=True)


# -------------------------------------------------------------------- broker


def wait_free(port: int) -> None:
    """Until nobody listens there."""
    deadline = time.monotonic() + PORT_TIMEOUT_S
    while True:
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind(("127.0.0.1", port))
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.01)  # another process: there is no event to wait for


class StreamBroker:
    """A broker with its reader, and the few things a test does to its streams."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self._settings = ("reader.enabled=true", *settings)
        self.process = self._start("reader.port=0")

    def _start(self, *settings: str) -> BrokerProcess:
        (self.folder / "ready.json").unlink(missing_ok=True)
        process = BrokerProcess(self.folder, (*self._settings, *settings), ())
        process.wait_ready()
        return process

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.process.ports['reader']}"

    @property
    def mqtt_port(self) -> int:
        return int(self.process.ports["mqtt"])

    def start_again(self) -> None:
        """After a kill or a stop: same data, same ports."""
        ports = self.process.ports
        wait_free(ports["reader"])  # its reader ends a moment after a killed broker
        self.process = self._start(f"reader.port={ports['reader']}", f"mqtt.port={ports['mqtt']}")

    def end(self) -> None:
        if self.process.process.poll() is None:
            self.process.kill()

    def call(self, operation: str, **fields: object) -> Any:
        with ControlClient(self.folder / "data" / SOCKET_NAME) as client:
            return client.call(operation, fields)

    def create_stream(self, name: str, **definition: object) -> str:
        self.call("queue.create", name=name, definition={"kind": "stream", **definition})
        return name

    def publish(
        self,
        name: str,
        payloads: Iterable[bytes | str],
        keys: Sequence[str] = ("",),
        properties: Sequence[tuple[str, str]] = (),
        **fields: object,
    ) -> None:
        """All of them are durable when it returns. Keys are used in turn."""
        messages: list[dict[str, object]] = []
        with ControlClient(self.folder / "data" / SOCKET_NAME) as client:
            for number, payload in enumerate(payloads):
                message: dict[str, object] = {
                    "payload": payload if isinstance(payload, str) else payload.decode(),
                    "properties": [list(pair) for pair in properties],
                    **fields,
                }
                if key := keys[number % len(keys)]:
                    message["key"] = key
                messages.append(message)
                if len(messages) == PUBLISH_AT_ONCE:
                    client.call("queue.publish", {"name": name, "messages": messages})
                    messages = []
            if messages:
                client.call("queue.publish", {"name": name, "messages": messages})

    def fill(self, name: str, count: int, first: int = 0) -> None:
        self.publish(name, (f"{number}" for number in range(first, first + count)))

    def filled_stream(self, title: str, count: int, **definition: object) -> str:
        name = self.create_stream(unique(title), **definition)
        self.fill(name, count)
        return name

    def groups(self, name: str) -> dict[str, int]:
        """Where each group stands."""
        answer = self.call("queue.groups", name=name)
        return {group["group"]: group["committed"] for group in answer["groups"]}


@functools.cache
def shared_stream_broker() -> StreamBroker:
    folder = Path(tempfile.mkdtemp(prefix="millstream-spark-broker-"))
    broker = StreamBroker(folder)

    def end() -> None:
        broker.end()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return broker


def sorted_rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    chosen = frame.select(*columns) if columns else frame
    return sorted(tuple(row) for row in chosen.collect())


def first_line(error: BaseException) -> str:
    """What a user sees first."""
    return str(error).partition("\n")[0]
