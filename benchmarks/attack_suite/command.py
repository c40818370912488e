"""The command line of `./dev bench attack`."""

from __future__ import annotations

import argparse
import os

from rich.console import Console

from benchmarks.attack_suite.classic import run_classic
from benchmarks.attack_suite.report import print_observation, print_summary, write_results
from benchmarks.attack_suite.runner import RECOVERY_S, AttackRun, Observation
from benchmarks.attack_suite.table import ATTACKS
from benchmarks.attack_suite.verdicts import check_attack
from benchmarks.suite.brokers import BrokerFault, Millstream
from benchmarks.suite.command import describe_machine, find_cores, open_console, print_lines
from benchmarks.suite.generator import GeneratorFault
from benchmarks.suite.results import FAILED, Check

CLASSIC = "classic"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench attack", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name all attacks")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each attack")
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
    unknown = [name for name in parsed.only if name not in ATTACKS and name != CLASSIC]
    if unknown:
        console.print(f"There is no attack called {unknown[0]}; type: ./dev bench attack --list")
        return 2
    cores = find_cores(console)
    return run(parsed, cores, console) if cores else 2


def run(parsed: argparse.Namespace, cores: list[int], console: Console) -> int:
    os.sched_setaffinity(0, {cores[1]})  # the broker's core is its own
    checks: list[Check] = []
    observations: list[Observation] = []
    for name in parsed.only or [*ATTACKS, CLASSIC]:
        if name == CLASSIC:
            try:
                checks += run_classic(console, cores)
            except (BrokerFault, GeneratorFault) as fault:
                console.print(f"[red]{fault}[/red]", highlight=False)
                checks.append(Check(name, "ran", str(fault), "", FAILED))
            continue
        console.print(f"{name}: {ATTACKS[name].title}", highlight=False)
        try:
            found = AttackRun(ATTACKS[name], cores, parsed.seconds, parsed.scale, parsed.recovery).run()
        except BrokerFault as fault:
            console.print(f"  [red]{fault}[/red]", highlight=False)
            checks.append(Check(name, "ran", str(fault), "", FAILED))
            continue
        judged = check_attack(found)
        print_observation(console, judged, found)
        observations.append(found)
        checks += judged
    print_summary(console, checks)
    is_whole = not parsed.only and parsed.scale == 1
    version = Millstream(cores[0]).version()
    for path in write_results(describe_machine(cores), version, observations, checks, ATTACKS, is_whole):
        console.print(f"written: {path}", highlight=False)
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0
