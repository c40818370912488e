"""Runs the scenarios of `bench spark`: one broker, one session, all sides of a scenario in turn in every round."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import time
from dataclasses import asdict

from rich.console import Console

from benchmarks.spark_suite.plan import Plan, make_plan, parse_arguments
from benchmarks.spark_suite.results import check_spark, cpu_us_of, disturbance, rate_of, summarize
from benchmarks.spark_suite.scenarios import SCENARIOS, SIDES, SparkScenario
from benchmarks.suite.brokers import BrokerFault, Millstream
from benchmarks.suite.command import describe_machine, finish, open_console, print_lines
from benchmarks.suite.generator import GeneratorFault
from benchmarks.suite.plan import has_room, read_filesystem, use_folder
from benchmarks.suite.results import Run, number

NEEDED = ("pyspark", "pyarrow", "pandas", "deltalake")


class SparkBench:
    """One invocation: its plan and the runs so far."""

    def __init__(self, plan: Plan, cores: list[int], console: Console) -> None:
        self._plan = plan
        self._cores = cores
        self._console = console
        self.runs: list[Run] = []

    def run(self) -> None:
        from benchmarks.spark_suite.measures import Measures
        from benchmarks.spark_suite.world import SparkWorld

        plan = self._plan
        self._say("Starting a broker with its reader, and Spark ...")
        with SparkWorld(self._cores, plan.memory) as world:
            measures = Measures(world, plan, self._say)
            for number_of_round in range(1, plan.rounds + 1):
                for scenario in plan.scenarios:
                    if number_of_round > 1 and scenario.is_once:
                        continue
                    title = f"[bold]{scenario.title}[/bold] (round {number_of_round} of {plan.rounds})"
                    self._console.print(title, highlight=False)
                    # Turn and turn about, so that none is always the one behind a fill or a pause; but the foreign
                    # load needs to know what Spark used.
                    is_turned = number_of_round % 2 == 0 and scenario.name != "interference"
                    for side in reversed(scenario.sides) if is_turned else scenario.sides:
                        self._measure(measures, scenario, side, number_of_round)

    def _measure(self, measures: object, scenario: SparkScenario, side: str, number_of_round: int) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from benchmarks.spark_suite.measures import Measures

        assert isinstance(measures, Measures)
        try:
            facts = measures.measure(scenario.name, side)
            run = Run(scenario.name, side, number_of_round, facts=facts)
            text = describe_run(scenario, run)
        except (PySparkException, Py4JError, GeneratorFault, BrokerFault, ValueError, OSError) as fault:
            lines = str(fault).strip().splitlines() or [type(fault).__name__]
            run = Run(scenario.name, side, number_of_round, fault=lines[0][:300])
            text = f"[red]{run.fault}[/red]"
        self.runs.append(run)
        self._console.print(f"  {SIDES[side]:26} {text}", highlight=False)

    def _say(self, text: str) -> None:
        self._console.print(f"  [dim]{text}[/dim]" if text[0].islower() else text, highlight=False)


def describe_run(scenario: SparkScenario, run: Run) -> str:
    facts = run.facts
    mark = "  [yellow]disturbed[/yellow]" if disturbance(facts) > 0.1 else ""
    if scenario.name == "microbatch":
        return f"{number(facts, 'trigger_ms'):.0f} ms a trigger{mark}"
    if scenario.name == "latency":
        return f"p50 {number(facts, 'p50_ms'):,.0f} ms, p95 {number(facts, 'p95_ms'):,.0f} ms{mark}"
    if scenario.name == "interference":
        return (
            f"{number(facts, 'throughput_rate'):11,.0f} publishes/s beside {number(facts, 'throughput_used_cores'):.2f} "
            f"cores, p99 {number(facts, 'answer_p99_us'):,.0f} us beside "
            f"{number(facts, 'answer_used_cores'):.2f} cores{mark}"
        )
    parts = ", ".join(f"{part} {cpu_us_of(facts, part):.2f}" for part in ("jvm", "python", "reader"))
    return f"{rate_of(facts):11,.0f} rows/s  {cpu_us_of(facts):.2f} us CPU a row ({parts}){mark}"


def list_scenarios() -> list[str]:
    return [
        f"{scenario.name:14} {scenario.title:50} {', '.join(SIDES[side] for side in scenario.sides)}"
        for scenario in SCENARIOS
    ]


def find_missing() -> str:
    """The first thing that is not installed, as what to type."""
    for name in NEEDED:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is not installed; type: ./dev bench spark"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "there is no Java runtime; type: apt-get install default-jre-headless"
    return ""


def find_versions(cores: list[int]) -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()
    return {
        "Millstream": Millstream(cores[0]).version(),
        **{name: importlib.metadata.version(name) for name in NEEDED},
        "Java": java[0] if java else "unknown",
    }


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when all was measured, 1 when a promise failed and --check was given, 2 on misuse."""
    parsed = parse_arguments(arguments)
    console = open_console(180)
    if parsed.list:
        return print_lines(console, list_scenarios())
    cores = sorted(os.sched_getaffinity(0))
    missing = find_missing() or ("the benchmark needs two cores" if len(cores) < 2 else "")
    if missing:
        console.print(missing)
        return 2
    plan = make_plan(parsed)
    use_folder(plan.folder)
    if not has_room(plan.folder, plan.disk_bytes(), "This", "fewer --rows and --long-rows", console):
        return 2
    filesystem = read_filesystem(plan.folder)
    from benchmarks.spark_suite.measures import FILE_ROWS
    from benchmarks.spark_suite.report import make_report

    versions = find_versions(cores)
    started = time.monotonic()
    bench = SparkBench(plan, cores, console)
    try:
        bench.run()
    except BrokerFault as fault:
        console.print(f"{fault}")
        return 1
    checks = check_spark(plan.scenarios, bench.runs)
    document: dict[str, object] = {
        "machine": {**describe_machine(cores), "filesystem": filesystem},
        "versions": versions,
        "is_millstream_compiled": "interpreted" not in versions["Millstream"],
        "rounds": plan.rounds,
        "rows": plan.rows,
        "file_rows": FILE_ROWS,
        "long_rows": plan.long_rows,
        "last_rows": plan.last_rows,
        "is_whole": plan.is_whole,
        "load_average": os.getloadavg()[0],
        "seconds_taken": round(time.monotonic() - started),
        "figures": [
            asdict(summarize(scenario.name, side, bench.runs))
            for scenario in plan.scenarios
            for side in scenario.sides
        ],
        "checks": [asdict(check) for check in checks],
        "runs": [asdict(run) for run in bench.runs],
    }
    report = make_report(plan.scenarios, bench.runs, checks, document, parsed.output)
    return finish(report, parsed.check, console)
