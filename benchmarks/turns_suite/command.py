"""`./dev bench turns [input ...]`: every input on a fresh broker with default limits."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from benchmarks.attack_suite.broker import ConfinedBroker
from benchmarks.attack_suite.confinement import Confinement
from benchmarks.suite.brokers import PROJECT
from benchmarks.suite.command import open_console, print_lines
from benchmarks.suite.merged_rows import (
    Progress,
    choose_names,
    find_missing,
    format_minutes,
    merge_rows,
    read_rows,
)
from benchmarks.suite.report import RESULTS
from benchmarks.turns_suite import amqp, mqtt, queues  # noqa: F401 they enter their inputs
from benchmarks.turns_suite.case import CASES, Case
from benchmarks.turns_suite.world import World

TURN_MS_MAX = 50.0
RESULTS_FILE = RESULTS / "turns.json"
MEMORY_BYTES = 4 << 30


@dataclass
class Found:
    name: str
    turn_ms: float = 0.0
    wait_ms: float = 0.0
    seconds: float = 0.0
    fault: str = ""


def measure(case: Case, scale: float) -> Found:
    cores = sorted(os.sched_getaffinity(0))
    found = Found(case.name)
    with (
        Confinement(MEMORY_BYTES) as confinement,
        ConfinedBroker(cores[0], confinement, ("broker.sys_interval=10", *case.settings), ()) as broker,
    ):
        assert isinstance(broker, ConfinedBroker)
        world = World(broker.ports, broker.folder, broker.pid, scale)
        witness = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.turns_suite.witness",
                str(broker.ports["mqtt"]),
                str(broker.pid),
            ],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert witness.stdout is not None
            witness.stdout.readline()
            prepared = case.prepare(world)
            world.wait_quiet()
            tell(witness, "begin")
            started = time.monotonic()
            case.act(world, prepared)
            found.seconds = time.monotonic() - started
            world.wait_quiet()  # what is left over, and the ticks behind it, belong to the input
            tell(witness, "end")
            answer: dict[str, Any] = json.loads(witness.stdout.readline())
            found.turn_ms, found.wait_ms = answer["turn_ms"], answer["wait_ms"]
            if broker.ending() is not None:
                found.fault = f"the broker ended with {broker.ending()}"
        except Exception as error:  # noqa: BLE001 told in the table; the other inputs follow
            found.fault = f"{type(error).__name__}: {error}"[:200]
        finally:
            witness.kill()
            witness.wait()
            world.close()
        for line in broker.log_lines():
            if "connection_failed" in line or "Traceback" in line:
                found.fault = line[:300]
    return found


def tell(witness: subprocess.Popen[str], word: str) -> None:
    assert witness.stdin is not None
    witness.stdin.write(word + "\n")
    witness.stdin.flush()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench turns", description=__doc__)
    parser.add_argument("input", nargs="*", help="names of inputs; all without")
    parser.add_argument("--list", action="store_true", help="name the inputs")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="the same as an input")
    parser.add_argument("--from", dest="first", default="", metavar="NAME", help="this one and all behind it")
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts; below 1 for a short look")
    parser.add_argument("--check", action="store_true", help=f"fail above {TURN_MS_MAX:.0f} ms")
    return parser.parse_args()


def main() -> int:
    parsed = parse()
    console = open_console(120)
    names = list(CASES)
    if parsed.list:
        return print_lines(console, [f"{each.name:26} {each.title}" for each in CASES.values()])
    try:
        chosen = choose_names(names, [*parsed.input, *parsed.only], parsed.first)
    except ValueError as fault:
        console.print(str(fault))
        return 2
    rows = read_rows(RESULTS_FILE, "inputs") if len(chosen) < len(names) else []
    results: list[Found] = []
    progress = Progress(len(chosen))
    for name in chosen:
        found = measure(CASES[name], parsed.scale)
        results.append(found)
        console.print(
            f"{name:26} longest turn {found.turn_ms:8.1f} ms, ping {found.wait_ms:8.1f} ms, {found.seconds:6.2f} s "
            f"{found.fault} ({progress.step()})",
            highlight=False,
            soft_wrap=True,
        )
        if parsed.scale == 1.0:
            rows = merge_rows(rows, [asdict(found)], names)
            RESULTS.mkdir(exist_ok=True)
            RESULTS_FILE.write_text(json.dumps({"inputs": rows}, indent=1) + "\n")
    table = Table("input", "longest turn ms", "longest ping ms", "what")
    for found in results:
        table.add_row(found.name, f"{found.turn_ms:.1f}", f"{found.wait_ms:.1f}", CASES[found.name].title)
    console.print(table)
    missing = find_missing(rows, names)
    console.print(f"took {format_minutes(progress.seconds())}; {len(missing)} inputs are not in the results")
    is_bad = any(found.turn_ms > TURN_MS_MAX or found.fault for found in results)
    return 1 if parsed.check and is_bad else 0
