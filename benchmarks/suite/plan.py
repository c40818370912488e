"""What one invocation measures, as far as all benchmarks are alike: scenarios, brokers, rounds, and the disk it runs on."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console

from benchmarks.suite.brokers import PROJECT, Broker
from benchmarks.suite.scenarios import Scenario

FOLDER = PROJECT / "build" / "bench"
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")

Measured = TypeVar("Measured", bound=Scenario)


@dataclass(frozen=True)
class Plan(Generic[Measured]):
    """What one invocation measures."""

    scenarios: tuple[Measured, ...]
    brokers: tuple[str, ...]
    rounds: int
    warmup_ms: int
    measure_ms: int
    is_quick: bool

    def covers(self, scenarios: Sequence[Scenario], kinds: Mapping[str, type[Broker]]) -> bool:
        """Whether it is a long run of everything there is."""
        is_all = len(self.scenarios) == len(scenarios) and len(self.brokers) == len(kinds)
        return is_all and not self.is_quick


def make_parser(
    name: str,
    description: str,
    example: str,
    scenarios: Iterable[str],
    brokers: Iterable[str],
    quick: str,
) -> argparse.ArgumentParser:
    """With the options every benchmark begins with; `example` is the name of a scenario."""
    command = f"./dev bench {name}"
    parser = argparse.ArgumentParser(
        prog=command,
        description=description,
        epilog=f"examples: {command} --quick | {command} --scenario {example} --rounds 5",
    )
    names = list(brokers)
    parser.add_argument(
        "--scenario", action="append", choices=list(scenarios), metavar="NAME", help="only this; repeatable"
    )
    parser.add_argument(
        "--brokers", default=",".join(names), help=f"of {', '.join(names)}; separated by commas"
    )
    parser.add_argument("--rounds", type=int, default=0, help="rounds to take medians of (3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--measure-ms", type=int, default=0, help="length of the measured window")
    return parser


def parse_with(
    parser: argparse.ArgumentParser, arguments: list[str], brokers: Iterable[str]
) -> argparse.Namespace:
    """Adds the options every benchmark ends with."""
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument("--interpreted", action="store_true", help="do not compile the load generator")
    parsed = parser.parse_args(arguments)
    names = list(brokers)
    unknown = [name for name in parsed.brokers.split(",") if name not in names]
    if unknown:
        parser.error(f"no broker is called {unknown[0]}; choose from {', '.join(names)}")
    return parsed


def choose(scenarios: Sequence[Measured], names: Sequence[str] | None) -> tuple[Measured, ...]:
    """Those that are named; all when none is."""
    return tuple(scenario for scenario in scenarios if not names or scenario.name in names)


def count_rounds(parsed: argparse.Namespace) -> int:
    return max(1, parsed.rounds or (1 if parsed.quick else 3))


def find_filesystem(folder: Path, mounts: str) -> str:
    """The kind of the filesystem a folder is on, from the text of /proc/mounts; the longest mount point wins."""
    path = str(folder)
    best = ""
    kind = "unknown"
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1]
        is_above = point == "/" or path == point or path.startswith(f"{point}/")
        if is_above and len(point) >= len(best):
            best = point
            kind = fields[2]
    return kind


def use_folder(folder: Path) -> None:
    """Every broker makes its own folder in here."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(folder)


def describe_filesystem(folder: Path, console: Console) -> str:
    """The kind of filesystem the brokers' files will be on; says so when that is no disk."""
    try:
        kind = find_filesystem(folder.resolve(), Path("/proc/mounts").read_text())
    except OSError:
        return "unknown"
    if kind in MEMORY_FILESYSTEMS:
        console.print(f"[yellow]{folder} is in memory ({kind}): a sync there costs nothing.[/yellow]")
    return kind
