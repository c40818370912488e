"""The drivers of `./dev bench attack`, `flood`, `turns` and `soak` run, each for a moment: they must not rot."""

from __future__ import annotations

import argparse
import os

import pytest
from rich.console import Console

from benchmarks.attack_suite.broker import ConfinedBroker
from benchmarks.attack_suite.confinement import Confinement
from benchmarks.attack_suite.runner import LIMIT_BYTES, AttackRun
from benchmarks.attack_suite.table import ATTACKS
from benchmarks.flood_suite.runner import run_flood
from benchmarks.flood_suite.verdicts import Flood
from benchmarks.soak_suite.command import Soak
from benchmarks.turns_suite.command import CASES, measure


def find_two_cores() -> list[int]:
    cores = sorted(os.sched_getaffinity(0))
    return [cores[0], cores[-1]]


@pytest.mark.parametrize("name", ["amqp-empty-flood", "filters-pathological"])
def test_other_clients_are_served_during_an_attack(name: str) -> None:
    found = AttackRun(
        ATTACKS[name], find_two_cores(), seconds=1.0, scale=0.1, recovery_s=20.0, control_s=0.3
    ).run()
    assert found.faults == []
    assert found.exit_code is None
    assert found.kernel_kills == 0
    assert found.evidence.failures == []
    assert found.recovered_s >= 0
    assert set(found.windows["attack"]) == {"QoS 0", "QoS 1", "MQTT newcomer", "AMQP newcomer"}
    assert sum(int(measure["failed"]) for measure in found.windows["attack"].values()) == 0


@pytest.mark.parametrize("name", ["queue-ack-backwards", "mqtt-expiry", "queue-channels-close"])
def test_a_costly_input_is_measured_until_the_broker_says_that_it_is_done(name: str) -> None:
    found = measure(CASES[name], 0.01)
    assert found.fault == ""
    assert found.turn_ms > 0


def test_newcomers_and_consumers_are_served_during_a_flood() -> None:
    found = run_flood("millstream", Flood(2, 2, 100, False, True), 0.5, find_two_cores())
    assert found.fault == ""
    assert found.newcomers > 0
    assert found.least_consumer_rate > 0


def test_a_soak_of_a_moment_loses_nothing() -> None:
    parsed = argparse.Namespace(only=None, minutes=0.04, warm_up=0.0, every=0.5)
    with (
        Confinement(LIMIT_BYTES) as confinement,
        ConfinedBroker(find_two_cores()[0], confinement, (), ("tls",)) as broker,
    ):
        assert isinstance(broker, ConfinedBroker)
        soak = Soak(broker, parsed, Console(quiet=True))
        checks = {check.claim: check.measured for check in soak.run()}
    lanes = soak.document()["lanes"]
    assert {name: lane["fault_texts"] for name, lane in lanes.items() if lane["faults"]} == {}
    assert checks["repeated or wrong"] == "0"
    assert sum(lane["lost"] for lane in lanes.values()) == 0
    assert all(lane["sent"] or lane["visits"] for lane in lanes.values())
