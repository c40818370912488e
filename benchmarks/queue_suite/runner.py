"""Runs the queue scenarios: a fresh broker for each, one after another, and the floors of the disk around our own."""

from __future__ import annotations

import shutil
import sys
import time

from rich.console import Console

from benchmarks.queue_suite.brokers import KINDS, QueueBroker, SyncedMillstream
from benchmarks.queue_suite.plan import QueuePlan, make_plan, parse_arguments
from benchmarks.queue_suite.report import make_report
from benchmarks.queue_suite.results import check_queues, find_floor, merge_floors
from benchmarks.queue_suite.scenarios import RATES, SCENARIOS, QueueScenario
from benchmarks.queue_suite.slow_disk import slow_down
from benchmarks.suite.bench import FreshBench, as_numbers, describe_figure
from benchmarks.suite.command import (
    Results,
    describe_machine,
    find_cores,
    finish,
    has_measured,
    open_console,
    prepare_generator,
    print_lines,
)
from benchmarks.suite.generator import Generator, find_queue_generator
from benchmarks.suite.plan import describe_filesystem, use_folder
from benchmarks.suite.results import Facts, Run, summarize

JOB_SLACK_S = 240.0
SECONDS_PER_MESSAGE_MAX = 1 / 2000  # a slower broker than this is not waited for
PAYLOAD_BYTES = 256


class QueueBench(FreshBench[QueueScenario]):
    title_width = 28

    def __init__(self, plan: QueuePlan, generator: Generator, cores: list[int], console: Console) -> None:
        super().__init__(plan, KINDS, generator, cores, console)
        self._sizes = plan

    def _measure(self, name: str, scenario: QueueScenario) -> Facts:
        """Only a rate is worth measuring again."""
        if scenario.kind not in RATES:
            return self._measure_once(name, scenario)
        return super()._measure(name, scenario)

    def _measure_once(self, name: str, scenario: QueueScenario) -> Facts:
        has_floor = name == "millstream" and bool(scenario.batches)
        before = self._measure_floor(scenario) if has_floor else {}
        with KINDS[name](self._broker_core, scenario.has_stream) as broker:
            if not isinstance(broker, QueueBroker):
                raise TypeError(f"{name} is no broker with queues")
            self.versions.setdefault(name, broker.version())
            if isinstance(broker, SyncedMillstream) and scenario.kind == "restart":
                return self._measure_restart(broker, scenario)
            facts = self._ask(broker, scenario, scenario.kind, self._fill_of(scenario))
        return {**facts, **merge_floors(before, self._measure_floor(scenario))} if has_floor else facts

    def _fill_of(self, scenario: QueueScenario) -> int:
        plan = self._sizes
        return {"grow": plan.messages, "restart": plan.restart_messages, "consume": plan.fill}.get(
            scenario.kind, 0
        )

    def _ask(self, broker: QueueBroker, scenario: QueueScenario, kind: str, fill: int) -> Facts:
        job = {
            **self._make_job(broker, scenario),
            "kind": kind,
            "protocol": broker.protocol,
            "broker_core": self._broker_core,
            "payload_bytes": PAYLOAD_BYTES,
            "fill": fill,
            **scenario.job,
        }
        timeout_s = JOB_SLACK_S + self._plan.measure_ms / 1000 + fill * SECONDS_PER_MESSAGE_MAX
        return as_numbers(self._generator.run(job, timeout_s))

    def _measure_floor(self, scenario: QueueScenario) -> Facts:
        """On the broker's core and in the folder where brokers keep their files."""
        job: dict[str, object] = {
            "kind": "floor",
            "folder": str(self._sizes.folder),
            "batches": ",".join(str(batch) for batch in scenario.batches),
            "measure_ms": self._sizes.floor_ms,
            "core": self._broker_core,
        }
        return as_numbers(self._generator.run(job, JOB_SLACK_S))

    def _measure_restart(self, broker: SyncedMillstream, scenario: QueueScenario) -> Facts:
        filled = self._ask(broker, scenario, "fill", self._sizes.restart_messages)
        broker.crash()
        started = time.monotonic()
        broker.start_again()
        ready_s = time.monotonic() - started
        first = self._ask(broker, scenario, "first", 0)
        return {
            "stored": filled["deliveries"],
            "fill_rate": filled["deliveries"] / max(filled["seconds"], 1e-9),
            "ready_s": ready_s,
            "first_delivery_s": ready_s + first["first_delivery_s"],
            "seconds": ready_s,
        }

    def _describe(self, scenario: QueueScenario, run: Run) -> str:
        facts = run.facts
        if scenario.kind == "restart":
            first_s = facts["first_delivery_s"]
            return f"ready after {facts['ready_s']:.2f} s, first delivery after {first_s:.2f} s"
        if scenario.kind == "grow":
            return (
                f"{facts['rss_before_bytes'] / 2**20:.0f} -> {facts['rss_after_bytes'] / 2**20:.0f} MiB, "
                f"{facts['cpu_first_us']:.2f} -> {facts['cpu_last_us']:.2f} us CPU per publish"
            )
        floor = find_floor(scenario, run.broker, [run])
        notes = [f"{floor.share:.2f} x promised"] if floor is not None else []
        return describe_figure(summarize(scenario, run.broker, [run]), notes=notes)


def list_scenarios() -> list[str]:
    return [f"{scenario.name:16} {scenario.title:60} {', '.join(scenario.brokers)}" for scenario in SCENARIOS]


def has_room(plan: QueuePlan, console: Console) -> bool:
    """For the files of the brokers; says so when there is none."""
    free = shutil.disk_usage(plan.folder).free
    if free < plan.disk_bytes():
        console.print(
            f"The largest queue needs {plan.disk_bytes() / 2**30:.1f} GiB in {plan.folder} and {free / 2**30:.1f} GiB "
            "are free; choose another --folder, or smaller --messages and --restart-messages."
        )
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when all was measured, 1 when a promise failed and --check was given, 2 on misuse."""
    parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    console = open_console(180)
    if parsed.list:
        return print_lines(console, list_scenarios())
    cores = find_cores(console)
    if not cores:
        return 2
    plan = make_plan(parsed)
    use_folder(plan.folder)
    if not has_room(plan, console):
        return 2
    filesystem = describe_filesystem(plan.folder, console)
    if plan.sync_us:
        slow_down(plan.sync_us)
        console.print(f"Every sync takes {plan.sync_us:,} us longer, in the floors too.", highlight=False)
    generator = prepare_generator(find_queue_generator, parsed.interpreted, console)
    results = Results(generator, {**describe_machine(cores), "filesystem": filesystem})
    bench = QueueBench(plan, generator, cores, console)
    if not has_measured(bench, console):
        return 1
    summary = bench.summary()
    checks = check_queues(plan.scenarios, summary, bench.runs)
    sizes = {"fill": plan.fill, "messages": plan.messages, "restart_messages": plan.restart_messages}
    is_whole = plan.is_whole(bench.left_out)
    document = results.document(plan, bench, summary, checks, sizes, is_whole)
    report = make_report(plan.scenarios, summary, bench.runs, checks, document)
    return finish(report, parsed.check, console)
