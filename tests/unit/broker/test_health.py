"""Conditions: told when they begin and when they end, counted in between."""

from __future__ import annotations

import json

import pytest
from fakes import START_NS, HeldStore, World

from millstream.broker.conditions import (
    CONDITIONS,
    CONNECTION_RATE,
    CONNECTIONS_FULL,
    STORAGE_FAILED,
    STORAGE_FULL,
    Condition,
)
from millstream.broker.health import QUIET_NS, ActiveCondition, Health, HealthObserver
from millstream.broker.health_topics import HealthTopics
from millstream.broker.system_topics import SystemTopics
from millstream.model.clock import Clock
from millstream.model.errors import Reason
from millstream.model.message import NANOSECONDS


class Told(HealthObserver):
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, int, int]] = []  # what, condition, count, nanoseconds

    def began(self, active: ActiveCondition) -> None:
        self.lines.append(("began", active.condition.name, int(active.count), 0))

    def ended(self, active: ActiveCondition, lasted_ns: int) -> None:
        self.lines.append(("ended", active.condition.name, int(active.count), int(lasted_ns)))


def make_health() -> tuple[Health, Clock, Told]:
    clock = Clock()
    clock.now_ns = START_NS
    told = Told()
    return Health(clock, told), clock, told


def test_a_condition_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    health, clock, told = make_health()
    for _ in range(3):
        health.begin(STORAGE_FULL, "no room")
        health.count(STORAGE_FULL, 5)
    clock.now_ns = START_NS + NANOSECONDS
    for _ in range(3):
        health.end(STORAGE_FULL)
        health.count(STORAGE_FULL, 5)
    assert told.lines == [("began", "storage_full", 0, 0), ("ended", "storage_full", 15, NANOSECONDS)]


def test_the_status_is_the_worst_severity() -> None:
    health, _, _ = make_health()
    assert health.status() == "ok"
    health.begin(CONNECTION_RATE, "192.0.2.1")
    assert health.status() == "ok"
    health.begin(STORAGE_FULL, "no room")
    assert health.status() == "degraded"
    health.begin(STORAGE_FAILED, "sync")
    assert health.status() == "failed"
    health.end(STORAGE_FAILED)
    assert health.status() == "degraded"


def test_what_repeats_is_counted_and_ends_when_it_stays_away() -> None:
    health, clock, told = make_health()
    for step in range(100):
        clock.now_ns = START_NS + step * NANOSECONDS
        health.report(CONNECTIONS_FULL, "100 connections")
        health.on_tick(clock.now_ns)
    last_ns = clock.now_ns
    health.on_tick(last_ns + QUIET_NS - 1)
    assert len(told.lines) == 1
    clock.now_ns = last_ns + QUIET_NS
    health.on_tick(clock.now_ns)
    assert told.lines[1:] == [("ended", "connections_full", 100, 99 * NANOSECONDS + QUIET_NS)]


def test_a_state_does_not_end_by_itself() -> None:
    health, clock, told = make_health()
    health.begin(STORAGE_FULL, "no room")
    clock.now_ns = START_NS + 1000 * QUIET_NS
    health.on_tick(clock.now_ns)
    assert [line[0] for line in told.lines] == ["began"]


def test_another_cause_is_shown_without_a_second_line() -> None:
    health, _, told = make_health()
    health.begin(STORAGE_FULL, "no room")
    before = health.generation
    health.begin(STORAGE_FULL, "quota exceeded", "ask for more")
    active = health.find(STORAGE_FULL)
    assert active is not None
    assert (active.cause, active.advice) == ("quota exceeded", "ask for more")
    assert health.generation != before
    assert len(told.lines) == 1


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda each: each.name)
def test_every_condition_says_what_it_means_and_what_to_do(condition: Condition) -> None:
    assert condition.meaning.endswith(".")
    assert condition.advice
    assert condition.name == condition.name.lower()


def test_the_names_of_conditions_are_different() -> None:
    assert len({each.name for each in CONDITIONS}) == len(CONDITIONS)


# ---------------------------------------------------------------------- $SYS


class FullStore(HeldStore):
    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE


def retained(world: World, name: str) -> str | None:
    found = world.account.retained.find(b"$SYS/broker/health/" + name.encode())
    return None if found is None else found.payload.decode()


def test_sys_has_the_status_and_a_topic_for_each_condition_as_long_as_it_lasts() -> None:
    world = World()
    health = world.broker.health
    topics = HealthTopics(world.broker, health)
    topics.on_tick()
    assert retained(world, "status") == "ok"
    health.begin(STORAGE_FULL, "no room")
    topics.on_tick()
    assert retained(world, "status") == "degraded"
    told = json.loads(retained(world, "storage_full") or "")
    assert told["cause"] == "no room"
    assert told["severity"] == "degraded"
    health.end(STORAGE_FULL)
    topics.on_tick()
    assert retained(world, "status") == "ok"
    assert retained(world, "storage_full") is None


def test_sys_is_told_while_nothing_can_be_stored() -> None:
    world = World(store=FullStore())
    session, line = world.connect("watcher")
    world.subscribe(session, b"$SYS/broker/health/#", 0)
    topics = HealthTopics(world.broker, world.broker.health)
    topics.on_tick()
    world.broker.health.begin(STORAGE_FULL, "no room")
    topics.on_tick()
    assert retained(world, "status") == "degraded"
    assert [payload for payload, _, _ in line.plain][:2] == [b"ok", b"degraded"]


def test_what_is_reported_has_the_cause_of_its_first_report() -> None:
    """A flood from many addresses must not be told once for each of them."""
    health, _, told = make_health()
    health.report(CONNECTIONS_FULL, "192.0.2.1", advice="look there")
    before = health.generation
    for number in range(2, 100):
        health.report(CONNECTIONS_FULL, f"192.0.2.{number}")
    active = health.find(CONNECTIONS_FULL)
    assert active is not None
    assert (active.cause, active.advice, active.count) == ("192.0.2.1", "look there", 99)
    assert health.generation == before
    assert len(told.lines) == 1


def test_what_was_counted_is_added_up_over_all_times_a_condition_held() -> None:
    health, clock, _ = make_health()
    health.report(CONNECTIONS_FULL, "full", 3)
    clock.now_ns += QUIET_NS
    health.on_tick(clock.now_ns)
    health.report(CONNECTIONS_FULL, "full", 4)
    health.begin(STORAGE_FULL, "no room")
    health.count(STORAGE_FULL, 5)
    totals = health.totals()
    assert (totals["connections_full"], totals["storage_full"], totals["logins_busy"]) == (7, 5, 0)


def test_sys_tells_how_much_was_refused_by_condition() -> None:
    world = World()
    world.broker.health.report(CONNECTIONS_FULL, "full", 3)
    values = SystemTopics(world.broker, "1", 10, START_NS).values(START_NS)
    assert values["refused/connections_full"] == "3"
    assert values["refused/limit_reached"] == "0"
