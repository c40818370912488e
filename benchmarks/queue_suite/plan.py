"""What one invocation of `bench queues` measures: its command line, its sizes, and the disk it runs on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.scenarios import BY_NAME, SCENARIOS, QueueScenario

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "build" / "bench"
RESTART_BYTES_EACH = 3 * 1100  # log, segment and a checkpoint on its way
MEMORY_BYTES_EACH = 3 * 150
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
MAY_BE_ABSENT = ("nats-sync",)  # releases before 2.10 do not know the setting


@dataclass(frozen=True)
class Plan:
    scenarios: tuple[QueueScenario, ...]
    brokers: tuple[str, ...]
    rounds: int
    warmup_ms: int
    measure_ms: int
    floor_ms: int
    fill: int
    messages: int
    restart_messages: int
    folder: Path
    is_quick: bool
    sync_us: int = 0

    def is_whole(self, left_out: dict[str, str]) -> bool:
        """Whether the published page may be written from it."""
        missing = [name for name in left_out if name not in MAY_BE_ABSENT]
        is_all = len(self.scenarios) == len(SCENARIOS) and len(self.brokers) == len(KINDS)
        return not self.is_quick and not self.sync_us and is_all and not missing

    def disk_bytes(self) -> int:
        """Room the largest scenario of the plan needs."""
        names = {scenario.name for scenario in self.scenarios}
        needed = [256 * 1024 * 1024, self.fill * 3 * 400]
        if "restart" in names:
            needed.append(self.restart_messages * RESTART_BYTES_EACH)
        if "memory" in names:
            needed.append(self.messages * MEMORY_BYTES_EACH)
        return max(needed)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench queues",
        description="Measure Millstream's queues against the disk, NATS JetStream and RabbitMQ.",
        epilog="examples: ./dev bench queues --quick | ./dev bench queues --scenario publish-16 --rounds 5",
    )
    parser.add_argument(
        "--scenario", action="append", choices=list(BY_NAME), metavar="NAME", help="only this; repeatable"
    )
    parser.add_argument(
        "--brokers", default=",".join(KINDS), help=f"of {', '.join(KINDS)}; separated by commas"
    )
    parser.add_argument("--rounds", type=int, default=0, help="rounds to take medians of (3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="one short round with small queues")
    parser.add_argument("--measure-ms", type=int, default=0, help="length of the measured window")
    parser.add_argument("--fill", type=int, default=0, help="messages a consumer finds waiting (200,000)")
    parser.add_argument(
        "--messages", type=int, default=0, help="messages in the stream whose memory is measured (10,000,000)"
    )
    parser.add_argument(
        "--restart-messages", type=int, default=0, help="messages of 1 KiB queued at the restart (1,000,000)"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where brokers keep their files; on the disk to measure"
    )
    parser.add_argument(
        "--sync-us",
        type=int,
        default=0,
        help="so much longer for every sync, the floors included: a slower disk",
    )
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument("--interpreted", action="store_true", help="do not compile the load generator")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.brokers.split(",") if name not in KINDS]
    if unknown:
        parser.error(f"no broker is called {unknown[0]}; choose from {', '.join(KINDS)}")
    for name in ("fill", "messages", "restart_messages"):
        if 0 < getattr(parsed, name) < 100 or getattr(parsed, name) < 0:
            parser.error(f"--{name.replace('_', '-')} must be at least 100")
    return parsed


def make_plan(parsed: argparse.Namespace) -> Plan:
    chosen = parsed.scenario or list(BY_NAME)
    is_quick = parsed.quick
    return Plan(
        scenarios=tuple(scenario for scenario in SCENARIOS if scenario.name in chosen),
        brokers=tuple(name for name in KINDS if name in parsed.brokers.split(",")),
        rounds=max(1, parsed.rounds or (1 if is_quick else 3)),
        warmup_ms=200 if is_quick else 500,
        measure_ms=parsed.measure_ms or (700 if is_quick else 3000),
        floor_ms=200 if is_quick else 700,
        fill=parsed.fill or (20_000 if is_quick else 200_000),
        messages=parsed.messages or (100_000 if is_quick else 10_000_000),
        restart_messages=parsed.restart_messages or (10_000 if is_quick else 1_000_000),
        folder=parsed.folder,
        is_quick=is_quick,
        sync_us=max(0, parsed.sync_us),
    )


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
