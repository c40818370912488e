"""Runs the queue scenarios: a fresh broker for each, one after another, and the floors of the disk around our own."""

from __future__ import annotations

import argparse
import time

from rich.console import Console

from benchmarks.queue_suite.bare_server import BareServer
from benchmarks.queue_suite.brokers import KINDS, QueueBroker, SyncedMillstream
from benchmarks.queue_suite.plan import QueuePlan, make_plan, parse_arguments
from benchmarks.queue_suite.report import make_report
from benchmarks.queue_suite.results import check_queues, find_floor, merge_floors, name_bare
from benchmarks.queue_suite.scenarios import RATES, SCENARIOS, QueueScenario
from benchmarks.queue_suite.slow_disk import slow_down
from benchmarks.suite.bench import FreshBench, as_numbers, describe_figure
from benchmarks.suite.brokers import BrokerFault
from benchmarks.suite.command import Results, finish, has_measured, prepare_generator, run_command
from benchmarks.suite.generator import Generator, find_queue_generator
from benchmarks.suite.plan import describe_filesystem, has_room, use_folder
from benchmarks.suite.results import Facts, Run, summarize

JOB_SLACK_S = 240.0
SECONDS_PER_MESSAGE_MAX = 1 / 2000  # a slower broker than this is not waited for
PAYLOAD_BYTES = 256


class QueueBench(FreshBench[QueueScenario]):
    title_width = 28

    def __init__(self, plan: QueuePlan, generator: Generator, cores: list[int], console: Console) -> None:
        super().__init__(plan, KINDS, generator, cores, console)
        self._sizes = plan
        self._has_bare = True

    def _measure(self, name: str, scenario: QueueScenario) -> Facts:
        """Only a rate is worth measuring again."""
        if scenario.kind not in RATES:
            return self._measure_once(name, scenario)
        return super()._measure(name, scenario)

    def _measure_once(self, name: str, scenario: QueueScenario) -> Facts:
        has_floor = name == "millstream" and bool(scenario.batches)
        before = {**self._measure_floor(scenario), **self._measure_bare(scenario)} if has_floor else {}
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

    def _measure_bare(self, scenario: QueueScenario) -> Facts:
        """The same load on the least server there can be; nothing where it cannot be built."""
        if not self._has_bare:
            return {}
        server = BareServer(self._broker_core)
        try:
            with server:
                return name_bare(self._ask(server, scenario, scenario.kind, 0))
        except BrokerFault as fault:
            self._has_bare = False
            self._say(f"  [yellow]The bare server is left out: {fault}[/yellow]")
            return {}

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
        if floor is not None and floor.bare:
            notes.append(f"{floor.times_bare:.2f} x bare server")
        return describe_figure(summarize(scenario, run.broker, [run]), notes=notes)


def list_scenarios() -> list[str]:
    return [f"{scenario.name:16} {scenario.title:60} {', '.join(scenario.brokers)}" for scenario in SCENARIOS]


def measure(parsed: argparse.Namespace, cores: list[int], console: Console) -> int:
    plan = make_plan(parsed)
    use_folder(plan.folder)
    advice = "smaller --messages and --restart-messages"
    if not has_room(plan.folder, plan.disk_bytes(), "The largest queue", advice, console):
        return 2
    filesystem = describe_filesystem(plan.folder, console)
    if plan.sync_us:
        slow_down(plan.sync_us)
        console.print(f"Every sync takes {plan.sync_us:,} us longer, in the floors too.", highlight=False)
    generator = prepare_generator(find_queue_generator, parsed.interpreted, console)
    results = Results(generator, cores, filesystem=filesystem)
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


def main(arguments: list[str] | None = None) -> int:
    return run_command(parse_arguments(arguments), list_scenarios(), 180, measure)
