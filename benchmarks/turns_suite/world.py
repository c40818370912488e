"""What an input is made with: clients of both protocols, and questions to the broker about what it has done."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attack_suite.amqp import AmqpChannel, AmqpClient
from benchmarks.attack_suite.mqtt import MqttClient
from benchmarks.attack_suite.preparation import TIMEOUT_S
from millstream.runtime.control.client import SOCKET_NAME, ControlClient

ASK_S = 0.05  # between two questions: rare enough not to be an input of their own
LOOK_S = 0.25
QUIET_SHARE = 0.25  # of a look, in which the loop ran; the witness's pings take a part of it
QUIET_S_MAX = 10.0


class World:
    def __init__(self, ports: dict[str, int], folder: Path, pid: int, scale: float) -> None:
        self.ports = ports
        self.folder = folder
        self.scale = scale
        self._loop_clock = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._numbers = 0
        self._open: list[Any] = []
        self._control: ControlClient | None = None

    def count(self, number: int) -> int:
        return max(1, int(number * self.scale))

    def mqtt(self, name: str = "", **options: Any) -> MqttClient:
        self._numbers += 1
        opened = socket.create_connection(("127.0.0.1", self.ports["mqtt"]), TIMEOUT_S)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = MqttClient(opened).open(name or f"turns-{self._numbers}", **options)
        self._open.append(client)
        return client

    def amqp(self) -> AmqpChannel:
        client = AmqpClient(self.ports["amqp"]).open()
        client.socket.settimeout(TIMEOUT_S)
        self._open.append(client)
        return client.channel()

    def close(self) -> None:
        for client in self._open:
            client.socket.close()

    # ------------------------------------------------------------------ questions

    def status(self) -> dict[str, Any]:
        return self._ask("broker.status", {})

    def queue(self, name: str) -> dict[str, Any]:
        """Of it: records, handed_out, consumers."""
        return self._ask("queue.show", {"name": name})

    def wait(self, is_so: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            assert time.monotonic() < deadline, complaint
            time.sleep(ASK_S)

    def wait_handed_out(self, queue: str, count: int) -> None:
        self.wait(
            lambda: self.queue(queue)["handed_out"] == count, f"{queue} never had {count} deliveries open"
        )

    def wait_records(self, queue: str, count: int) -> None:
        self.wait(lambda: self.queue(queue)["records"] == count, f"{queue} never held {count} messages")

    def wait_sessions(self, count: int) -> None:
        self.wait(lambda: self.status()["sessions"] <= count, f"there were never only {count} sessions")

    def wait_connections(self, count: int) -> None:
        self.wait(lambda: self.status()["connections"] <= count, f"there were never only {count} connections")

    def wait_quiet(self) -> None:
        """Until the loop has little to do in two looks one after the other, or for so long as it may take."""
        deadline = time.monotonic() + QUIET_S_MAX
        quiet = 0
        while quiet < 2 and time.monotonic() < deadline:
            before = self._busy_ns()
            time.sleep(LOOK_S)
            quiet = quiet + 1 if self._busy_ns() - before < QUIET_SHARE * LOOK_S * 1e9 else 0

    def _busy_ns(self) -> int:
        return int(self._loop_clock.read_text().split()[0])

    def _ask(self, operation: str, fields: dict[str, object]) -> dict[str, Any]:
        if self._control is None:
            self._control = ControlClient(self.folder / "data" / SOCKET_NAME)
        found = self._control.call(operation, fields)
        assert isinstance(found, dict)
        return found
