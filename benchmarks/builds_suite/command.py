"""The command line of `./dev bench builds`."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.builds_suite.pairs import Comparison, Pair, compare, judge
from benchmarks.builds_suite.suites import SUITES, BuildSuite, find_build
from benchmarks.suite.brokers import BrokerFault, Millstream, find_python_path
from benchmarks.suite.command import describe_machine, find_cores, open_console, prepare_generator
from benchmarks.suite.generator import GeneratorFault, find_generator, find_queue_generator
from benchmarks.suite.plan import FOLDER, use_folder
from benchmarks.suite.report import RESULTS, print_checks
from benchmarks.suite.results import FAILED, Check, Facts
from benchmarks.suite.scenarios import Scenario

RATIO_MAX = 1.02


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench builds",
        description=__doc__,
        epilog="example: git worktree add ../old v0.1.0; (cd ../old && ./dev millstream --version); "
        "./dev bench builds --old ../old --suite mqtt",
    )
    parser.add_argument("--old", type=Path, required=True, help="a checkout of the older version, built")
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="only this; may be repeated")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only this; may be repeated")
    parser.add_argument("--pairs", type=int, default=7, help="windows of each build")
    parser.add_argument("--measure-ms", type=int, default=800, help="length of a window")
    parser.add_argument("--max", type=float, default=RATIO_MAX, help="cost of a message, new to old build")
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    return parser.parse_args()


def main() -> int:
    parsed = parse()
    console = open_console(160)
    old_build = find_build(parsed.old.resolve())
    if old_build is None:
        console.print(f"{parsed.old} is no checkout of Millstream; type: git worktree add {parsed.old} TAG")
        return 2
    cores = find_cores(console)
    if not cores:
        return 2
    use_folder(FOLDER)
    comparisons: list[Comparison] = []
    checks: list[Check] = []
    for name in parsed.suite or SUITES:
        find = find_generator if name == "mqtt" else find_queue_generator
        suite = SUITES[name](prepare_generator(find, False, console), cores, parsed.measure_ms)
        for scenario in suite.scenarios():
            if parsed.scenario and scenario.name not in parsed.scenario:
                continue
            try:
                pairs = measure(suite, scenario, str(old_build), parsed.pairs)
            except (BrokerFault, GeneratorFault) as fault:
                checks.append(Check(scenario.name, "measured", str(fault), "", FAILED))
                console.print(f"{scenario.name:18} [red]{fault}[/red]", highlight=False)
                continue
            comparisons.append(compare(f"{name} {scenario.name}", pairs))
            checks.append(judge(comparisons[-1], parsed.max))
            say(console, comparisons[-1])
    return finish(console, parsed, cores, comparisons, checks)


def measure(suite: BuildSuite, scenario: Scenario, old_build: str, count: int) -> list[Pair]:
    """One broker of each build at a time has work; which is first changes from pair to pair."""
    builds = {"old": old_build, "new": find_python_path()}
    pairs: list[Pair] = []
    with ExitStack() as stack:
        brokers: dict[str, Millstream] = {}
        for number in range(count):
            facts: dict[str, Facts] = {}
            for name in ("old", "new") if number % 2 == 0 else ("new", "old"):
                if suite.is_fresh:
                    with suite.start(scenario, builds[name]) as broker:
                        facts[name] = suite.measure(broker, scenario)
                    continue
                if name not in brokers:
                    brokers[name] = suite.start(scenario, builds[name])
                    stack.enter_context(brokers[name])
                facts[name] = suite.measure(brokers[name], scenario)
            pairs.append(Pair(facts["old"], facts["new"]))
    return pairs


def say(console: Console, found: Comparison) -> None:
    console.print(
        f"{found.scenario:26} old {found.old_us:9.3f} us  new {found.new_us:9.3f} us  "
        f"{found.ratio:.3f} x ({found.ratio_low:.3f} to {found.ratio_high:.3f})  "
        f"cheapest windows {found.best_ratio:.3f} x",
        highlight=False,
    )


def finish(
    console: Console,
    parsed: argparse.Namespace,
    cores: list[int],
    comparisons: list[Comparison],
    checks: list[Check],
) -> int:
    document = {
        "machine": describe_machine(cores),
        "new": Millstream(cores[0]).version(),
        "pairs": parsed.pairs,
        "measure_ms": parsed.measure_ms,
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "builds-partial.json").write_text(json.dumps(document, indent=1) + "\n")
    print_checks(console, checks, {"seconds_taken": "-"})
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0
