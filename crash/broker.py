"""The broker under test: a process of its own, killed as `kill -9` does, started again on the same data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Protocol

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
LOG_LINES_SHOWN: Final = 15
PROJECT: Final = Path(__file__).resolve().parents[1]


class BrokerFault(Exception):
    """It did not start, or ended by itself."""


class Process(Protocol):
    """What is asked of a process that was started, in whichever way."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...

    def terminate(self) -> None: ...


class Broker:
    """`module` is what is started; `crash.hasty` is a broker with a bug."""

    def __init__(self, folder: Path, settings: tuple[str, ...], module: str = "millstream") -> None:
        self._folder = folder
        self._settings = settings
        self._module = module
        self._process: Process | None = None
        self.starts = 0
        self.start_s: list[float] = []
        self.port = 0
        self.ports: dict[str, int] = {}  # of all listeners, by name
        self.data_dir = folder / "data"

    @property
    def log_file(self) -> Path:
        return self._folder / f"broker-{self.starts:04d}.log"

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Ready to be connected to when this returns."""
        began = time.monotonic()
        self.begin(environment)
        if not self.wait_ready():
            raise BrokerFault(f"the broker ended at start with code {self.poll()}:\n{self.last_lines()}")
        self.start_s.append(time.monotonic() - began)

    def begin(self, environment: dict[str, str] | None = None) -> None:
        self.starts += 1
        arguments = ["serve", "--ready-file", str(self._ready_file())]
        for setting in (
            "mqtt.port=0",
            "amqp.port=0",
            "websocket.enabled=false",
            f"data_dir={self.data_dir}",
            *self._settings,
        ):
            arguments += ["--set", setting]
        inherited = os.environ.get("PYTHONPATH", "")
        python_path = f"{inherited}{os.pathsep}{PROJECT}" if inherited else str(PROJECT)
        self._process = self.launch(arguments, {"PYTHONPATH": python_path} | (environment or {}))

    def launch(self, arguments: list[str], environment: dict[str, str]) -> Process:
        with self.log_file.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self._module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
            )

    def is_ready(self) -> bool:
        return self._ready_file().exists()

    def wait_ready(self) -> bool:
        """False when it ended before."""
        ready_file = self._ready_file()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready_file.exists():
            if self.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFault(
                    f"the broker was not ready in {START_TIMEOUT_S:.0f} s:\n{self.last_lines()}"
                )
            time.sleep(0.01)  # another process: there is no event to wait for
        listeners = json.loads(ready_file.read_text(encoding="utf-8"))["listeners"]
        self.ports = {name: address["port"] for name, address in listeners.items()}
        self.port = self.ports["mqtt"]
        ready_file.unlink()
        return True

    def _ready_file(self) -> Path:
        return self._folder / f"ready-{self.starts}.json"

    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def poll(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()

    def stop(self) -> int:
        """Ask it to end, as an operator would. Returns its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFault(f"the broker did not stop:\n{self.last_lines()}") from None

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def last_lines(self) -> str:
        return "\n".join(self.log().splitlines()[-LOG_LINES_SHOWN:])
