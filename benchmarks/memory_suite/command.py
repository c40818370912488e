"""`./dev bench memory`: every flood in turn, again and again for 30 minutes, against one broker that is never started again.

The kernel must not end it, ordinary clients beside the floods must be served, what the broker does about its memory must be
told, and memory must be normal at the end. Needs the right to make a memory control group.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.attack_suite.broker import read_others_share
from benchmarks.attack_suite.evidence import read_counters
from benchmarks.attack_suite.mqtt import Closed
from benchmarks.memory_suite.clients import Gone
from benchmarks.memory_suite.floods import FLOODS, MIB, Target
from benchmarks.memory_suite.limited_broker import LimitedBroker
from benchmarks.memory_suite.limited_group import LimitedGroup, NoGroup
from benchmarks.memory_suite.policies import Policies, count_policies
from benchmarks.memory_suite.probe import Probe
from benchmarks.memory_suite.verdicts import MemoryRun, check_memory_run, slowest_floods
from benchmarks.suite.brokers import BrokerFault
from benchmarks.suite.merged_rows import format_minutes
from benchmarks.suite.report import RESULTS
from benchmarks.suite.results import FAILED

NO_GROUP = 4
SETTLE_S = 60.0
NICE = 10  # the floods leave their core to the ordinary clients when both want it
COUNTERS = ("memory/", "messages/dropped/memory")

Row = dict[str, Any]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="of floods; a minute more at most for memory to come back"
    )
    parser.add_argument("--seconds", type=float, default=12.0, help="of one flood")
    parser.add_argument("--limit-mib", type=int, default=1024, help="of the control group")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of clients")
    parser.add_argument("--list", action="store_true", help="name the floods")
    parser.add_argument("--only", action="append", choices=list(FLOODS), help="this flood; may be repeated")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker, KEY=VALUE")
    parser.add_argument("--log", type=Path, help="where to leave the broker's log")
    return parser.parse_args()


def main() -> int:
    parsed = parse()
    if parsed.list:
        for name, flood in FLOODS.items():
            print(f"{name:22} {(flood.__doc__ or '').splitlines()[0]}")
        return 0
    try:
        group = LimitedGroup(parsed.limit_mib * MIB)
    except NoGroup as fault:
        print(f"skipped: {fault}")
        return NO_GROUP
    try:
        with LimitedBroker(group, parsed.set) as broker:
            assert isinstance(broker, LimitedBroker)
            try:
                return run(broker, group, parsed)
            finally:
                if parsed.log is not None:
                    parsed.log.write_bytes((broker.folder / "log").read_bytes())
    except BrokerFault as fault:
        print(fault)
        return 1
    finally:
        group.remove()


def run(broker: LimitedBroker, group: LimitedGroup, parsed: argparse.Namespace) -> int:
    began = time.monotonic()
    core = sorted(os.sched_getaffinity(0))[-1]
    probe = Probe({"mqtt": broker.port, "amqp": broker.amqp_port}, core)
    os.sched_setaffinity(0, {core})
    os.nice(NICE)
    waited, others = read_others_share(broker.pid)
    try:
        rows = flood_in_turn(broker, group, probe, parsed)
        probe.window("settling")
        found = MemoryRun(
            minutes=round((time.monotonic() - began) / 60, 1),
            floods=len(rows),
            rounds_least=min(sum(row["flood"] == name for row in rows) for name in parsed.only or FLOODS),
            is_alive=broker.is_alive(),
            killed=group.killed(),
            group_peak_mib=group.peak_bytes() // MIB,
            limit_mib=parsed.limit_mib,
        )
        if found.is_alive:
            waited_after, others_after = read_others_share(broker.pid)
            foreign_ns = max(0, waited_after - waited - (others_after - others))
            found.disturbed = foreign_ns / 1e9 / (time.monotonic() - began)
            found.counters = wait_normal(broker.port, broker.folder / "log")
            found.resident_after_mib = broker.resident() // MIB
            found.windows = probe.end()
    finally:
        probe.kill()
    found.policies = read_policies(broker.folder / "log")
    for row in rows:
        row["ordinary"] = found.windows.get(row["window"], {})
    return report(found, rows, time.monotonic() - began)


def flood_in_turn(
    broker: LimitedBroker, group: LimitedGroup, probe: Probe, parsed: argparse.Namespace
) -> list[Row]:
    """Until the time is over, or the broker is gone."""
    began = time.monotonic()
    deadline = began + parsed.minutes * 60
    rows: list[Row] = []
    for number, name in enumerate(itertools.cycle(parsed.only or FLOODS)):
        left = deadline - time.monotonic()
        if left <= 0 or not broker.is_alive() or group.killed():
            return rows
        window = f"{number}-{name}"
        probe.window(window)
        seconds = min(parsed.seconds, max(1.0, left))
        target = Target(broker.port, broker.amqp_port, seconds, parsed.scale)
        row = {"window": window, **run_flood(name, target, broker, group)}
        rows.append(row)
        told = " ".join(f"{key}={value}" for key, value in row.items() if key != "window")
        print(f"[{format_minutes(time.monotonic() - began)}] {told}", flush=True)
    return rows


def run_flood(name: str, target: Target, broker: LimitedBroker, group: LimitedGroup) -> Row:
    begin = time.monotonic()
    broker.watch()
    try:
        FLOODS[name](target)
    except (Gone, OSError) as fault:
        target.add(0, 1)
        print(f"{name}: {fault}")
    peak = broker.end_watch()
    return {
        "flood": name,
        "seconds": round(time.monotonic() - begin, 1),
        "sent_mib": target.sent_bytes // MIB,
        "closed": target.lost,
        "resident_peak_mib": peak // MIB,
        "resident_mib": broker.resident() // MIB,
        "group_peak_mib": group.peak_bytes() // MIB,
        "killed": group.killed(),
    }


def wait_normal(port: int, log: Path) -> dict[str, str]:
    """The broker's own figures when its memory is normal again and the log says so, or when the time for that is over."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = read_memory_counters(port)
        is_over = found.get("memory/state") == "normal" and not read_policies(log).still_held()
        if is_over or time.monotonic() > deadline:
            return found
        time.sleep(1)


def read_policies(log: Path) -> Policies:
    return count_policies(log.read_text(errors="replace").splitlines())


def read_memory_counters(port: int) -> dict[str, str]:
    try:
        found = read_counters(port, has_users=False)
    except (OSError, Closed) as error:
        return {"fault": str(error)}
    return {topic: value for topic, value in sorted(found.items()) if topic.startswith(COUNTERS)}


def report(found: MemoryRun, rows: list[Row], seconds: float) -> int:
    checks = check_memory_run(found)
    print()
    for measure, figures in found.windows.get("all", {}).items():
        print(
            f"{measure}: {figures['count']:,} times, p50 {figures['p50_ms']:.1f} ms, p99 {figures['p99_ms']:.1f} ms, "
            f"worst {figures['max_ms']:.1f} ms, {figures['failed']} failed {figures['fault']}"
        )
    print("p99 beside each flood, at worst: " + ", ".join(slowest_floods(found)))
    print("policies: " + " ".join(f"{key}={value}" for key, value in sorted(found.counters.items())))
    for check in checks:
        print(f"{check.verdict:9} {check.claim}: {check.measured} ({check.target})")
    print(f"took {format_minutes(seconds)}")
    RESULTS.mkdir(exist_ok=True)
    document = {"run": asdict(found), "checks": [asdict(check) for check in checks], "floods": rows}
    (RESULTS / "memory.json").write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(check.verdict == FAILED for check in checks) else 0
