"""What all tests share: the proof of which build runs, and a real broker process on free ports."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from broker_forks import BrokerForks

from millstream.build_kind import build_name

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
LOG_LINES_SHOWN = 60
FORKS = BrokerForks()


def pytest_report_header() -> str:
    return f"millstream: {build_name()} build"


def pytest_configure() -> None:
    wanted = os.environ.get("MILLSTREAM_TEST_BUILD")  # set by ./dev
    if wanted is not None and wanted != build_name():
        pytest.exit(f"asked to test the {wanted} build, found the {build_name()} one", returncode=4)


class BrokerProcess:
    """One `millstream serve` on loopback, with the ports it chose itself."""

    def __init__(self, folder: Path, settings: tuple[str, ...], arguments: tuple[str, ...]) -> None:
        self.log_file = folder / "broker.log"
        self._ready_file = folder / "ready.json"
        command = ["serve", "--ready-file", str(self._ready_file)]
        for setting in (
            "mqtt.port=0",
            "amqp.port=0",
            "websocket.port=0",
            "storage.stall_timeout=30s",  # two suites and a compiler may share the disk
            f"data_dir={folder / 'data'}",
            *settings,
        ):
            command += ["--set", setting]
        self.process = FORKS.start([*command, *arguments], self.log_file)
        self.ports: dict[str, int] = {}

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready_file.exists():
            if self.process.poll() is not None:
                pytest.fail(f"the broker ended at start with code {self.process.returncode}\n{self.log()}")
            if time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"the broker was not ready in {START_TIMEOUT_S:.0f} s\n{self.log()}")
            time.sleep(0.01)  # another process: there is no event to wait for
        ready = json.loads(self._ready_file.read_text(encoding="utf-8"))
        self.ports = {name: listener["port"] for name, listener in ready["listeners"].items()}

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def mqtt_port(self) -> int:
        return self.ports["mqtt"]

    @property
    def websocket_port(self) -> int:
        return self.ports["websocket"]

    def log(self) -> str:
        lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def stop(self) -> int:
        """Ask it to stop, as an operator would. Returns its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"the broker did not stop in {STOP_TIMEOUT_S:.0f} s\n{self.log()}")

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()


def write_private(path: Path, content: str) -> Path:
    """A file nobody else may read, as the broker wants those with secrets to be."""
    path.touch(mode=0o600)
    path.write_text(content, encoding="utf-8")
    return path


StartBroker = Callable[..., BrokerProcess]


class _Fleet:
    """Starts brokers and leaves none behind."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self.started: list[BrokerProcess] = []

    def start(self, *settings: str, arguments: tuple[str, ...] = ()) -> BrokerProcess:
        broker = BrokerProcess(self._new_folder(), settings, arguments)
        self.started.append(broker)
        broker.wait_ready()
        return broker

    def end(self) -> None:
        for broker in self.started:
            if broker.process.poll() is None:
                broker.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker in _brokers_of(item):
            report.sections.append((f"log of broker {broker.pid}", broker.log()))
    return report


def _brokers_of(item: pytest.Item) -> list[BrokerProcess]:
    found: dict[int, BrokerProcess] = {}
    for value in getattr(item, "funcargs", {}).values():
        fleet = getattr(value, "__self__", None)
        for broker in fleet.started if isinstance(fleet, _Fleet) else [value]:
            if isinstance(broker, BrokerProcess):
                found[broker.pid] = broker
    return list(found.values())


@pytest.fixture
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """`start_broker("session.max_sessions=5", arguments=("--config", path))`: a fresh broker for one test."""
    fleet = _Fleet(lambda: tmp_path_factory.mktemp("broker"))
    yield fleet.start
    fleet.end()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A fresh broker with the default settings, for one test."""
    return start_broker()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with the default settings for all tests that leave nothing behind: use topics of your own."""
    fleet = _Fleet(lambda: tmp_path_factory.mktemp("broker"))
    yield fleet.start()
    fleet.end()
