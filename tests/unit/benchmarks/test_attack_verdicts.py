"""What an attack is judged by, and the table of attacks."""

from __future__ import annotations

import json

import pytest

from benchmarks.attack_suite.evidence import Evidence
from benchmarks.attack_suite.report import make_page, make_row
from benchmarks.attack_suite.runner import Observation
from benchmarks.attack_suite.table import ATTACKS
from benchmarks.attack_suite.verdicts import check_attack
from benchmarks.attack_suite.websocket import BINARY, encode_frame, find_frame
from benchmarks.suite.results import FAILED, PASSED, REFUSED

MIB = 1 << 20


def make_window(p99_ms: float, failed: int = 0) -> dict[str, dict[str, object]]:
    return {
        "QoS 1": {"p99_ms": p99_ms, "max_ms": p99_ms, "failed": failed},
        "AMQP newcomer": {"p99_ms": 1.0, "max_ms": 1.0, "failed": 0},
    }


def make_observation(**changes: object) -> Observation:
    found = Observation("some", 6.0)
    found.memory_before, found.memory_peak, found.memory_after = 70 * MIB, 900 * MIB, 100 * MIB
    found.recovered_s = 2.0
    found.windows = {"control": make_window(5.0), "attack": make_window(100.0)}
    found.evidence = Evidence(events={"client_busy": 1}, counters={"refused/client_busy": "1"})
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def judge(**changes: object) -> dict[str, str]:
    return {check.claim: check.verdict for check in check_attack(make_observation(**changes))}


def test_a_broker_that_withstands_an_attack_holds_four_promises() -> None:
    assert list(judge().values()) == [PASSED] * 4


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("never killed", {"exit_code": -9}),
        ("never killed", {"kernel_kills": 1}),
        ("never killed", {"evidence": Evidence(events={"a": 1}, counters={"b": "1"}, failures=["x"])}),
        ("other clients' p99", {"windows": {"control": make_window(5.0), "attack": make_window(251.0)}}),
        ("other clients' p99", {"windows": {"control": make_window(5.0), "attack": make_window(5.0, 1)}}),
        ("other clients' p99", {"windows": {}}),
        ("memory back", {"recovered_s": -1.0}),
        ("attackers named", {"evidence": Evidence(events={"client_busy": 1})}),
        ("attackers named", {"evidence": Evidence(counters={"refused/client_busy": "1"})}),
    ],
)
def test_each_promise_is_broken_for_itself(claim: str, changes: dict[str, object]) -> None:
    assert [name for name, verdict in judge(**changes).items() if verdict == FAILED] == [claim]


@pytest.mark.parametrize(
    ("p99_ms", "peak_mib", "verdict"),
    [(100.0, 100, PASSED), (101.0, 100, FAILED), (100.0, 420, PASSED), (100.0, 440, FAILED)],
)
def test_nobody_has_to_be_named_for_what_nobody_felt(p99_ms: float, peak_mib: int, verdict: str) -> None:
    window = {"control": make_window(5.0), "attack": make_window(p99_ms)}
    judged = judge(windows=window, memory_peak=peak_mib * MIB, evidence=Evidence())
    assert judged["attackers named"] == verdict


def test_a_machine_that_was_busy_with_others_gives_no_figure() -> None:
    slow = {"control": make_window(5.0), "attack": make_window(300.0)}
    assert judge(windows=slow, disturbed=0.5)["other clients' p99"] == REFUSED
    assert judge(windows=slow, disturbed=0.1)["other clients' p99"] == FAILED


def test_only_lines_about_attackers_name_them() -> None:
    evidence = Evidence()
    lines = [
        {"event": "client_busy", "address": "127.0.66.1"},
        {"event": "client_refused", "client_id": "attack-0-7", "address": "127.0.0.1"},
        {"event": "client_busy", "address": "127.0.0.1", "client_id": "witness-live-0"},
        {"event": "connection_failed", "address": "127.0.0.1"},
    ]
    evidence.read_log(["not json", *(json.dumps(line) for line in lines)])
    assert evidence.events == {"client_busy": 1, "client_refused": 1}
    assert len(evidence.failures) == 1


def test_lines_of_the_preparation_name_nobody_unless_their_condition_still_holds() -> None:
    began, ended = "condition_began", "condition_ended"
    lines = [
        {"event": "client_busy", "address": "127.0.66.1"},
        {"event": began, "condition": "client_busy", "cause": "127.0.66.1: over again"},
        {"event": began, "condition": "limit_reached", "cause": "127.0.66.1: still there"},
        {"event": ended, "condition": "client_busy", "cause": "127.0.66.1: over again"},
        {"event": "connection_failed", "address": "127.0.0.1"},
        {"event": "client_refused", "address": "127.0.66.1"},
    ]
    evidence = Evidence()
    evidence.read_log([json.dumps(line) for line in lines], prepared=5)
    assert evidence.events == {"client_refused": 1, began: 1}
    assert [json.loads(line)["event"] for line in evidence.lines] == ["client_refused", began]
    assert "still there" in evidence.lines[1]
    assert len(evidence.failures) == 1  # a fault is one whenever it was


def test_counters_that_ordinary_traffic_moves_say_nothing() -> None:
    evidence = Evidence()
    evidence.compare({"errors/x": "1"}, {"errors/x": "2", "messages/sent": "5", "refused/y": "0"})
    assert evidence.counters == {"errors/x": "2"}


def test_there_are_forty_attacks_at_least_and_each_finding_has_one() -> None:
    assert len(ATTACKS) >= 40
    findings = {item.strip() for attack in ATTACKS.values() for item in attack.finding.split(",")}
    assert {"C1", "F5", "F6", "F7", "F15", "F17", "F18", "F19", "F20"} <= findings
    assert all(attack.title for attack in ATTACKS.values())


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_the_end_of_a_frame_is_found_whatever_its_size(size: int) -> None:
    masked = encode_frame(BINARY, b"x" * size)
    head = len(masked) - size - 4
    frame = bytes([masked[0], masked[1] & 0x7F]) + masked[2:head] + b"x" * size
    assert find_frame(frame) == (len(frame), head)
    assert find_frame(frame[:1]) == (-1, 0)


def test_the_page_is_made_of_rows_that_were_measured_in_pieces() -> None:
    name = next(iter(ATTACKS))
    found = make_observation(attack=name, confined_by="cgroup v1")
    rows = [
        make_row(name, "one", 20.0, check_attack(found), found),
        make_row("classic", "two", 9.0, [], None),
    ]
    rows = json.loads(json.dumps(rows))  # as they come back from the file
    machine = {"cores": 2, "processor": "p", "system": "s", "python": "3"}
    page = make_page(machine, rows, ATTACKS)
    assert f"| `{name}` | {ATTACKS[name].title}" in page
    assert "cgroup v1" in page
    assert "; one, two." in page
