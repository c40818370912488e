"""Measuring in rounds: who is left out, which windows are measured again, and the runs so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from rich.console import Console

from benchmarks.suite.brokers import Broker, BrokerFault
from benchmarks.suite.generator import Generator, GeneratorFault
from benchmarks.suite.plan import Measured, Plan
from benchmarks.suite.results import DISTURBED, Facts, Figure, Run, Summary, disturbance, summarize


class Bench(ABC, Generic[Measured]):
    """One invocation: its plan, its generator and the runs so far."""

    repeats_max = 20  # windows measured again, in one invocation, because other programs held the cores

    def __init__(
        self,
        plan: Plan[Measured],
        kinds: Mapping[str, type[Broker]],
        generator: Generator,
        cores: list[int],
        console: Console,
    ) -> None:
        self._plan = plan
        self._kinds = kinds
        self._generator = generator
        self._broker_core = cores[0]
        self._generator_core = cores[1]
        self._console = console
        self._repeats_left = self.repeats_max
        self.runs: list[Run] = []
        self.versions: dict[str, str] = {}
        self.left_out: dict[str, str] = {}  # brokers that could not be started, and why

    @abstractmethod
    def run(self) -> None:
        """Every round takes the brokers in turn."""

    def summary(self) -> Summary:
        return Summary(
            summarize(scenario, name, self.runs)
            for scenario in self._plan.scenarios
            for name in self._plan.brokers
            if self._can_run(name, scenario)
        )

    def _can_run(self, name: str, scenario: Measured) -> bool:
        return name in scenario.brokers and name not in self.left_out

    def _make_job(self, broker: Broker, scenario: Measured) -> dict[str, object]:
        """What the generator is told of every scenario."""
        return {
            "kind": scenario.kind,
            "port": broker.port,
            "broker_pids": ",".join(str(pid) for pid in broker.pids()),
            "core": self._generator_core,
            "warmup_ms": self._plan.warmup_ms,
            "measure_ms": self._plan.measure_ms,
        }

    def _measure_calm(self, measure: Callable[[], Facts]) -> Facts:
        """One window; a disturbed one is measured once more and the calmer of the two is kept."""
        facts = measure()
        if disturbance(facts) > DISTURBED and self._repeats_left > 0:
            self._repeats_left -= 1
            again = measure()
            if disturbance(again) < disturbance(facts):
                return again
        return facts

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def _leave_out(self, name: str, fault: BrokerFault, indent: str = "") -> None:
        self.left_out[name] = str(fault)
        self._say(f"{indent}[yellow]{self._kinds[name].title} is left out: {fault}[/yellow]")


class FreshBench(Bench[Measured]):
    """A fresh broker for every scenario, the brokers in turn."""

    title_width = 12

    def run(self) -> None:
        plan = self._plan
        for number in range(1, plan.rounds + 1):
            for scenario in plan.scenarios:
                if number > 1 and scenario.is_once:
                    continue
                self._say(f"[bold]{scenario.title}[/bold] (round {number} of {plan.rounds})")
                for name in plan.brokers:
                    if self._can_run(name, scenario):
                        self._run(name, scenario, number)

    def _run(self, name: str, scenario: Measured, number: int) -> None:
        try:
            run = Run(scenario.name, name, number, facts=self._measure(name, scenario))
        except (BrokerFault, GeneratorFault) as fault:
            # One that has never run is not here, or does not do what is asked.
            if isinstance(fault, BrokerFault) and name not in self.versions:
                self._leave_out(name, fault, "  ")
                return
            run = Run(scenario.name, name, number, fault=str(fault))
        self.runs.append(run)
        text = f"[red]{run.fault}[/red]" if run.fault else self._describe(scenario, run)
        self._say(f"  {self._kinds[name].title:{self.title_width}} {text}")

    def _measure(self, name: str, scenario: Measured) -> Facts:
        return self._measure_calm(lambda: self._measure_once(name, scenario))

    @abstractmethod
    def _measure_once(self, name: str, scenario: Measured) -> Facts:
        """Starts the broker, notes its version, and gives the facts of one window."""

    @abstractmethod
    def _describe(self, scenario: Measured, run: Run) -> str:
        """A run without a fault, in one line."""


def as_numbers(answer: Mapping[str, object]) -> Facts:
    return {key: float(value) for key, value in answer.items() if isinstance(value, int | float)}


def describe_figure(figure: Figure, is_rated: bool = True, notes: Sequence[str] = ()) -> str:
    """In one line; `notes` stand before what is wrong with it."""
    parts = []
    if is_rated:
        bound = ">= " if figure.is_lower_bound else ""
        parts.append(f"{bound:3}{figure.rate:11,.0f}/s  {figure.cpu_us:8.3f} us CPU")
        parts.append(f"busy: broker {figure.broker_share:4.0%}, generator {figure.generator_share:4.0%}")
    if figure.p50_us:
        parts.append(f"p50 {figure.p50_us:,.0f} us, p99 {figure.p99_us:,.0f} us")
    parts += notes
    if figure.is_disturbed:
        parts.append("[yellow]disturbed[/yellow]")
    if figure.lost:
        parts.append(f"[red]{figure.lost:,} lost[/red]")
    return "  ".join(parts)
