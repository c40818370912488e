"""What one invocation measures, as far as all benchmarks are alike: scenarios, brokers, rounds, and the disk it runs on."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rich.console import Console

from benchmarks.suite.brokers import PROJECT, Broker
from benchmarks.suite.scenarios import Scenario

FOLDER = PROJECT / "build" / "bench"
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")

Measured = TypeVar("Measured", bound=Scenario)


class Named(Protocol):
    @property
    def name(self) -> str: ...


Chosen = TypeVar("Chosen", bound=Named)


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
    """With the options every benchmark begins with; `example` is the name of a scenario. One that compares no brokers names none."""
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
    if names:
        parser.add_argument(
            "--brokers", default=",".join(names), help=f"of {', '.join(names)}; separated by commas"
        )
    parser.add_argument("--rounds", type=int, default=0, help="rounds to take medians of (3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help=quick)
    if names:
        parser.add_argument("--measure-ms", type=int, default=0, help="length of the measured window")
    return parser


def parse_with(
    parser: argparse.ArgumentParser, arguments: list[str] | None, brokers: Iterable[str]
) -> argparse.Namespace:
    """Adds the options every benchmark ends with. Without arguments it reads those of the process."""
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    names = list(brokers)
    if not names:
        return parser.parse_args(arguments)
    parser.add_argument("--interpreted", action="store_true", help="do not compile the load generator")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.brokers.split(",") if name not in names]
    if unknown:
        parser.error(f"no broker is called {unknown[0]}; choose from {', '.join(names)}")
    return parsed


def choose(scenarios: Sequence[Chosen], names: Sequence[str] | None) -> tuple[Chosen, ...]:
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


def has_room(folder: Path, size_bytes: int, what: str, advice: str, console: Console) -> bool:
    """Says so when there is none: who needs it, and what to ask for instead."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < size_bytes:
        console.print(
            f"{what} needs {size_bytes / 2**30:.1f} GiB in {folder} and {free_bytes / 2**30:.1f} GiB are free; "
            f"choose another --folder, or {advice}."
        )
        return False
    return True


def read_filesystem(folder: Path) -> str:
    try:
        return find_filesystem(folder.resolve(), Path("/proc/mounts").read_text())
    except OSError:
        return "unknown"


def describe_filesystem(folder: Path, console: Console) -> str:
    """The kind of filesystem the brokers' files will be on; says so when that is no disk."""
    kind = read_filesystem(folder)
    if kind in MEMORY_FILESYSTEMS:
        console.print(f"[yellow]{folder} is in memory ({kind}): a sync there costs nothing.[/yellow]")
    return kind
