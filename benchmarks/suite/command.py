"""The command of a benchmark that compares brokers, step by step: cores, generator, measuring, results, files."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.suite.bench import Bench
from benchmarks.suite.brokers import Millstream
from benchmarks.suite.generator import Generator
from benchmarks.suite.plan import Measured, Plan
from benchmarks.suite.report import Report
from benchmarks.suite.results import FAILED, Check, Summary


def open_console(width: int) -> Console:
    """As wide as the terminal; `width` when it goes to a file."""
    return Console(width=None if sys.stdout.isatty() else width)


def print_lines(console: Console, lines: Iterable[str]) -> int:
    for line in lines:
        console.print(line, highlight=False)
    return 0


def find_cores(console: Console) -> list[int]:
    """One for the broker, one for the generator; none, and it is said, when there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        console.print("The benchmark needs two cores: one for the broker, one for the load generator.")
        return []
    return cores


def run_command(
    parsed: argparse.Namespace,
    scenario_lines: Iterable[str],
    width: int,
    measure: Callable[[argparse.Namespace, list[int], Console], int],
) -> int:
    """0 when all was measured, 1 when a promise failed and --check was given, 2 on misuse."""
    console = open_console(width)
    if parsed.list:
        return print_lines(console, scenario_lines)
    cores = find_cores(console)
    return measure(parsed, cores, console) if cores else 2


def prepare_generator(find: Callable[[bool], Generator], is_interpreted: bool, console: Console) -> Generator:
    console.print("Preparing the load generator ...")
    generator = find(is_interpreted)
    console.print(f"Load generator: {generator.note}", highlight=False)
    if not generator.is_compiled:
        console.print("[yellow]It runs interpreted: any figure it limits is refused.[/yellow]")
    return generator


def has_measured(bench: Bench[Measured], console: Console) -> bool:
    """Runs it; False, and it is said, when there is no figure at all."""
    bench.run()
    if not bench.runs:
        console.print("Nothing was measured: no broker could be started.")
    return bool(bench.runs)


def describe_machine(cores: Sequence[int]) -> dict[str, object]:
    """The class of the machine, nothing that identifies it."""
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass  # the figures do not depend on knowing the processor's name
    return {
        "processor": model,
        "cores": len(cores),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


class Results:
    """What one invocation found, from the moment it begins to measure."""

    def __init__(self, generator: Generator, cores: Sequence[int], **place: object) -> None:
        """`place` is what else the figures depend on."""
        self._generator = generator
        self._machine = {**describe_machine(cores), **place}
        self._started = time.monotonic()

    def document(
        self,
        plan: Plan[Measured],
        bench: Bench[Measured],
        summary: Summary,
        checks: Sequence[Check],
        sizes: Mapping[str, object],
        is_whole: bool,
    ) -> dict[str, object]:
        """As the file of results has it."""
        is_ours = any(name.startswith("millstream") for name in bench.versions)
        return {
            "machine": self._machine,
            "versions": bench.versions,
            "left_out": bench.left_out,
            "is_millstream_compiled": is_ours and Millstream(0).is_compiled(),
            "is_generator_compiled": self._generator.is_compiled,
            "rounds": plan.rounds,
            "measure_ms": plan.measure_ms,
            **sizes,
            "is_whole": is_whole,
            "seconds_taken": round(time.monotonic() - self._started),
            "figures": summary.rows(),
            "checks": [asdict(check) for check in checks],
            "runs": [asdict(run) for run in bench.runs],
        }


def finish(report: Report, must_hold: bool, console: Console) -> int:
    """Prints and writes it; 1 when a promise failed and that matters."""
    report.print_to(console)
    for path in report.write_files():
        console.print(f"written: {path}", highlight=False)
    return 1 if must_hold and any(check.verdict == FAILED for check in report.checks) else 0
