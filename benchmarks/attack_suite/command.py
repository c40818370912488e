"""`./dev bench attack`: every attack on a broker of its own.

About 20 seconds each and 25 minutes in all; a broker that does not give its memory back takes up to a minute more. A run
may be made in pieces (--only, --from, --missing): their results are merged into one file, written after each attack.
"""

from __future__ import annotations

import argparse
import os
import time

from rich.console import Console

from benchmarks.attack_suite.classic import run_classic
from benchmarks.attack_suite.report import (
    RESULTS_FILE,
    make_row,
    print_observation,
    print_summary,
    write_results,
)
from benchmarks.attack_suite.runner import RECOVERY_S, AttackRun, Observation
from benchmarks.attack_suite.table import ATTACKS
from benchmarks.attack_suite.verdicts import check_attack
from benchmarks.suite.brokers import BrokerFault, Millstream
from benchmarks.suite.command import describe_machine, find_cores, open_console, print_lines
from benchmarks.suite.generator import GeneratorFault
from benchmarks.suite.merged_rows import (
    Progress,
    Row,
    choose_names,
    find_missing,
    format_minutes,
    merge_rows,
    read_rows,
)
from benchmarks.suite.results import FAILED, Check

CLASSIC = "classic"
NAMES = [*ATTACKS, CLASSIC]
SECONDS = 6.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name all attacks")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument("--from", dest="first", default="", metavar="NAME", help="this one and all behind it")
    parser.add_argument("--missing", action="store_true", help="only those that are not in the results yet")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of each attack")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of counts of connections, messages and filters"
    )
    parser.add_argument(
        "--recovery", type=float, default=RECOVERY_S, help="seconds in which memory must be back"
    )
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    return parser.parse_args()


def main() -> int:
    parsed = parse()
    console = open_console(200)
    if parsed.list:
        lines = [f"{attack.name:28} {attack.title}" for attack in ATTACKS.values()]
        return print_lines(
            console, [*lines, f"{CLASSIC:28} unfinished CONNECTs and stopped readers, in depth"]
        )
    try:
        chosen = choose_names(NAMES, parsed.only, parsed.first)
    except ValueError as fault:
        console.print(str(fault))
        return 2
    cores = find_cores(console)
    return run(parsed, chosen, cores, console) if cores else 2


def run(parsed: argparse.Namespace, chosen: list[str], cores: list[int], console: Console) -> int:
    is_piece = parsed.missing or len(chosen) < len(NAMES)
    rows = read_rows(RESULTS_FILE, "attacks") if is_piece else []
    if parsed.missing:
        chosen = [name for name in chosen if name in find_missing(rows, NAMES)]
    os.sched_setaffinity(0, {cores[1]})  # the broker's core is its own
    version, machine = Millstream(cores[0]).version(), describe_machine(cores)
    is_kept = parsed.scale == 1 and parsed.seconds >= SECONDS  # a short look is no result
    checks: list[Check] = []
    written: list[str] = []
    progress = Progress(len(chosen))
    for name in chosen:
        began = time.monotonic()
        judged, found = attack_once(name, parsed, cores, console)
        checks += judged
        if is_kept:
            rows = merge_rows(rows, [make_row(name, version, time.monotonic() - began, judged, found)], NAMES)
            written = write_results(machine, rows, ATTACKS, not find_missing(rows, NAMES))
        console.print(f"  {progress.step()}", highlight=False)
    print_summary(console, checks)
    tell_results(rows if is_kept else [], written, progress, console)
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0


def attack_once(
    name: str, parsed: argparse.Namespace, cores: list[int], console: Console
) -> tuple[list[Check], Observation | None]:
    try:
        if name == CLASSIC:
            return run_classic(console, cores), None
        console.print(f"{name}: {ATTACKS[name].title}", highlight=False)
        found = AttackRun(ATTACKS[name], cores, parsed.seconds, parsed.scale, parsed.recovery).run()
    except (BrokerFault, GeneratorFault) as fault:
        console.print(f"  [red]{fault}[/red]", highlight=False)
        return [Check(name, "ran", str(fault), "", FAILED)], None
    judged = check_attack(found)
    print_observation(console, judged, found)
    return judged, found


def tell_results(rows: list[Row], written: list[str], progress: Progress, console: Console) -> None:
    console.print(f"took {format_minutes(progress.seconds())}", highlight=False)
    for path in written:
        console.print(f"written: {path}", highlight=False)
    missing = find_missing(rows, NAMES) if written else []
    if missing:
        console.print(
            f"{len(missing)} of {len(NAMES)} attacks are not in the results yet; go on with: ./dev bench attack --missing",
            highlight=False,
        )
    failed = [row["name"] for row in rows if any(check["verdict"] == FAILED for check in row["checks"])]
    if written:
        console.print(f"in the results: {len(rows)} attacks, not holding: {', '.join(failed) or 'none'}")
