"""Runs the MQTT scenarios: every round takes the brokers one after another, and medians are taken over the rounds."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rich.console import Console

from benchmarks.mqtt_suite.brokers import KINDS
from benchmarks.mqtt_suite.report import make_report
from benchmarks.mqtt_suite.scenarios import BY_NAME, SCENARIOS
from benchmarks.suite.bench import Bench, as_numbers, describe_figure
from benchmarks.suite.brokers import Broker, BrokerFault
from benchmarks.suite.command import Results, finish, has_measured, prepare_generator, run_command
from benchmarks.suite.generator import Generator, GeneratorFault, find_generator
from benchmarks.suite.plan import Plan, choose, count_rounds, make_parser, parse_with
from benchmarks.suite.results import Run, check_all, summarize
from benchmarks.suite.scenarios import Scenario

JOB_SLACK_S = 60.0
IDLE_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class MqttPlan(Plan[Scenario]):
    idle_connections: int


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser(
        "mqtt",
        "Measure Millstream against mosquitto and NATS with the same MQTT scenarios.",
        "q0-1to1",
        BY_NAME,
        KINDS,
        "one short round, in less than three minutes",
    )
    parser.add_argument("--connections", type=int, default=0, help="idle connections to open (10,000)")
    return parse_with(parser, arguments, KINDS)


def make_plan(parsed: argparse.Namespace) -> MqttPlan:
    return MqttPlan(
        scenarios=choose(SCENARIOS, parsed.scenario),
        brokers=tuple(parsed.brokers.split(",")),
        rounds=count_rounds(parsed),
        warmup_ms=200 if parsed.quick else 400,
        measure_ms=parsed.measure_ms or (700 if parsed.quick else 2000),
        idle_connections=parsed.connections or 10_000,
        is_quick=parsed.quick,
    )


class MqttBench(Bench[Scenario]):
    """One broker process for all scenarios of a round; memory needs a fresh one."""

    repeats_max = 40

    def __init__(self, plan: MqttPlan, generator: Generator, cores: list[int], console: Console) -> None:
        super().__init__(plan, KINDS, generator, cores, console)
        self._idle_connections = plan.idle_connections

    def run(self) -> None:
        for round_number in range(1, self._plan.rounds + 1):
            for name in self._plan.brokers:
                if name not in self.left_out:
                    self._run_broker(name, round_number)

    def _run_broker(self, name: str, round_number: int) -> None:
        self._console.rule(f"round {round_number} of {self._plan.rounds}: {KINDS[name].title}")
        due = [
            scenario
            for scenario in self._plan.scenarios
            if name in scenario.brokers and (round_number == 1 or not scenario.is_once)
        ]
        busy = [scenario for scenario in due if not scenario.is_idle]
        groups = [busy] + [[scenario] for scenario in due if scenario.is_idle]
        for group in groups:
            if not group:
                continue
            try:
                with KINDS[name](self._broker_core) as broker:
                    self.versions.setdefault(name, broker.version())
                    for scenario in group:
                        self._run_scenario(broker, scenario, round_number)
            except BrokerFault as fault:
                self._leave_out(name, fault)
                return

    def _run_scenario(self, broker: Broker, scenario: Scenario, round_number: int) -> None:
        plan = self._plan
        job = {
            **self._make_job(broker, scenario),
            "port": broker.websocket_port if "websocket_path" in scenario.job else broker.port,
            "connections": self._idle_connections,
            **scenario.job,
        }
        timeout_s = (
            IDLE_TIMEOUT_S if scenario.is_idle else JOB_SLACK_S + (plan.warmup_ms + plan.measure_ms) / 1000
        )
        try:
            facts = self._measure_calm(lambda: as_numbers(self._generator.run(job, timeout_s)))
        except GeneratorFault as fault:
            self.runs.append(Run(scenario.name, broker.name, round_number, fault=str(fault)))
            self._say(f"  {scenario.title:38} [red]{fault}[/red]")
            return
        run = Run(scenario.name, broker.name, round_number, facts=facts)
        self.runs.append(run)
        self._say(f"  {scenario.title:38} {describe_run(scenario, run)}")


def describe_run(scenario: Scenario, run: Run) -> str:
    figure = summarize(scenario, run.broker, [run])
    if scenario.is_idle:
        return f"{figure.bytes_per_connection:,.0f} bytes per connection, {figure.connections_per_s:,.0f} connections/s"
    return describe_figure(figure, is_rated=scenario.kind != "steady")


def list_scenarios() -> list[str]:
    return [f"{scenario.name:16} {scenario.title:40} {', '.join(scenario.brokers)}" for scenario in SCENARIOS]


def measure(parsed: argparse.Namespace, cores: list[int], console: Console) -> int:
    plan = make_plan(parsed)
    generator = prepare_generator(find_generator, parsed.interpreted, console)
    results = Results(generator, cores)
    bench = MqttBench(plan, generator, cores, console)
    if not has_measured(bench, console):
        return 1
    summary = bench.summary()
    checks = check_all(plan.scenarios, summary)
    sizes = {"idle_connections": plan.idle_connections}
    is_whole = plan.covers(SCENARIOS, KINDS) and not bench.left_out
    document = results.document(plan, bench, summary, checks, sizes, is_whole)
    return finish(make_report(plan.scenarios, summary, checks, document), parsed.check, console)


def main(arguments: list[str] | None = None) -> int:
    return run_command(parse_arguments(arguments), list_scenarios(), 150, measure)
