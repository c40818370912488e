"""Runs one flood on one broker, which is a fresh one."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.flood_suite.brokers import KINDS, MIB, FloodBroker
from benchmarks.flood_suite.load import READY, publish_bytes
from benchmarks.flood_suite.newcomer import Newcomers
from benchmarks.flood_suite.verdicts import Figures, Flood
from benchmarks.suite.brokers import PROJECT, BrokerFault

WARM_UP_S = 2.0
ANSWER_S = 30.0


class LoadFault(Exception):
    """A load process has ended, or counts nothing."""


class Load:
    """One of the processes of `load.py`, on a core that the broker does not have."""

    def __init__(self, role: str, flood: Flood, port: int, core: int) -> None:
        job = {
            "role": role,
            "port": port,
            "publishers": flood.publishers,
            "queues": flood.queues,
            "size": flood.size,
            "is_durable": flood.is_durable,
            "confirms": flood.confirms,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.flood_suite.load", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
            text=True,
            bufsize=1,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        if self._read().strip() != READY:
            self.stop()
            raise LoadFault(f"the {role} process did not start")

    def go(self) -> None:
        self._write("go\n")

    def counts(self) -> list[int]:
        self._write("?")
        found = json.loads(self._read() or "{}")
        if not isinstance(found, list):
            raise LoadFault(str(found.get("fault", "a load process has ended")))
        return [int(value) for value in found]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise LoadFault("a load process has ended") from None

    def _read(self) -> str:
        assert self._process.stdout is not None
        timer = threading.Timer(ANSWER_S, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        return line


def measure(broker: FloodBroker, flood: Flood, seconds: float, core: int) -> Figures:
    loads = [Load("consume", flood, broker.port, core)]
    try:
        loads.append(Load("publish", flood, broker.port, core))
        consumers, publishers = loads
        consumers.go()
        publishers.go()
        time.sleep(WARM_UP_S)
        newcomers = Newcomers(broker.port, broker.mqtt_port)
        before = publishers.counts(), consumers.counts(), unread_bytes(broker.port)
        began = time.monotonic()
        newcomers.start()
        peak = 0
        while time.monotonic() - began < seconds:
            peak = max(peak, broker.resident_bytes())
            time.sleep(0.1)
        took = time.monotonic() - began
        after = publishers.counts(), consumers.counts(), unread_bytes(broker.port)
        newcomers.stop()
    finally:
        for load in loads:
            load.stop()
    published = sum(after[0]) - sum(before[0]) - (after[2] - before[2]) // publish_bytes(flood.size)
    delivered = [late - early for early, late in zip(before[1], after[1], strict=True)]
    return Figures(
        published / took,
        sum(delivered) / took,
        min(delivered) / took,
        statistics.median(newcomers.amqp_s),
        max(newcomers.amqp_s),
        statistics.median(newcomers.mqtt_s),
        max(newcomers.mqtt_s),
        len(newcomers.amqp_s),
        peak // MIB,
    )


def unread_bytes(port: int) -> int:
    """What was sent to this port and stands in buffers of the kernel: it has not been published."""
    total = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        unsent, unread = (int(part, 16) for part in fields[4].split(":"))
        if int(fields[1].partition(":")[2], 16) == port:
            total += unread
        elif int(fields[2].partition(":")[2], 16) == port:
            total += unsent
    return total


def run_flood(name: str, flood: Flood, seconds: float, cores: list[int]) -> Figures:
    try:
        with KINDS[name](cores[0], False) as broker:
            assert isinstance(broker, FloodBroker)
            return measure(broker, flood, seconds, cores[-1])
    except (BrokerFault, LoadFault, OSError) as fault:
        return Figures(0, 0, 0, 0, 0, 0, 0, 0, 0, str(fault))
