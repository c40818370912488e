"""How the benchmarks start a broker: what counts as ready, and what is told when it does not become so."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.load.queue_amqp import connect_amqp
from benchmarks.queue_suite.brokers import is_served
from benchmarks.suite.brokers import Broker, BrokerFault


class DyingBroker(Broker):
    name = "dying"
    title = "Dying"

    def command(self) -> list[str]:
        return [sys.executable, "-c", "print('a last word')"]

    def version(self) -> str:
        return "1"

    def is_ready(self) -> bool:
        return False


class SilentBroker(DyingBroker):
    name = "silent"
    start_timeout_s = 0.0

    def command(self) -> list[str]:
        return [sys.executable, "-c", "import time; time.sleep(60)"]


def start(kind: type[Broker], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said about a start that fails."""
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(BrokerFault) as raised, kind(0):
        pass
    return str(raised.value)


def test_a_broker_that_ends_while_starting_leaves_a_log_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = start(DyingBroker, tmp_path, monkeypatch)
    assert "ended while starting: a last word" in said
    assert Path(said.rpartition("its log: ")[2]).read_text() == "a last word\n"


def test_a_broker_that_does_not_become_ready_leaves_nothing_but_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = start(SilentBroker, tmp_path, monkeypatch)
    assert "was not ready within 0 s" in said
    assert [str(path) for path in tmp_path.iterdir()] == [said.rpartition("its log: ")[2]]


def test_a_port_that_takes_connections_and_answers_no_handshake_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True)
        thread.start()
        assert not is_served(lambda: connect_amqp("127.0.0.1", listener.getsockname()[1]))
        thread.join()
