"""Floors, comparisons and verdicts of `bench queues`, from made-up facts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.load.queue_job import read_family_cpu_s
from benchmarks.queue_suite.brokers import KINDS
from benchmarks.queue_suite.plan import make_plan, parse_arguments
from benchmarks.queue_suite.report import make_report
from benchmarks.queue_suite.results import (
    REPORTED,
    check_counts,
    check_memory,
    check_queues,
    find_floor,
    merge_floors,
    name_bare,
    promised_rate,
)
from benchmarks.queue_suite.scenarios import BY_NAME, PAIRS, SCENARIOS, QueueScenario
from benchmarks.suite.plan import find_filesystem
from benchmarks.suite.results import FAILED, PASSED, REFUSED, Check, Figure, Run, Summary, summarize

SIXTEEN = BY_NAME["publish-16"]
ONE = BY_NAME["publish-1"]
WIDE = BY_NAME["publish-10x256"]
MEBIBYTE = 1024 * 1024
AGAINST_BARE = "messages/s, millstream against the bare server"


def make_run(scenario: QueueScenario, rate: float, **floors: float) -> Run:
    facts = {"seconds": 2.0, "deliveries": rate * 2, "broker_cpu_s": 1.0, "floor_spread": 1.1, **floors}
    return Run(scenario.name, "millstream", 1, facts)


def check_one(scenario: QueueScenario, run: Run, claim: str) -> Check:
    figures = Summary([summarize(scenario, "millstream", [run])])
    return next(check for check in check_queues([scenario], figures, [run]) if check.claim == claim)


def make_figure(broker: str, rate: float, cpu_us: float = 1.0, *, is_bound: bool = False) -> Figure:
    return Figure(SIXTEEN.name, broker, 1, rate, cpu_us, is_generator_bound=is_bound)


def test_singles_are_promised_a_share_of_the_syncs_of_the_disk() -> None:
    assert promised_rate(SIXTEEN, {"floor_1": 100.0, "floor_16": 5000.0}) == pytest.approx(1280.0)


def test_the_promise_ends_where_the_bare_loop_is_the_limit() -> None:
    assert promised_rate(SIXTEEN, {"floor_1": 100.0, "floor_16": 900.0}) == 900.0


def test_wide_windows_are_promised_half_of_the_bare_loop() -> None:
    assert promised_rate(WIDE, {"floor_1": 100.0, "floor_256": 80_000.0}) == 40_000.0


def test_every_floor_a_promise_needs_is_measured() -> None:
    for scenario in SCENARIOS:
        floors = {f"floor_{batch}": 10.0 for batch in scenario.batches}
        has_promise = bool(scenario.singles or scenario.batch)
        assert (promised_rate(scenario, floors) > 0) == has_promise, scenario.name


def test_a_floor_is_the_mean_of_both_measures_and_tells_how_far_they_were_apart() -> None:
    merged = merge_floors({"floor_1": 100.0, "seconds": 9.0}, {"floor_1": 300.0, "seconds": 9.0})
    assert merged == {"floor_1": 200.0, "floor_spread": 3.0}


def test_the_bare_server_stands_beside_the_floors_as_it_was_measured() -> None:
    merged = merge_floors({"floor_1": 100.0, "bare_rate": 70.0}, {"floor_1": 100.0})
    assert merged == {"floor_1": 100.0, "floor_spread": 1.0, "bare_rate": 70.0}


@pytest.mark.parametrize(
    ("generator_cpu_s", "foreign_s", "is_bound"), [(0.5, 0.0, 0.0), (1.95, 0.0, 1.0), (0.5, 0.3, 1.0)]
)
def test_the_bare_server_is_measured_like_a_broker_and_may_be_held_back_like_one(
    generator_cpu_s: float, foreign_s: float, is_bound: float
) -> None:
    facts = {
        "seconds": 2.0,
        "deliveries": 8000.0,
        "broker_cpu_s": 0.4,
        "round_trip_p50_us": 240.0,
        "generator_cpu_s": generator_cpu_s,
        "broker_wait_s": foreign_s,
    }
    expected = {"bare_rate": 4000.0, "bare_cpu_us": 50.0, "bare_p50_us": 240.0, "bare_is_bound": is_bound}
    assert name_bare(facts) == pytest.approx(expected)


def test_being_behind_the_bare_server_is_told_and_changes_no_verdict() -> None:
    floors = {"floor_1": 100.0, "floor_16": 5000.0}
    alone = make_run(SIXTEEN, 640.0, **floors)
    beside = make_run(SIXTEEN, 640.0, **floors, bare_rate=960.0)
    told = check_one(SIXTEEN, beside, AGAINST_BARE)
    assert (told.measured, told.verdict) == ("0.67 x", REPORTED)
    assert "0.75 x promised" in told.target
    promise = "confirmed after sync"
    assert check_one(SIXTEEN, beside, promise) == check_one(SIXTEEN, alone, promise)


@pytest.mark.parametrize(
    ("foreign_s", "bare_is_bound", "sign"),
    [(0.3, 0.0, ">= "), (0.0, 1.0, "<= "), (0.3, 1.0, "about ")],
)
def test_a_held_back_rate_makes_the_distance_to_the_bare_server_a_bound(
    foreign_s: float, bare_is_bound: float, sign: str
) -> None:
    run = make_run(ONE, 50.0, floor_1=100.0, bare_rate=100.0, bare_is_bound=bare_is_bound)
    run.facts["broker_wait_s"] = foreign_s
    assert check_one(ONE, run, AGAINST_BARE).measured == f"{sign}0.50 x"


def test_without_a_bare_server_nothing_is_said_of_it() -> None:
    run = make_run(ONE, 50.0, floor_1=100.0)
    checks = check_queues([ONE], Summary([summarize(ONE, "millstream", [run])]), [run])
    assert AGAINST_BARE not in [check.claim for check in checks]


def test_rounds_without_a_bare_server_do_not_count_in_its_figures() -> None:
    without = make_run(ONE, 90.0, floor_1=100.0)
    beside = make_run(ONE, 60.0, floor_1=100.0, bare_rate=80.0)
    floor = find_floor(ONE, "millstream", [without, beside])
    assert floor is not None
    assert (floor.bare, floor.bare_share, floor.times_bare) == pytest.approx((80.0, 1.0, 0.75))


def test_each_round_is_judged_by_its_own_floor() -> None:
    slow = make_run(SIXTEEN, 900.0, floor_1=100.0, floor_16=5000.0)
    fast = make_run(SIXTEEN, 9000.0, floor_1=1000.0, floor_16=50_000.0)
    floor = find_floor(SIXTEEN, "millstream", [slow, fast])
    assert floor is not None
    assert floor.share == pytest.approx(900 / 1280)


@pytest.mark.parametrize(("rate", "expected"), [(1281.0, PASSED), (1279.0, FAILED)])
def test_a_durable_rate_passes_exactly_when_it_reaches_its_floor(rate: float, expected: str) -> None:
    run = make_run(SIXTEEN, rate, floor_1=100.0, floor_16=5000.0)
    assert check_one(SIXTEEN, run, "confirmed after sync").verdict == expected


def test_on_an_unsteady_disk_a_missed_floor_has_no_figure() -> None:
    run = make_run(SIXTEEN, 600.0, floor_1=100.0, floor_16=5000.0)
    run.facts["floor_spread"] = 1.6
    assert check_one(SIXTEEN, run, "confirmed after sync").verdict == REFUSED


@pytest.mark.parametrize(("rate", "expected"), [(110.0, PASSED), (2000.0, FAILED)])
def test_a_confirm_that_cannot_have_waited_for_the_disk_is_found_out(rate: float, expected: str) -> None:
    run = make_run(ONE, rate, floor_1=100.0)
    assert check_one(ONE, run, "each confirm waited for the disk").verdict == expected


def test_only_brokers_of_the_same_durability_are_compared() -> None:
    summary = Summary([make_figure(name, 1000.0) for name in KINDS])
    claims = {check.claim for check in check_queues([SIXTEEN], summary, [])}
    assert "messages/s, millstream against rabbitmq" in claims
    assert "messages/s, millstream-os against nats" in claims
    assert "messages/s, millstream against nats" not in claims
    assert ("millstream", "nats") not in PAIRS


def test_being_behind_a_peer_fails_in_rate_and_in_processor_time() -> None:
    summary = Summary([make_figure("millstream", 900.0, 2.0), make_figure("rabbitmq", 1000.0, 1.0)])
    assert [check.verdict for check in check_queues([SIXTEEN], summary, [])] == [FAILED, FAILED]


def test_a_peer_held_back_by_the_generator_is_no_base_for_a_rate() -> None:
    summary = Summary([make_figure("millstream", 9000.0), make_figure("rabbitmq", 1000.0, is_bound=True)])
    rate = next(check for check in check_queues([SIXTEEN], summary, []) if "messages/s" in check.claim)
    assert rate.verdict == REFUSED


@pytest.mark.parametrize(
    ("ready_s", "fault", "expected"),
    [(4.9, "", PASSED), (5.1, "", FAILED), (0.0, "was not ready within 20 s", FAILED)],
)
def test_a_restart_is_judged_by_the_time_to_ready(ready_s: float, fault: str, expected: str) -> None:
    run = Run("restart", "millstream", 1, {"stored": 1e6, "ready_s": ready_s}, fault)
    checks = check_queues([BY_NAME["restart"]], Summary([]), [run])
    assert checks[0].verdict == expected


@pytest.mark.parametrize(
    ("growth", "last_us", "expected"),
    [(99, 1.2, [PASSED, PASSED]), (101, 1.2, [FAILED, PASSED]), (1, 1.3, [PASSED, FAILED])],
)
def test_memory_is_judged_by_growth_and_by_the_cost_of_the_last_publishes(
    growth: int, last_us: float, expected: list[str]
) -> None:
    facts = {
        "deliveries": 1e7,
        "rss_before_bytes": 50.0 * MEBIBYTE,
        "rss_after_bytes": (50.0 + growth) * MEBIBYTE,
        "cpu_first_us": 1.0,
        "cpu_last_us": last_us,
    }
    assert [check.verdict for check in check_memory(BY_NAME["memory"], facts)] == expected


def test_lost_and_repeated_messages_of_any_round_fail() -> None:
    good = Run("consume-1", "millstream", 1, {"expected_total": 10.0, "delivered_total": 10.0})
    bad = Run(
        "consume-1", "millstream-os", 2, {"expected_total": 10.0, "delivered_total": 9.0, "repeated": 1.0}
    )
    assert [check.verdict for check in check_counts([good])] == [PASSED, PASSED]
    assert [check.verdict for check in check_counts([good, bad])] == [FAILED, FAILED]


def test_what_a_peer_lost_is_not_counted_as_ours() -> None:
    theirs = Run("consume-1", "nats", 1, {"expected_total": 10.0, "delivered_total": 1.0})
    assert check_counts([theirs]) == []


def test_a_whole_run_may_miss_only_the_broker_whose_release_cannot_sync() -> None:
    plan = make_plan(parse_arguments([]))
    assert plan.is_whole({"nats-sync": "unknown field"})
    assert not plan.is_whole({"rabbitmq": "not installed"})
    assert not make_plan(parse_arguments(["--quick"])).is_whole({})
    assert not make_plan(parse_arguments(["--scenario", "restart"])).is_whole({})


def test_the_plan_asks_for_room_on_the_disk_by_its_largest_queue() -> None:
    small = make_plan(parse_arguments(["--scenario", "publish-1"]))
    large = make_plan(parse_arguments(["--scenario", "restart", "--restart-messages", "9000000"]))
    assert small.disk_bytes() < 9_000_000 * 1024 * 2 < large.disk_bytes()


def test_a_queue_too_small_to_measure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--messages", "5"])
    assert "--messages must be at least 100" in capsys.readouterr().err


def test_the_filesystem_of_a_folder_is_that_of_the_longest_mount_point() -> None:
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /data tmpfs rw 0 0\n/dev/b /data/disk xfs rw 0 0\n"
    assert find_filesystem(Path("/data/disk/bench"), mounts) == "xfs"
    assert find_filesystem(Path("/data/diskette"), mounts) == "tmpfs"
    assert find_filesystem(Path("/elsewhere"), mounts) == "ext4"


def test_the_page_names_every_scenario_its_durability_and_who_was_left_out() -> None:
    runs = [
        Run(
            scenario.name,
            name,
            1,
            {
                "seconds": 2.0,
                "deliveries": 2000.0,
                "broker_cpu_s": 1.0,
                "stored": 1e6,
                **{f"floor_{batch}": 100.0 * batch for batch in scenario.batches},
                "bare_rate": 4321.0,
            },
        )
        for scenario in SCENARIOS
        for name in scenario.brokers
        if name != "nats-sync"
    ]
    summary = Summary(
        summarize(scenario, name, runs)
        for scenario in SCENARIOS
        for name in scenario.brokers
        if name != "nats-sync"
    )
    checks = check_queues(SCENARIOS, summary, runs)
    document: dict[str, object] = {
        "machine": {"cores": 2, "processor": "p", "system": "s", "filesystem": "ext4", "python": "3"},
        "versions": {name: "v" for name in KINDS if name != "nats-sync"},
        "left_out": {"nats-sync": "it does not take the configuration"},
        "rounds": 3,
        "measure_ms": 3000,
        "fill": 10,
        "messages": 10,
        "restart_messages": 10,
    }
    report = make_report(SCENARIOS, summary, runs, checks, document)
    page = report.page()
    for scenario in SCENARIOS:
        assert scenario.title in page or scenario.is_once
    for name, kind in KINDS.items():
        assert f"- {kind.title}: " in page
        assert kind.durability in page or name == "nats-sync"
    assert "left out, it does not take the configuration" in page
    assert "4,321" in page
    for _, header, body in report.sections:
        assert all(len(row) == len(header) for row in body)


def test_the_processor_time_of_a_process_includes_threads_and_children_that_ended() -> None:
    before = read_family_cpu_s([os.getpid()])
    started = time.process_time()
    worker = threading.Thread(target=sum, args=(range(2_000_000),))
    worker.start()
    worker.join()
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
    own = time.process_time() - started
    assert read_family_cpu_s([os.getpid()]) - before > own
