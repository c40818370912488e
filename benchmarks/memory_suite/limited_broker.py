"""The broker of this project in a control group with a memory limit."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from benchmarks.memory_suite.limited_group import LimitedGroup
from benchmarks.suite.brokers import Millstream, read_port

CONFIG = """\
mqtt: {host: 127.0.0.1, port: 0}
websocket: {host: 127.0.0.1, port: 0}
amqp: {port: 0}
auth: {allow_anonymous: true}
log: {format: json}
broker: {sys_interval: 1}
"""
PAGE_BYTES = 4096


class LimitedBroker(Millstream):
    def __init__(self, group: LimitedGroup, settings: list[str]) -> None:
        super().__init__(0)
        self._group = group
        self._settings = settings
        self.amqp_port = 0
        self._peak = 0
        self._is_over = threading.Event()
        self._watcher: threading.Thread | None = None

    def command(self) -> list[str]:
        config = self.folder / "millstream.yaml"
        config.write_text(CONFIG)
        chosen = [part for setting in self._settings for part in ("--set", setting)]
        return self._group.command(
            [
                *(sys.executable, "-m", "millstream", "serve", "--config", str(config), *chosen),
                *("--set", f"data_dir={self.folder}/data", "--ready-file", str(self.folder / "ready.json")),
            ]
        )

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        self.amqp_port = read_port(json.loads((self.folder / "ready.json").read_text()), "amqp")
        return self.amqp_port > 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is running"
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def resident(self) -> int:
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        except OSError:
            return 0
        return int(fields[1]) * PAGE_BYTES

    def watch(self) -> None:
        """Note the largest resident size from now on."""
        self._peak = 0
        self._is_over.clear()
        self._watcher = threading.Thread(target=self._look, daemon=True)
        self._watcher.start()

    def _look(self) -> None:
        while not self._is_over.is_set():
            self._peak = max(self._peak, self.resident())
            self._is_over.wait(0.02)

    def end_watch(self) -> int:
        self._is_over.set()
        if self._watcher is not None:
            self._watcher.join()
        return self._peak
