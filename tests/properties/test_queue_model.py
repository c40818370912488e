"""Queue and groups against a small model, by chosen steps and by hundreds of rounds of joining, leaving and dying."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from queue_rounds import TITLES, Rounds, StreamRounds, WorkRounds

from millstream.model.outcome import Outcome

ROUNDS = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestWorkQueue = WorkRounds.TestCase
TestWorkQueue.settings = ROUNDS
TestStream = StreamRounds.TestCase
TestStream.settings = ROUNDS

WORLDS = 300  # of each kind
STEPS = 60
CHURN = ("join", "leave", "die")
# how often each step is taken: dense where records change hands, rare where everything is thrown away
OFTEN = {
    "publish": 3,
    "publish_as": 1,
    "join": 2,
    "leave": 1,
    "die": 1,
    "grant": 3,
    "settle": 6,
    "answer_late": 1,
    "move": 2,
    "hold": 1,
    "advance": 2,
    "release": 1,
    "slow_down_segments": 1,
    "purge": 0.2,
    "restart": 0.7,
    "commit": 0.7,
    "seek": 0.7,
}


def is_possible(rounds: Rounds, step: str) -> bool:
    if step in ("leave", "die", "grant"):
        return bool(rounds.consumers)
    if step == "settle":
        return any(consumer.got for consumer in rounds.consumers)
    if step in ("commit", "seek"):
        return isinstance(rounds, StreamRounds) and bool(rounds.shares) and rounds.next > 0
    if step in ("hold", "advance", "release"):
        return rounds.is_held != (step == "hold")
    return step != "answer_late" or bool(rounds.late)


def take_step(rounds: Rounds, step: str, chance: random.Random) -> None:
    pick = chance.randrange(1 << 16)
    choices: dict[str, dict[str, object]] = {
        "publish": {
            "count": chance.randint(1, 4),
            "priority": chance.choice([0, 0, 0, 3, 9]),
            "delay_ms": chance.choice([0, 0, 0, 300, 2000]),
            "expiry_ms": chance.choice([0, 0, 0, 700, 10_000]),
        },
        "publish_as": {"producer": chance.choice("pr"), "number": chance.randint(0, 5)},
        "join": {"title": chance.choice(TITLES), "credit": chance.randint(0, 3)},
        "grant": {"pick": pick, "credit": chance.randint(0, 4)},
        "settle": {"pick": pick, "outcome": chance.choice([*Outcome, Outcome.ACCEPTED, Outcome.ACCEPTED])},
        "answer_late": {"pick": pick, "outcome": chance.choice(list(Outcome))},
        "move": {"milliseconds": chance.choice([10, 50, 100, 250, 400, 600, 1000, 5000])},
        "advance": {"count": chance.randint(1, 6)},
        "slow_down_segments": {"is_slow": chance.random() < 0.5},
        "restart": {
            "folded": chance.choice([0.0, 0.3, 0.7, 1.0]),
            "down_ms": chance.choice([0, 50, 500, 3000]),
        },
        "hold": {},
        "release": {},
        "purge": {},
    }
    getattr(rounds, step)(**choices.get(step, {"pick": pick}))
    rounds.counts_are_right()


@pytest.mark.parametrize("kind", [WorkRounds, StreamRounds])
def test_five_hundred_rounds_of_joining_leaving_and_dying(kind: type[Rounds]) -> None:
    churn = 0
    for seed in range(WORLDS):
        chance = random.Random(seed)
        rounds = kind()
        rounds.begin()
        try:
            for _ in range(STEPS):
                possible = [step for step in OFTEN if is_possible(rounds, step)]
                [step] = chance.choices(possible, [OFTEN[step] for step in possible])
                take_step(rounds, step, chance)
                churn += step in CHURN
            rounds.teardown()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    assert churn >= 500
