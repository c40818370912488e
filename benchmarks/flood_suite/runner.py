"""Runs the floods: a fresh broker for each, Millstream and RabbitMQ in turn."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.flood_suite.brokers import HIGH_MARK, KINDS, MIB, FloodBroker
from benchmarks.flood_suite.load import READY, publish_bytes
from benchmarks.flood_suite.newcomer import Newcomers
from benchmarks.flood_suite.verdicts import Figures, Flood, find_faults
from benchmarks.suite.brokers import PROJECT, BrokerFault
from benchmarks.suite.report import RESULTS

WARM_UP_S = 2.0
ANSWER_S = 30.0
FLOODS = [
    Flood(*choice) for choice in itertools.product((5, 20), (1, 50), (0, 100), (False, True), (False, True))
]
QUICK = ("20x1-transient-plain-0", "5x50-durable-confirms-100")


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


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench flood",
        description="Publishers at full speed beside newcomers and consumers: Millstream and RabbitMQ.",
    )
    names = ", ".join(flood.name for flood in FLOODS)
    parser.add_argument(
        "--scenario", action="append", help=f"may be repeated, part of a name; one of: {names}"
    )
    parser.add_argument("--brokers", default=",".join(KINDS), help="comma-separated")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each flood")
    parser.add_argument("--quick", action="store_true", help="two floods, two seconds each")
    parser.add_argument("--check", action="store_true", help="exit with 1 when something does not hold")
    return parser.parse_args(arguments)


def choose(parsed: argparse.Namespace) -> list[Flood]:
    wanted: list[str] = parsed.scenario or ([*QUICK] if parsed.quick else [""])
    return [flood for flood in FLOODS if any(part in flood.name for part in wanted)]


def make_table(rows: list[dict[str, object]]) -> Table:
    table = Table(title="Floods: worst newcomer and rates per second")
    for column in ("flood", "broker", "AMQP", "MQTT", "published", "delivered", "share", "MiB", "verdict"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*[str(value) for value in row.values()])
    return table


def describe(flood: Flood, name: str, figures: Figures, verdict: str) -> dict[str, object]:
    return {
        "flood": flood.name,
        "broker": name,
        "amqp": f"{figures.amqp_worst_s * 1000:.0f} ms",
        "mqtt": f"{figures.mqtt_worst_s * 1000:.0f} ms",
        "published": f"{figures.published_rate:,.0f}",
        "delivered": f"{figures.delivered_rate:,.0f}",
        "share": f"{figures.share():.0%}",
        "mib": figures.resident_peak_mib,
        "verdict": verdict,
    }


def main(arguments: list[str] | None = None) -> int:
    parsed = parse_arguments(arguments)
    console = Console(width=150)
    cores = sorted(os.sched_getaffinity(0))
    seconds = 2.0 if parsed.quick else parsed.seconds
    names = [name for name in KINDS if name in parsed.brokers.split(",")]
    rows: list[dict[str, object]] = []
    document: list[dict[str, object]] = []
    failed = 0
    for flood in choose(parsed):
        found = {name: run_flood(name, flood, seconds, cores) for name in reversed(names)}
        ours = found.get("millstream")
        faults: list[str] = []
        if ours is not None:
            faults = find_faults(ours, found.get("rabbitmq"), flood.queues, HIGH_MARK // MIB)
            failed += bool(faults)
        for name in names:
            verdict = found[name].fault
            if name == "millstream":
                verdict = "; ".join(faults) or "holds"
            console.print(f"{flood.name} {name}: {verdict or 'measured'}", soft_wrap=True)
            rows.append(describe(flood, name, found[name], "fails" if faults else "holds"))
        figures = {name: found[name].document() for name in names}
        document.append({"flood": flood.name, "figures": figures, "faults": faults})
    console.print(make_table(rows))
    console.print(f"{len(document)} floods, {failed} with something that does not hold")
    RESULTS.mkdir(exist_ok=True)
    result = {"seconds": seconds, "high_mark_mib": HIGH_MARK // MIB, "floods": document}
    (RESULTS / "flood.json").write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed and parsed.check else 0
