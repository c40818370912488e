"""What `bench memory` calls a broker that survives its floods."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.memory_suite.policies import Policies, count_policies
from benchmarks.memory_suite.verdicts import MemoryRun, check_memory_run
from benchmarks.suite.results import FAILED, PASSED, REFUSED

LINES = [
    {"event": "condition_began", "condition": "memory_high"},
    {"event": "memory_offender", "kind": "queue", "freed": 100},
    {"event": "memory_offender", "kind": "queue", "freed": 50, "left_out": 7},
    {"event": "memory_offender", "kind": "connection", "freed": 5},
    {"event": "condition_ended", "condition": "memory_high"},
    {"event": "condition_began", "condition": "client_busy"},
]


def count(*fields: dict[str, object]) -> Policies:
    return count_policies(["ready", *(json.dumps(each) for each in fields)])


def make_windows(p99_ms: float = 10.0, failed: int = 0) -> dict[str, dict[str, dict[str, Any]]]:
    good = {"count": 9, "p50_ms": 1.0, "p99_ms": 5.0, "max_ms": 9.0, "failed": 0, "fault": ""}
    return {"all": {"QoS 0": good, "QoS 1": {**good, "p99_ms": p99_ms, "failed": failed}}}


def judge(**changes: object) -> dict[str, str]:
    found = MemoryRun(30.0, 100, 7, True, 0, 900, 1024, 300, make_windows(), {"memory/state": "normal"})
    found.policies = count(*LINES)
    for name, value in changes.items():
        setattr(found, name, value)
    return {check.claim: check.verdict for check in check_memory_run(found)}


def test_policies_are_counted_with_the_lines_that_were_left_out() -> None:
    found = count(*LINES)
    assert found.offenders == {"queue": 9, "connection": 1}
    assert found.freed_bytes == 155
    assert found.began == found.ended == {"memory_high": 1}


def test_a_run_that_survives_holds_all_promises() -> None:
    assert set(judge().values()) == {PASSED}


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("survives", {"is_alive": False}),
        ("survives", {"killed": 1}),
        ("survives", {"policies": count(*LINES, {"event": "connection_failed"})}),
        ("every flood ran", {"rounds_least": 0}),
        ("ordinary clients are served", {"windows": make_windows(failed=1)}),
        ("ordinary clients' p99", {"windows": make_windows(p99_ms=251.0)}),
        ("policies are told", {"policies": count(LINES[0])}),
        ("memory afterwards", {"counters": {"memory/state": "high"}}),
    ],
)
def test_each_promise_is_broken_for_itself(claim: str, changes: dict[str, object]) -> None:
    assert [name for name, verdict in judge(**changes).items() if verdict == FAILED] == [claim]


def test_a_slow_answer_says_nothing_while_other_programs_held_the_core() -> None:
    slow = make_windows(p99_ms=251.0)
    assert judge(windows=slow, disturbed=0.3)["ordinary clients' p99"] == REFUSED
    assert judge(windows=make_windows(), disturbed=0.3)["ordinary clients' p99"] == PASSED


def test_a_run_can_be_written_to_a_file() -> None:
    run = MemoryRun(policies=count(*LINES))
    assert json.loads(json.dumps(asdict(run)))["policies"]["offenders"] == {"queue": 9, "connection": 1}


def test_a_run_that_never_reached_a_watermark_says_nothing_about_policies() -> None:
    assert judge(policies=count())["policies are told"] == REFUSED
