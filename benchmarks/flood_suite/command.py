"""The command line of `./dev bench flood`: every flood on Millstream and on RabbitMQ, and what does not hold."""

from __future__ import annotations

import argparse
import itertools
import json
import os

from rich.console import Console
from rich.table import Table

from benchmarks.flood_suite.brokers import HIGH_MARK, KINDS, MIB
from benchmarks.flood_suite.runner import run_flood
from benchmarks.flood_suite.verdicts import Figures, Flood, find_faults
from benchmarks.suite.merged_rows import Progress, Row, find_missing, format_minutes, merge_rows, read_rows
from benchmarks.suite.report import RESULTS

FLOODS = [
    Flood(*choice) for choice in itertools.product((5, 20), (1, 50), (0, 100), (False, True), (False, True))
]
NAMES = [flood.name for flood in FLOODS]
QUICK = ("20x1-transient-plain-0", "5x50-durable-confirms-100")
OURS = "millstream"
THEIRS = "rabbitmq"


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench flood",
        description="Publishers at full speed beside newcomers and consumers: Millstream and RabbitMQ.",
    )
    parser.add_argument("--list", action="store_true", help="name all floods")
    parser.add_argument(
        "--only",
        "--scenario",
        action="append",
        metavar="NAME",
        help="only floods with this in their name; may be repeated; results are merged with those of runs before",
    )
    parser.add_argument("--brokers", default=",".join(KINDS), help="comma-separated")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each flood")
    parser.add_argument("--quick", action="store_true", help="two floods, two seconds each")
    parser.add_argument("--check", action="store_true", help="exit with 1 when something does not hold")
    return parser.parse_args(arguments)


def choose(parsed: argparse.Namespace) -> list[Flood]:
    wanted: list[str] = parsed.only or ([*QUICK] if parsed.quick else [""])
    return [flood for flood in FLOODS if any(part in flood.name for part in wanted)]


def compare(flood: Flood, found: dict[str, Figures]) -> list[str]:
    """What does not hold of ours; also that there was nothing to compare with, where it was asked for."""
    if OURS not in found:
        return []
    theirs = found.get(THEIRS)
    faults = find_faults(found[OURS], theirs, flood.queues, HIGH_MARK // MIB)
    if theirs is not None and theirs.fault:
        faults.append(f"not compared: {theirs.fault}")
    return faults


def make_table(rows: list[Row]) -> Table:
    table = Table(title="Floods: worst newcomer and rates per second")
    for column in ("flood", "broker", "AMQP", "MQTT", "published", "delivered", "share", "MiB", "verdict"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        for name, figures in row["figures"].items():
            verdict = "" if name != OURS else "fails" if row["faults"] else "holds"
            table.add_row(row["name"], name, *describe(figures), verdict)
    return table


def describe(figures: Row) -> list[str]:
    return [
        f"{figures['amqp_worst_s'] * 1000:.0f} ms",
        f"{figures['mqtt_worst_s'] * 1000:.0f} ms",
        f"{figures['published_rate']:,.0f}",
        f"{figures['delivered_rate']:,.0f}",
        f"{figures['share']:.0%}",
        f"{figures['resident_peak_mib']}",
    ]


def run_all(
    floods: list[Flood], names: list[str], seconds: float, console: Console, progress: Progress
) -> list[Row]:
    cores = sorted(os.sched_getaffinity(0))
    rows: list[Row] = []
    for flood in floods:
        found = {name: run_flood(name, flood, seconds, cores) for name in reversed(names)}
        faults = compare(flood, found)
        figures = {name: found[name].document() for name in names}
        rows.append({"name": flood.name, "seconds": seconds, "figures": figures, "faults": faults})
        console.print(f"{flood.name}: {'; '.join(faults) or 'holds'}", soft_wrap=True, highlight=False)
        console.print(f"  {progress.step()}", highlight=False)
    return rows


def main(arguments: list[str] | None = None) -> int:
    parsed = parse_arguments(arguments)
    console = Console(width=150)
    if parsed.list:
        for name in NAMES:
            console.print(name, highlight=False)
        return 0
    floods = choose(parsed)
    names = [name for name in KINDS if name in parsed.brokers.split(",")]
    if not floods or not names:
        console.print("No flood and broker is called so; type: ./dev bench flood --list")
        return 2
    progress = Progress(len(floods))
    rows = run_all(floods, names, 2.0 if parsed.quick else parsed.seconds, console, progress)
    failed = sum(bool(row["faults"]) for row in rows)
    console.print(make_table(rows))
    took = format_minutes(progress.seconds())
    console.print(f"{len(rows)} floods, {failed} with something that does not hold, {took}")
    if not parsed.quick:
        write_results(rows, console)
    return 1 if failed and parsed.check else 0


def write_results(rows: list[Row], console: Console) -> None:
    path = RESULTS / "flood.json"
    is_piece = len(rows) < len(FLOODS)
    merged = merge_rows(read_rows(path, "floods") if is_piece else [], rows, NAMES)
    missing = find_missing(merged, NAMES)
    failed = sum(bool(row["faults"]) for row in merged)
    console.print(f"in {path.name}: {len(merged)} floods, {failed} with something that does not hold")
    if missing:
        console.print(f"  {len(missing)} are missing, the first is {missing[0]}")
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({"high_mark_mib": HIGH_MARK // MIB, "floods": merged}, indent=1) + "\n")
