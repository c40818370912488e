"""The longest turn of the event loop, and when the operator is told that turns take long."""

from __future__ import annotations

from millstream.broker.conditions import LOOP_SLOW
from millstream.broker.health import Health
from millstream.broker.turn_figures import INTERVAL_NS, LONG_NS, OFTEN, QUEUES, READS, TICK, TurnFigures
from millstream.model.clock import Clock


def make_figures() -> tuple[TurnFigures, Health]:
    health = Health(Clock())
    figures = TurnFigures(health)
    figures.on_tick(INTERVAL_NS)
    return figures, health


def test_the_longest_turn_of_this_interval_and_the_one_before_is_told() -> None:
    figures, _ = make_figures()
    figures.note(3_000_000, READS)
    figures.note(2_000_000, READS)
    assert figures.values() == {"longest_turn_ms": "3.0", "long_turns": "0"}
    figures.on_tick(2 * INTERVAL_NS)
    figures.note(1_000_000, READS)
    assert figures.values()["longest_turn_ms"] == "3.0"
    figures.on_tick(3 * INTERVAL_NS)
    assert figures.values()["longest_turn_ms"] == "1.0"


def test_only_a_turn_longer_than_all_before_or_too_long_is_worth_telling() -> None:
    figures, _ = make_figures()
    figures.note(3_000_000, READS)
    assert not figures.is_notable(3_000_000)
    assert figures.is_notable(3_000_001)
    figures.note(3 * LONG_NS, READS)
    assert figures.is_notable(LONG_NS)


def test_long_turns_are_a_condition_when_they_come_often_and_name_what_took_the_time() -> None:
    figures, health = make_figures()
    for _ in range(OFTEN - 1):
        figures.note(LONG_NS, READS)
    figures.on_tick(2 * INTERVAL_NS)
    assert health.active() == []
    for _ in range(OFTEN):
        figures.note(LONG_NS, READS)
    figures.note(7 * LONG_NS, QUEUES)
    figures.on_tick(3 * INTERVAL_NS)
    (active,) = health.active()
    assert active.condition is LOOP_SLOW
    assert active.cause.startswith(
        "4 turns of the event loop took more than 50 ms within 10 s, the longest 350 ms"
    )
    assert active.cause.endswith(QUEUES)
    assert figures.values()["long_turns"] == str(OFTEN - 1 + OFTEN + 1)


def test_a_long_look_at_everything_is_named_too() -> None:
    figures, health = make_figures()
    for _ in range(OFTEN):
        figures.note_tick(LONG_NS)
    figures.on_tick(2 * INTERVAL_NS)
    (active,) = health.active()
    assert active.cause.endswith(TICK)


def test_the_condition_ends_with_an_interval_without_a_long_turn() -> None:
    figures, health = make_figures()
    for _ in range(OFTEN):
        figures.note(LONG_NS, READS)
    figures.on_tick(2 * INTERVAL_NS)
    figures.note(LONG_NS, READS)
    figures.on_tick(3 * INTERVAL_NS)
    assert len(health.active()) == 1
    figures.on_tick(4 * INTERVAL_NS)
    assert health.active() == []
