"""Ordinary clients beside the floods, a process of their own: the floods' threads must not be what slows them.

They are the witness of `bench attack`: round trips with QoS 0 and 1 on live connections, newcomers by MQTT and AMQP.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.suite.brokers import PROJECT, BrokerFault

Windows = dict[str, dict[str, dict[str, Any]]]
END_S = 120.0


class Probe:
    """A window for each flood; `end` tells of all of them, and of the whole time as `all`."""

    def __init__(self, ports: dict[str, int], core: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.attack_suite.witness"],
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": f"{os.environ.get('PYTHONPATH', 'src')}{os.pathsep}{PROJECT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tell(json.dumps({"ports": ports, "core": core}))
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise BrokerFault("the ordinary clients did not start; their words are above")

    def window(self, name: str) -> None:
        self._tell(f"window {name}")

    def end(self) -> Windows:
        """No more probes; what was found."""
        try:
            found, _ = self._process.communicate("end\n", END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFault("the ordinary clients did not end") from None
        windows: Windows = json.loads(found or "{}")
        return windows

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BrokerFault("the ordinary clients ended early; their words are above") from None
