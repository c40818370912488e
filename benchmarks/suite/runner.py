"""Runs the scenarios: every round takes the brokers one after another, and medians are taken over the rounds."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.suite.brokers import KINDS, Broker, BrokerFault, Millstream
from benchmarks.suite.generator import Generator, GeneratorFault, find_generator
from benchmarks.suite.results import DISTURBED, FAILED, Run, Summary, check_all, disturbance, summarize
from benchmarks.suite.scenarios import BY_NAME, SCENARIOS, Scenario

JOB_SLACK_S = 60.0
IDLE_TIMEOUT_S = 120.0
REPEATS_MAX = 40  # windows measured again, in one invocation, because other programs held the cores


@dataclass(frozen=True)
class Plan:
    """What one invocation measures."""

    scenarios: tuple[Scenario, ...]
    brokers: tuple[str, ...]
    rounds: int
    warmup_ms: int
    measure_ms: int
    idle_connections: int
    is_quick: bool

    @property
    def is_whole(self) -> bool:
        return not self.is_quick and len(self.scenarios) == len(SCENARIOS) and len(self.brokers) == len(KINDS)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench mqtt",
        description="Measure Millstream against mosquitto and NATS with the same MQTT scenarios.",
        epilog="examples: ./dev bench mqtt --quick | ./dev bench mqtt --scenario q0-1to1 --rounds 5",
    )
    parser.add_argument(
        "--scenario", action="append", choices=list(BY_NAME), metavar="NAME", help="only this; repeatable"
    )
    parser.add_argument(
        "--brokers", default=",".join(KINDS), help=f"of {', '.join(KINDS)}; separated by commas"
    )
    parser.add_argument("--rounds", type=int, default=0, help="rounds to take medians of (3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="one short round, in less than three minutes")
    parser.add_argument("--measure-ms", type=int, default=0, help="length of the measured window")
    parser.add_argument("--connections", type=int, default=0, help="idle connections to open (10,000)")
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument("--interpreted", action="store_true", help="do not compile the load generator")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.brokers.split(",") if name not in KINDS]
    if unknown:
        parser.error(f"no broker is called {unknown[0]}; choose from {', '.join(KINDS)}")
    return parsed


def make_plan(parsed: argparse.Namespace) -> Plan:
    chosen = parsed.scenario or list(BY_NAME)
    return Plan(
        scenarios=tuple(scenario for scenario in SCENARIOS if scenario.name in chosen),
        brokers=tuple(parsed.brokers.split(",")),
        rounds=max(1, parsed.rounds or (1 if parsed.quick else 3)),
        warmup_ms=200 if parsed.quick else 400,
        measure_ms=parsed.measure_ms or (700 if parsed.quick else 2000),
        idle_connections=parsed.connections or 10_000,
        is_quick=parsed.quick,
    )


def describe_machine(cores: list[int]) -> dict[str, object]:
    """The class of the machine, nothing that identifies it."""
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass  # the figures do not depend on knowing the processor's name
    return {
        "processor": model,
        "cores": len(cores),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


class Bench:
    """One invocation: its plan, its generator and the runs so far."""

    def __init__(self, plan: Plan, generator: Generator, cores: list[int], console: Console) -> None:
        self._plan = plan
        self._generator = generator
        self._broker_core = cores[0]
        self._generator_core = cores[1]
        self._console = console
        self._unusable: dict[str, str] = {}
        self._repeats_left = REPEATS_MAX
        self.runs: list[Run] = []
        self.versions: dict[str, str] = {}

    def run(self) -> None:
        for round_number in range(1, self._plan.rounds + 1):
            for name in self._plan.brokers:
                if name not in self._unusable:
                    self._run_broker(name, round_number)

    def _run_broker(self, name: str, round_number: int) -> None:
        title = KINDS[name].title
        self._console.rule(f"round {round_number} of {self._plan.rounds}: {title}")
        pending = [
            scenario
            for scenario in self._plan.scenarios
            if name in scenario.brokers and (round_number == 1 or not scenario.is_idle)
        ]
        busy = [scenario for scenario in pending if not scenario.is_idle]
        groups = [busy] + [
            [scenario] for scenario in pending if scenario.is_idle
        ]  # memory needs a fresh process
        for group in groups:
            if not group:
                continue
            try:
                with KINDS[name](self._broker_core) as broker:
                    self.versions.setdefault(name, broker.version())
                    for scenario in group:
                        self._run_scenario(broker, scenario, round_number)
            except BrokerFault as fault:
                self._unusable[name] = str(fault)
                self._console.print(f"[yellow]{title} is left out: {fault}[/yellow]", highlight=False)
                return

    def _run_scenario(self, broker: Broker, scenario: Scenario, round_number: int) -> None:
        plan = self._plan
        job: dict[str, object] = {
            "kind": scenario.kind,
            "port": broker.websocket_port if "websocket_path" in scenario.job else broker.port,
            "broker_pids": ",".join(str(pid) for pid in broker.pids()),
            "core": self._generator_core,
            "warmup_ms": plan.warmup_ms,
            "measure_ms": plan.measure_ms,
            "connections": plan.idle_connections,
            **scenario.job,
        }
        timeout_s = (
            IDLE_TIMEOUT_S if scenario.is_idle else JOB_SLACK_S + (plan.warmup_ms + plan.measure_ms) / 1000
        )
        try:
            facts = self._measure(job, timeout_s)
        except GeneratorFault as fault:
            self.runs.append(Run(scenario.name, broker.name, round_number, fault=str(fault)))
            self._console.print(f"  {scenario.title:38} [red]{fault}[/red]", highlight=False)
            return
        run = Run(scenario.name, broker.name, round_number, facts=facts)
        self.runs.append(run)
        self._console.print(f"  {scenario.title:38} {describe_run(scenario, run)}", highlight=False)

    def _measure(self, job: dict[str, object], timeout_s: float) -> dict[str, float]:
        """One window; a disturbed one is measured once more and the calmer of the two is kept."""
        facts = as_numbers(self._generator.run(job, timeout_s))
        if disturbance(facts) > DISTURBED and self._repeats_left > 0:
            self._repeats_left -= 1
            again = as_numbers(self._generator.run(job, timeout_s))
            if disturbance(again) < disturbance(facts):
                return again
        return facts

    def summary(self) -> Summary:
        figures = [
            summarize(scenario, name, self.runs)
            for scenario in self._plan.scenarios
            for name in self._plan.brokers
            if name in scenario.brokers and name not in self._unusable
        ]
        return Summary(figures)

    def left_out(self) -> dict[str, str]:
        return self._unusable


def as_numbers(answer: dict[str, object]) -> dict[str, float]:
    return {key: float(value) for key, value in answer.items() if isinstance(value, int | float)}


def describe_run(scenario: Scenario, run: Run) -> str:
    figure = summarize(scenario, run.broker, [run])
    if scenario.is_idle:
        return f"{figure.bytes_per_connection:,.0f} bytes per connection, {figure.connections_per_s:,.0f} connections/s"
    parts = []
    if scenario.kind != "steady":
        bound = ">= " if figure.is_lower_bound else ""
        parts.append(f"{bound:3}{figure.rate:11,.0f}/s  {figure.cpu_us:8.3f} us CPU")
        parts.append(f"busy: broker {figure.broker_share:4.0%}, generator {figure.generator_share:4.0%}")
    if figure.p50_us:
        parts.append(f"p50 {figure.p50_us:,.0f} us, p99 {figure.p99_us:,.0f} us")
    if figure.is_disturbed:
        parts.append("[yellow]disturbed[/yellow]")
    if figure.lost:
        parts.append(f"[red]{figure.lost:,} lost[/red]")
    return "  ".join(parts)


def list_scenarios(console: Console) -> int:
    for scenario in SCENARIOS:
        console.print(
            f"{scenario.name:16} {scenario.title:40} {', '.join(scenario.brokers)}", highlight=False
        )
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when all was measured, 1 when a promise failed and --check was given, 2 on misuse."""
    parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    if parsed.list:
        return list_scenarios(console)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        console.print("The benchmark needs two cores: one for the broker, one for the load generator.")
        return 2
    from benchmarks.suite.report import (
        print_report,
        write_report,
    )  # rich tables and charts are needed only now

    console.print("Preparing the load generator ...")
    generator = find_generator(parsed.interpreted)
    console.print(f"Load generator: {generator.note}", highlight=False)
    if not generator.is_compiled:
        console.print("[yellow]It runs interpreted: any figure it limits is refused.[/yellow]")
    started = time.monotonic()
    plan = make_plan(parsed)
    bench = Bench(plan, generator, cores, console)
    bench.run()
    if not bench.runs:
        console.print("Nothing was measured: no broker could be started.")
        return 1
    summary = bench.summary()
    checks = check_all(plan.scenarios, summary)
    document: dict[str, object] = {
        "machine": describe_machine(cores),
        "versions": bench.versions,
        "left_out": bench.left_out(),
        "is_millstream_compiled": "millstream" in bench.versions and Millstream(cores[0]).is_compiled(),
        "is_generator_compiled": generator.is_compiled,
        "rounds": plan.rounds,
        "measure_ms": plan.measure_ms,
        "idle_connections": plan.idle_connections,
        "is_whole": plan.is_whole and not bench.left_out(),
        "seconds_taken": round(time.monotonic() - started),
        "figures": summary.rows(),
        "checks": [asdict(check) for check in checks],
        "runs": [asdict(run) for run in bench.runs],
    }
    print_report(console, plan.scenarios, summary, checks, document)
    for path in write_report(plan.scenarios, summary, checks, document):
        console.print(f"written: {path}", highlight=False)
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0
