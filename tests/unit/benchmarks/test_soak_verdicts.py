"""What an hour of samples and numbered messages is judged by."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak_suite.account import GHOST, HEAD, Account, Latencies
from benchmarks.soak_suite.sampling import MEBIBYTE, Sample, fit_slope, take_sample
from benchmarks.soak_suite.verdicts import check_soak
from benchmarks.suite.results import FAILED, PASSED, REFUSED


def make_samples(
    growth_mib: float, *, minutes: int = 60, descriptors: int = 0, threads: int = 0, child_mib: float = 0.0
) -> list[Sample]:
    """One a minute; what grows reaches the end of its growth in the last minute. The child is there every other minute."""
    return [
        Sample(
            minute * 60.0,
            100 * MEBIBYTE + int(growth_mib * MEBIBYTE * minute / minutes),
            60 * MEBIBYTE,
            50 + descriptors * minute // minutes,
            8 + threads * minute // minutes,
            MEBIBYTE,
            0.0,
            int((25 + child_mib * minute / minutes) * MEBIBYTE) * (minute % 2),
        )
        for minute in range(minutes + 1)
    ]


def make_lane(**changes: object) -> dict[str, object]:
    return {**Account().summary(), "sent": 10, "may_repeat": False, "is_delayed": False, **changes}


def judge(samples: list[Sample], **changes: object) -> dict[str, str]:
    checks = check_soak(samples, 900.0, {"lane": make_lane(**changes)}, {"ready": 1})
    return {check.claim: check.verdict for check in checks}


def payload_of(number: int) -> bytes:
    return HEAD.pack(number, 0)


def test_a_slope_is_that_of_the_line_through_the_points() -> None:
    assert fit_slope([(x, 5.0 + 2 * x) for x in range(10)]) == pytest.approx((2.0, 0.0))
    assert fit_slope([(0.0, 1.0), (1.0, 2.0)]) == (0.0, 0.0)


def test_a_broker_that_stays_as_it_was_holds_every_promise() -> None:
    found = judge(make_samples(0.5))
    assert found["RSS slope after warm-up"] == PASSED
    assert FAILED not in found.values()


@pytest.mark.parametrize(
    ("claim", "samples"),
    [
        ("RSS slope after warm-up", make_samples(3.0)),
        ("descriptors", make_samples(0.0, descriptors=40)),
        ("threads", make_samples(0.0, threads=8)),
        ("RSS of the checkpoint process", make_samples(0.0, child_mib=8.0)),
    ],
)
def test_what_grows_is_told(claim: str, samples: list[Sample]) -> None:
    found = judge(samples)
    assert [name for name, verdict in found.items() if verdict == FAILED] == [claim]


PARENT = """
import subprocess, sys

block = bytes(32 << 20)
child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def test_the_size_of_the_broker_is_read_apart_from_that_of_its_children(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = take_sample(int(parent.stdout.readline()), tmp_path, 0.0)
        found = take_sample(parent.pid, tmp_path, 0.0)
        parent.communicate(b"\n")
    assert 0 < child.rss_bytes == found.child_rss_bytes < found.rss_bytes
    assert (found.threads, child.child_rss_bytes) == (1, 0)


def test_a_slope_of_a_few_minutes_is_no_figure() -> None:
    assert judge(make_samples(3.0, minutes=20))["RSS slope after warm-up"] == REFUSED


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("lost", {"lost": 1}),
        ("lost", {"sent": 0}),
        ("repeated or wrong", {"repeated": 1}),
        ("repeated or wrong", {"ghosts": 1}),
        ("repeated or wrong", {"wrong": 1}),
        ("connections lost or refused", {"faults": 1}),
    ],
)
def test_every_kind_of_wrong_delivery_breaks_a_promise(claim: str, changes: dict[str, object]) -> None:
    found = judge(make_samples(0.0), **changes)
    assert [name for name, verdict in found.items() if verdict == FAILED] == [claim]


def test_a_lane_whose_connections_are_cut_may_repeat() -> None:
    assert FAILED not in judge(make_samples(0.0), repeated=3, may_repeat=True).values()


def test_a_failure_in_the_log_is_told() -> None:
    checks = check_soak(make_samples(0.0), 900.0, {"lane": make_lane()}, {"ready": 1, "connection_failed": 2})
    assert [check.claim for check in checks if check.verdict == FAILED] == ["log"]


def test_an_account_knows_what_is_lost_repeated_and_rolled_back() -> None:
    account = Account()
    account.sent = 4
    for number in (0, 2, 2, GHOST):
        account.note(payload_of(number))
    assert (account.lost, account.repeated, account.ghosts) == (2, 1, 1)


def test_latencies_are_kept_to_two_digits() -> None:
    latencies = Latencies()
    for value in range(1, 1001):
        latencies.add(value)
    assert latencies.percentile(50) == 500
    assert latencies.percentile(99) == 990
    assert latencies.longest_us == 1000
