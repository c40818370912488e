"""How a benchmark goes through its rounds, with brokers that are never started."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.mqtt_suite.brokers import KINDS
from benchmarks.mqtt_suite.runner import make_plan, parse_arguments
from benchmarks.mqtt_suite.scenarios import SCENARIOS
from benchmarks.suite.bench import FreshBench
from benchmarks.suite.brokers import BrokerFault
from benchmarks.suite.generator import Generator
from benchmarks.suite.plan import Plan
from benchmarks.suite.results import Facts, Run
from benchmarks.suite.scenarios import Scenario

FAST = Scenario("fast", "Fast", "throughput", ("millstream", "nats"), {})
ONCE = Scenario("once", "Measured once", "idle", ("millstream",), {})

Answer = Facts | BrokerFault


def window(rate: float, waited: float = 0.0) -> Facts:
    return {"seconds": 1.0, "deliveries": rate, "broker_wait_s": waited}


class WrittenBench(FreshBench[Scenario]):
    """Its windows are written down beforehand, by broker."""

    repeats_max = 1

    def __init__(self, rounds: int, answers: dict[str, list[Answer]]) -> None:
        plan = Plan((FAST, ONCE), ("nats", "millstream"), rounds, 0, 0, False)
        super().__init__(
            plan, KINDS, Generator(Path(), False, ""), [0, 1], Console(file=io.StringIO(), width=150)
        )
        self._answers: dict[str, Iterator[Answer]] = {name: iter(found) for name, found in answers.items()}

    def _measure_once(self, name: str, scenario: Scenario) -> Facts:
        answer = next(self._answers[name])
        if isinstance(answer, BrokerFault):
            raise answer
        self.versions[name] = "1.0"
        return answer

    def _describe(self, scenario: Scenario, run: Run) -> str:
        return ""

    def facts_of(self, name: str) -> list[tuple[str, int, float]]:
        return [
            (run.scenario, run.round, run.facts.get("deliveries", 0.0))
            for run in self.runs
            if run.broker == name
        ]


def test_a_broker_that_cannot_be_started_is_left_out_and_the_others_go_on() -> None:
    bench = WrittenBench(
        2, {"nats": [BrokerFault("it is not installed")], "millstream": [window(1), window(2), window(3)]}
    )
    bench.run()
    assert bench.left_out == {"nats": "it is not installed"}
    assert bench.facts_of("nats") == []
    assert bench.facts_of("millstream") == [("fast", 1, 1), ("once", 1, 2), ("fast", 2, 3)]
    assert {name for _, name in bench.summary().figures} == {"millstream"}


def test_a_broker_that_ran_before_and_fails_has_a_fault_in_that_round() -> None:
    bench = WrittenBench(
        2, {"nats": [window(5), BrokerFault("it ended")], "millstream": [window(1), window(2), window(3)]}
    )
    bench.run()
    assert bench.left_out == {}
    assert [run.fault for run in bench.runs if run.broker == "nats"] == ["", "it ended"]
    assert bench.summary().figures["fast", "nats"].rate == 5


def test_a_disturbed_window_is_measured_again_and_the_calmer_one_is_kept() -> None:
    first_better = [window(10, waited=0.2), window(20, waited=0.3)]
    second_better = [window(10, waited=0.2), window(20, waited=0.1)]
    for answers, kept in ((first_better, 10.0), (second_better, 20.0)):
        bench = WrittenBench(1, {"nats": [*answers], "millstream": [window(1), window(2)]})
        bench.run()
        assert bench.facts_of("nats") == [("fast", 1, kept)]


def test_windows_are_measured_again_only_so_many_times() -> None:
    disturbed = [window(number, waited=0.5) for number in (1, 2, 3)]
    bench = WrittenBench(2, {"nats": [*disturbed], "millstream": [window(1), window(2), window(3)]})
    bench.run()
    assert bench.facts_of("nats") == [("fast", 1, 1), ("fast", 2, 3)]


@pytest.mark.parametrize(
    ("arguments", "is_everything"),
    [
        ([], True),
        (["--rounds", "1"], True),
        (["--quick"], False),
        (["--scenario", SCENARIOS[0].name], False),
        (["--brokers", "millstream"], False),
    ],
)
def test_only_a_long_run_of_everything_may_be_published(arguments: list[str], is_everything: bool) -> None:
    assert make_plan(parse_arguments(arguments)).covers(SCENARIOS, KINDS) == is_everything


def test_an_unknown_broker_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--brokers", "millstream,hare"])
    assert ended.value.code == 2
    assert "no broker is called hare; choose from millstream, mosquitto, nats" in capsys.readouterr().err
