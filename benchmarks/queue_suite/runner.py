"""Runs the queue scenarios: a fresh broker for each, one after another, and the floors of the disk around our own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.queue_suite.brokers import KINDS, QueueBroker, SyncedMillstream
from benchmarks.queue_suite.generator import find_queue_generator
from benchmarks.queue_suite.plan import (
    MEMORY_FILESYSTEMS,
    Plan,
    find_filesystem,
    make_plan,
    parse_arguments,
)
from benchmarks.queue_suite.results import check_queues, find_floor, merge_floors
from benchmarks.queue_suite.scenarios import RATES, SCENARIOS, QueueScenario
from benchmarks.queue_suite.slow_disk import slow_down
from benchmarks.suite.brokers import BrokerFault, Millstream
from benchmarks.suite.generator import Generator, GeneratorFault
from benchmarks.suite.results import DISTURBED, FAILED, Run, Summary, disturbance, summarize
from benchmarks.suite.runner import as_numbers, describe_machine

JOB_SLACK_S = 240.0
SECONDS_PER_MESSAGE_MAX = 1 / 2000  # a slower broker than this is not waited for
REPEATS_MAX = 20  # windows measured again, in one invocation, because other programs held the cores
PAYLOAD_BYTES = 256

Facts = dict[str, float]


class QueueBench:
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
        plan = self._plan
        for number in range(1, plan.rounds + 1):
            for scenario in plan.scenarios:
                if number > 1 and scenario.is_once:
                    continue
                self._console.print(
                    f"[bold]{scenario.title}[/bold] (round {number} of {plan.rounds})", highlight=False
                )
                for name in plan.brokers:
                    if name in scenario.brokers and name not in self._unusable:
                        self._run(name, scenario, number)

    def _run(self, name: str, scenario: QueueScenario, number: int) -> None:
        try:
            facts = self._measure(name, scenario)
        except BrokerFault as fault:
            if name not in self.versions:  # it has never run: it is not here, or does not do what is asked
                self._unusable[name] = str(fault)
                self._console.print(
                    f"  [yellow]{KINDS[name].title} is left out: {fault}[/yellow]", highlight=False
                )
                return
            run = Run(scenario.name, name, number, fault=str(fault))
        except GeneratorFault as fault:
            run = Run(scenario.name, name, number, fault=str(fault))
        else:
            run = Run(scenario.name, name, number, facts=facts)
        self.runs.append(run)
        text = f"[red]{run.fault}[/red]" if run.fault else describe_run(scenario, run)
        self._console.print(f"  {KINDS[name].title:28} {text}", highlight=False)

    def _measure(self, name: str, scenario: QueueScenario) -> Facts:
        """One window; a disturbed one is measured once more and the calmer of the two is kept."""
        facts = self._measure_once(name, scenario)
        if scenario.kind in RATES and disturbance(facts) > DISTURBED and self._repeats_left > 0:
            self._repeats_left -= 1
            again = self._measure_once(name, scenario)
            if disturbance(again) < disturbance(facts):
                return again
        return facts

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
        plan = self._plan
        return {"grow": plan.messages, "restart": plan.restart_messages, "consume": plan.fill}.get(
            scenario.kind, 0
        )

    def _ask(self, broker: QueueBroker, scenario: QueueScenario, kind: str, fill: int) -> Facts:
        plan = self._plan
        job: dict[str, object] = {
            "kind": kind,
            "protocol": broker.protocol,
            "port": broker.port,
            "broker_pids": ",".join(str(pid) for pid in broker.pids()),
            "broker_core": self._broker_core,
            "core": self._generator_core,
            "warmup_ms": plan.warmup_ms,
            "measure_ms": plan.measure_ms,
            "payload_bytes": PAYLOAD_BYTES,
            "fill": fill,
            **scenario.job,
        }
        timeout_s = JOB_SLACK_S + plan.measure_ms / 1000 + fill * SECONDS_PER_MESSAGE_MAX
        return as_numbers(self._generator.run(job, timeout_s))

    def _measure_floor(self, scenario: QueueScenario) -> Facts:
        """On the broker's core and in the folder where brokers keep their files."""
        job: dict[str, object] = {
            "kind": "floor",
            "folder": str(self._plan.folder),
            "batches": ",".join(str(batch) for batch in scenario.batches),
            "measure_ms": self._plan.floor_ms,
            "core": self._broker_core,
        }
        return as_numbers(self._generator.run(job, JOB_SLACK_S))

    def _measure_restart(self, broker: SyncedMillstream, scenario: QueueScenario) -> Facts:
        filled = self._ask(broker, scenario, "fill", self._plan.restart_messages)
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

    def summary(self) -> Summary:
        return Summary(
            summarize(scenario, name, self.runs)
            for scenario in self._plan.scenarios
            for name in self._plan.brokers
            if name in scenario.brokers and name not in self._unusable
        )

    def left_out(self) -> dict[str, str]:
        return self._unusable


def describe_run(scenario: QueueScenario, run: Run) -> str:
    facts = run.facts
    if scenario.kind == "restart":
        return f"ready after {facts['ready_s']:.2f} s, first delivery after {facts['first_delivery_s']:.2f} s"
    if scenario.kind == "grow":
        return (
            f"{facts['rss_before_bytes'] / 2**20:.0f} -> {facts['rss_after_bytes'] / 2**20:.0f} MiB, "
            f"{facts['cpu_first_us']:.2f} -> {facts['cpu_last_us']:.2f} us CPU per publish"
        )
    figure = summarize(scenario, run.broker, [run])
    bound = ">= " if figure.is_lower_bound else ""
    parts = [f"{bound:3}{figure.rate:11,.0f}/s  {figure.cpu_us:8.3f} us CPU"]
    parts.append(f"busy: broker {figure.broker_share:4.0%}, generator {figure.generator_share:4.0%}")
    if figure.p50_us:
        parts.append(f"p50 {figure.p50_us:,.0f} us, p99 {figure.p99_us:,.0f} us")
    floor = find_floor(scenario, run.broker, [run])
    if floor is not None:
        parts.append(f"{floor.share:.2f} x promised")
    if figure.is_disturbed:
        parts.append("[yellow]disturbed[/yellow]")
    if figure.lost:
        parts.append(f"[red]{figure.lost:,} lost[/red]")
    return "  ".join(parts)


def list_scenarios(console: Console) -> int:
    for scenario in SCENARIOS:
        console.print(
            f"{scenario.name:16} {scenario.title:60} {', '.join(scenario.brokers)}", highlight=False
        )
    return 0


def prepare_folder(plan: Plan, console: Console) -> str:
    """The kind of filesystem the brokers' files will be on; empty when there is no room for them."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(plan.folder)  # every broker makes its own folder in here
    free = shutil.disk_usage(plan.folder).free
    if free < plan.disk_bytes():
        console.print(
            f"The largest queue needs {plan.disk_bytes() / 2**30:.1f} GiB in {plan.folder} and {free / 2**30:.1f} GiB "
            "are free; choose another --folder, or smaller --messages and --restart-messages."
        )
        return ""
    try:
        kind = find_filesystem(plan.folder.resolve(), Path("/proc/mounts").read_text())
    except OSError:
        return "unknown"
    if kind in MEMORY_FILESYSTEMS:
        console.print(f"[yellow]{plan.folder} is in memory ({kind}): a sync there costs nothing.[/yellow]")
    return kind


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when all was measured, 1 when a promise failed and --check was given, 2 on misuse."""
    parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 180)
    if parsed.list:
        return list_scenarios(console)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        console.print("The benchmark needs two cores: one for the broker, one for the load generator.")
        return 2
    plan = make_plan(parsed)
    filesystem = prepare_folder(plan, console)
    if not filesystem:
        return 2
    from benchmarks.queue_suite.report import (
        print_report,
        write_report,
    )  # rich and charts are needed only now

    if plan.sync_us:
        slow_down(plan.sync_us)
        console.print(f"Every sync takes {plan.sync_us:,} us longer, in the floors too.", highlight=False)
    console.print("Preparing the load generator ...")
    generator = find_queue_generator(parsed.interpreted)
    console.print(f"Load generator: {generator.note}", highlight=False)
    if not generator.is_compiled:
        console.print("[yellow]It runs interpreted: any figure it limits is refused.[/yellow]")
    started = time.monotonic()
    bench = QueueBench(plan, generator, cores, console)
    bench.run()
    if not bench.runs:
        console.print("Nothing was measured: no broker could be started.")
        return 1
    summary = bench.summary()
    checks = check_queues(plan.scenarios, summary, bench.runs)
    is_ours = any(name.startswith("millstream") for name in bench.versions)
    document: dict[str, object] = {
        "machine": {**describe_machine(cores), "filesystem": filesystem},
        "versions": bench.versions,
        "left_out": bench.left_out(),
        "is_millstream_compiled": is_ours and Millstream(cores[0]).is_compiled(),
        "is_generator_compiled": generator.is_compiled,
        "rounds": plan.rounds,
        "measure_ms": plan.measure_ms,
        "fill": plan.fill,
        "messages": plan.messages,
        "restart_messages": plan.restart_messages,
        "is_whole": plan.is_whole(bench.left_out()),
        "seconds_taken": round(time.monotonic() - started),
        "figures": summary.rows(),
        "checks": [asdict(check) for check in checks],
        "runs": [asdict(run) for run in bench.runs],
    }
    print_report(console, plan.scenarios, summary, bench.runs, checks, document)
    for path in write_report(plan.scenarios, summary, bench.runs, checks, document):
        console.print(f"written: {path}", highlight=False)
    return 1 if parsed.check and any(check.verdict == FAILED for check in checks) else 0
