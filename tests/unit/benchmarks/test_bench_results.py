"""Medians, ratios and verdicts of the benchmark, from made-up facts."""

from __future__ import annotations

from benchmarks.mqtt_suite.scenarios import BY_NAME, SCENARIOS
from benchmarks.suite.results import (
    FAILED,
    PASSED,
    REFUSED,
    Check,
    Figure,
    Run,
    Summary,
    check_all,
    summarize,
)
from benchmarks.suite.scenarios import Scenario

ONE_TO_ONE = BY_NAME["q0-1to1"]


def make_run(
    rate: float, *, round_number: int = 1, generator_busy: float = 0.2, broker: str = "millstream"
) -> Run:
    facts = {
        "seconds": 2.0,
        "deliveries": rate * 2,
        "broker_cpu_s": 1.9,
        "generator_cpu_s": generator_busy * 2,
        "expected_total": rate * 2,
        "delivered_total": rate * 2,
    }
    return Run(ONE_TO_ONE.name, broker, round_number, facts)


def check_rates(ours: Figure, theirs: Figure) -> Check:
    checks = check_all([ONE_TO_ONE], Summary([ours, theirs]))
    return next(check for check in checks if check.claim.startswith("deliveries/s"))


def make_figure(broker: str, rate: float, *, is_bound: bool = False) -> Figure:
    return Figure(ONE_TO_ONE.name, broker, 1, rate, 1e6 / rate, is_generator_bound=is_bound)


def test_a_figure_is_the_median_of_its_rounds() -> None:
    runs = [make_run(rate, round_number=index) for index, rate in enumerate((100.0, 900.0, 300.0))]
    assert summarize(ONE_TO_ONE, "millstream", runs).rate == 300.0


def test_a_round_that_failed_does_not_enter_the_median() -> None:
    runs = [make_run(100.0), Run(ONE_TO_ONE.name, "millstream", 2, fault="no result")]
    figure = summarize(ONE_TO_ONE, "millstream", runs)
    assert (figure.rate, figure.rounds, figure.fault) == (100.0, 1, "")


def test_a_scenario_that_always_failed_has_a_fault_and_no_figure() -> None:
    figure = summarize(ONE_TO_ONE, "nats", [Run(ONE_TO_ONE.name, "nats", 1, fault="closed")])
    assert figure.fault == "closed"
    assert Summary([figure]).find(ONE_TO_ONE.name, "nats") is None


def test_time_the_generator_waited_for_its_core_counts_as_busy() -> None:
    run = make_run(100.0, generator_busy=0.5)
    run.facts["generator_wait_s"] = 0.95
    assert summarize(ONE_TO_ONE, "millstream", [run]).is_generator_bound


def test_a_rate_bound_by_the_generator_can_prove_a_promise() -> None:
    check = check_rates(make_figure("millstream", 7e6, is_bound=True), make_figure("nats", 1e6))
    assert check.verdict == PASSED
    assert check.measured == ">= 7.0 x"


def test_a_rate_bound_by_the_generator_never_breaks_a_promise() -> None:
    check = check_rates(make_figure("millstream", 5e6, is_bound=True), make_figure("nats", 1e6))
    assert check.verdict == REFUSED


def test_a_peer_bound_by_the_generator_is_no_base_for_a_ratio() -> None:
    check = check_rates(make_figure("millstream", 9e6), make_figure("nats", 1e6, is_bound=True))
    assert check.verdict == REFUSED


def test_a_disturbed_peer_is_no_base_for_a_ratio() -> None:
    run = make_run(1e6, broker="nats")
    run.facts["broker_wait_s"] = 0.5
    theirs = summarize(ONE_TO_ONE, "nats", [run])
    assert theirs.is_disturbed
    assert check_rates(make_figure("millstream", 9e6), theirs).verdict == REFUSED


def test_a_rate_below_its_target_fails() -> None:
    assert check_rates(make_figure("millstream", 5e6), make_figure("nats", 1e6)).verdict == FAILED


def test_lost_messages_fail_a_scenario() -> None:
    run = make_run(100.0)
    run.facts["delivered_total"] -= 1
    checks = check_all([ONE_TO_ONE], Summary([summarize(ONE_TO_ONE, "millstream", [run])]))
    assert [check.verdict for check in checks if check.claim == "messages lost"] == [FAILED]


def test_memory_per_connection_is_growth_by_connections() -> None:
    scenario: Scenario = BY_NAME["idle-tcp"]
    facts = {"seconds": 1.0, "connections": 1000.0, "rss_before_bytes": 1e6, "rss_after_bytes": 4e6}
    figure = summarize(scenario, "millstream", [Run(scenario.name, "millstream", 1, facts)])
    assert figure.bytes_per_connection == 3000.0
    assert check_all([scenario], Summary([figure]))[0].verdict == PASSED


def test_every_scenario_with_a_peer_in_its_targets_runs_on_that_peer() -> None:
    for scenario in SCENARIOS:
        peers = {
            *scenario.targets.rate_times,
            *scenario.targets.cpu_share,
            scenario.targets.round_trips_within,
        }
        assert peers - {""} <= set(scenario.brokers), scenario.name
