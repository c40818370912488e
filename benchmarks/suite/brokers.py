"""Starting and stopping the brokers compared, each alone, in a folder of its own, pinned to one core.

Invariants
- Only loopback, only ports that were free a moment ago.
- A broker that was started is stopped, with all its children, whatever happened between.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType

from benchmarks.load.usage import find_family

PROJECT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
PROGRESS_S = 15.0  # how often a start that takes long is told

MILLSTREAM_CONFIG = """\
mqtt: {{host: 127.0.0.1, port: 0}}
websocket: {{host: 127.0.0.1, port: 0}}
amqp: {{port: 0}}
auth: {{allow_anonymous: true, acl_file: "{folder}/acl.yaml"}}
"""

# Rules of every kind the authorizer knows, so that a benchmark pays for what an operator would use.
MILLSTREAM_ACL = """\
default: deny
rules:
  - {{allow: all, topics: [{topics}], users: [anonymous]}}
  - {{allow: all, topics: ["clients/%c/#", "users/%u/#"]}}
  - {{allow: publish, topics: ["telemetry/+/state"], clients: ["device-*"]}}
  - {{deny: all, topics: ["bench/secret/#", "$SYS/#"]}}
"""


class BrokerFault(Exception):
    """A broker is not installed, did not start, or ended by itself."""


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Broker(ABC):
    """One broker process; a context manager that starts it and stops it."""

    name = ""
    title = ""
    start_timeout_s = START_TIMEOUT_S

    def __init__(self, core: int) -> None:
        self._core = core
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path()
        self.port = 0
        self.websocket_port = 0

    @abstractmethod
    def command(self) -> list[str]:
        """Write the files the broker needs into `folder` and say how to start it."""

    @abstractmethod
    def version(self) -> str:
        """What is being measured, for the report."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def before_exec(self) -> None:
        """In the new process, before it becomes the broker."""
        os.sched_setaffinity(0, {self._core})

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def pids(self) -> list[int]:
        return find_family(self._process.pid) if self._process else []

    def __enter__(self) -> Broker:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        command = self.command()
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment(),
                start_new_session=True,
                preexec_fn=self.before_exec,
            )
        self._wait_ready(self._process)

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        began = told = time.monotonic()
        while not self.is_ready():
            now = time.monotonic()
            if process.poll() is not None:
                raise BrokerFault(
                    f"{self.title} ended while starting: {self.last_words()}; {self.keep_log()}"
                )
            if now - began > self.start_timeout_s:
                raise BrokerFault(
                    f"{self.title} was not ready within {self.start_timeout_s:.0f} s: {self.last_words()}; {self.keep_log()}"
                )
            if now - told > PROGRESS_S:
                told = now
                print(f"{self.title} has been starting for {now - began:.0f} s", file=sys.stderr, flush=True)
            time.sleep(0.05)

    def keep_log(self) -> str:
        """Its folder goes with it: leave what it said outside, and tell where."""
        kept = self.folder.with_name(f"{self.folder.name}.log")
        shutil.copyfile(self.folder / "log", kept)
        return f"its log: {kept}"

    def last_words(self) -> str:
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"

    def _stop(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass  # the whole group is killed below
            try:
                os.killpg(process.pid, signal.SIGKILL)  # its own session: only this broker and its children
            except ProcessLookupError:
                pass  # nobody left
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def find_program(name: str, package: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise BrokerFault(f"{name} is not installed; type: apt-get install {package}")
    return found


def first_line(command: list[str]) -> str:
    finished = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return (finished.stdout or finished.stderr).strip().splitlines()[0]


class ConfiguredBroker(Broker):
    """A broker of Debian that is told everything by one file."""

    program = ""  # of that name in the package of that name
    version_option = ""

    @abstractmethod
    def config(self) -> str:
        """The text of that file."""

    def command(self) -> list[str]:
        program = find_program(self.program, self.program)
        self.port = find_free_port()
        path = self.folder / f"{self.name}.conf"
        path.write_text(self.config())
        self.check_config(program, path)
        return [program, "-c", str(path)]

    def check_config(self, program: str, path: Path) -> None:
        """Raises `BrokerFault` where the broker can say beforehand that it does not take it."""

    def version(self) -> str:
        return first_line([find_program(self.program, self.program), self.version_option])


def find_python_path() -> str:
    """What the caller set, made absolute; else the compiled build when it is there, else the sources."""
    chosen = os.environ.get("PYTHONPATH", "")
    if chosen:
        return os.pathsep.join(str(Path(part).resolve()) for part in chosen.split(os.pathsep) if part)
    compiled = PROJECT / "build" / "compiled" / "src"
    return str(compiled if compiled.is_dir() else PROJECT / "src")


class Millstream(Broker):
    """The broker of this project with its whole feature set: access rules, counters, $SYS, WebSocket."""

    name = "millstream"
    title = "Millstream"
    topics: tuple[str, ...] = ("bench/#", "idle/#")  # open to the load generator

    def __init__(self, core: int, *more: bool, python_path: str = "") -> None:
        """`python_path` leads to another build than the caller's."""
        super().__init__(core, *more)
        self._python_path = python_path or find_python_path()

    def command(self) -> list[str]:
        config = self.folder / "millstream.yaml"
        config.write_text(MILLSTREAM_CONFIG.format(folder=self.folder))
        acl = self.folder / "acl.yaml"
        acl.write_text(MILLSTREAM_ACL.format(topics=", ".join(f'"{topic}"' for topic in self.topics)))
        acl.chmod(0o600)
        return [
            *(sys.executable, "-m", "millstream", "serve", "--config", str(config)),
            *("--set", f"data_dir={self.folder}/data", "--ready-file", str(self.folder / "ready.json")),
        ]

    def environment(self) -> dict[str, str]:
        """The caller's, without settings meant for another broker."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MILLSTREAM_")}
        environment["PYTHONPATH"] = self._python_path
        return environment

    def is_ready(self) -> bool:
        try:
            ports = json.loads((self.folder / "ready.json").read_text())
        except (OSError, ValueError):
            return False
        self.port = read_port(ports, "mqtt")
        self.websocket_port = read_port(ports, "websocket")
        return self.port > 0 and super().is_ready()

    def is_compiled(self) -> bool:
        script = "import millstream.model.topic as m; print(m.__file__)"
        finished = subprocess.run(
            [sys.executable, "-c", script],
            env=self.environment(),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=30,
        )
        return finished.stdout.strip().endswith(".so")

    def version(self) -> str:
        line = first_line_of_millstream(self.environment())
        kind = "compiled" if self.is_compiled() else "interpreted"
        return line if kind in line else f"{line}, {kind}"


def first_line_of_millstream(environment: dict[str, str]) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "millstream", "--version"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
    )
    lines = finished.stdout.strip().splitlines()
    return lines[0] if finished.returncode == 0 and lines else "millstream"


def read_port(ready: dict[str, object], key: str) -> int:
    """The port of one listener as the ready file gives it; 0 when it is not there."""
    listeners = ready.get("listeners")
    listener = listeners.get(key) if isinstance(listeners, dict) else None
    port = listener.get("port") if isinstance(listener, dict) else None
    return port if isinstance(port, int) else 0
