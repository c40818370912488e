"""Runs the AMQP scenarios: a fresh broker for each, the two in turn, and medians over the rounds."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.amqp_suite.brokers import KINDS
from benchmarks.amqp_suite.report import make_report
from benchmarks.amqp_suite.scenarios import BY_NAME, SCENARIOS, STEADY
from benchmarks.suite.bench import FreshBench, as_numbers, describe_figure
from benchmarks.suite.command import Results, finish, has_measured, prepare_generator, run_command
from benchmarks.suite.generator import Generator, find_queue_generator
from benchmarks.suite.plan import (
    FOLDER,
    Plan,
    choose,
    count_rounds,
    describe_filesystem,
    make_parser,
    parse_with,
    use_folder,
)
from benchmarks.suite.results import Facts, Run, check_all, summarize
from benchmarks.suite.scenarios import Scenario

JOB_SLACK_S = 90.0


@dataclass(frozen=True)
class AmqpPlan(Plan[Scenario]):
    folder: Path


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser(
        "amqp091",
        "Measure Millstream against RabbitMQ with the same AMQP 0.9.1 scenarios.",
        "confirmed-100",
        BY_NAME,
        KINDS,
        "one short round, in a few minutes",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where brokers keep their files")
    return parse_with(parser, arguments, KINDS)


def make_plan(parsed: argparse.Namespace) -> AmqpPlan:
    return AmqpPlan(
        scenarios=choose(SCENARIOS, parsed.scenario),
        brokers=tuple(name for name in KINDS if name in parsed.brokers.split(",")),
        rounds=count_rounds(parsed),
        warmup_ms=300 if parsed.quick else 1000,
        measure_ms=parsed.measure_ms or (700 if parsed.quick else 3000),
        folder=parsed.folder,
        is_quick=parsed.quick,
    )


class AmqpBench(FreshBench[Scenario]):
    def __init__(self, plan: AmqpPlan, generator: Generator, cores: list[int], console: Console) -> None:
        super().__init__(plan, KINDS, generator, cores, console)

    def _measure_once(self, name: str, scenario: Scenario) -> Facts:
        plan = self._plan
        with KINDS[name](self._broker_core, False) as broker:
            self.versions.setdefault(name, broker.version())
            job = {
                **self._make_job(broker, scenario),
                "protocol": "amqp",
                "broker_core": self._broker_core,
                **scenario.job,
            }
            timeout_s = JOB_SLACK_S + (plan.warmup_ms + plan.measure_ms) / 1000
            return as_numbers(self._generator.run(job, timeout_s))

    def _describe(self, scenario: Scenario, run: Run) -> str:
        return describe_figure(summarize(scenario, run.broker, [run]), is_rated=scenario.kind != STEADY)


def list_scenarios() -> list[str]:
    return [f"{scenario.name:16} {scenario.title}" for scenario in SCENARIOS]


def measure(parsed: argparse.Namespace, cores: list[int], console: Console) -> int:
    plan = make_plan(parsed)
    use_folder(plan.folder)
    filesystem = describe_filesystem(plan.folder, console)
    generator = prepare_generator(find_queue_generator, parsed.interpreted, console)
    results = Results(generator, cores, filesystem=filesystem)
    bench = AmqpBench(plan, generator, cores, console)
    if not has_measured(bench, console):
        return 1
    summary = bench.summary()
    checks = check_all(plan.scenarios, summary)
    is_whole = plan.covers(SCENARIOS, KINDS) and not bench.left_out
    document = results.document(plan, bench, summary, checks, {}, is_whole)
    return finish(make_report(plan.scenarios, summary, checks, document), parsed.check, console)


def main(arguments: list[str] | None = None) -> int:
    return run_command(parse_arguments(arguments), list_scenarios(), 150, measure)
