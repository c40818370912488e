"""What one invocation of `bench queues` measures: its command line and its sizes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.scenarios import BY_NAME, SCENARIOS, QueueScenario
from benchmarks.suite.plan import FOLDER, Plan, choose, count_rounds, make_parser, parse_with

RESTART_BYTES_EACH = 3 * 1100  # log, segment and a checkpoint on its way
MEMORY_BYTES_EACH = 3 * 150
MAY_BE_ABSENT = ("nats-sync",)  # releases before 2.10 do not know the setting


@dataclass(frozen=True)
class QueuePlan(Plan[QueueScenario]):
    floor_ms: int
    fill: int
    messages: int
    restart_messages: int
    folder: Path
    sync_us: int = 0

    def is_whole(self, left_out: dict[str, str]) -> bool:
        """Whether the published page may be written from it."""
        missing = [name for name in left_out if name not in MAY_BE_ABSENT]
        return self.covers(SCENARIOS, KINDS) and not self.sync_us and not missing

    def disk_bytes(self) -> int:
        """Room the largest scenario of the plan needs."""
        names = {scenario.name for scenario in self.scenarios}
        needed = [256 * 1024 * 1024, self.fill * 3 * 400]
        if "restart" in names:
            needed.append(self.restart_messages * RESTART_BYTES_EACH)
        if "memory" in names:
            needed.append(self.messages * MEMORY_BYTES_EACH)
        return max(needed)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser(
        "queues",
        "Measure Millstream's queues against the disk, NATS JetStream and RabbitMQ.",
        "publish-16",
        BY_NAME,
        KINDS,
        "one short round with small queues",
    )
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
    parsed = parse_with(parser, arguments, KINDS)
    for name in ("fill", "messages", "restart_messages"):
        if 0 < getattr(parsed, name) < 100 or getattr(parsed, name) < 0:
            parser.error(f"--{name.replace('_', '-')} must be at least 100")
    return parsed


def make_plan(parsed: argparse.Namespace) -> QueuePlan:
    is_quick = parsed.quick
    return QueuePlan(
        scenarios=choose(SCENARIOS, parsed.scenario),
        brokers=tuple(name for name in KINDS if name in parsed.brokers.split(",")),
        rounds=count_rounds(parsed),
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
