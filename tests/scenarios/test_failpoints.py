"""A real broker that dies at named places, one after another on the same data, has lost nothing. `python -m crash.failpoints` is the long run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from campaign_apart import run_apart

from crash.campaign import Result
from crash.failpoints import FailpointRun

PLACES = [
    "log.after_write",
    "segment.after_write",
    "checkpoint.before_commit",
    "recover.after_remove_folded",
    "recover.after_cut",
    "quarantine.after_rename",
]


def run_places(seed: int, folder: Path) -> tuple[Result, list[str], list[str]]:
    """The result, the story of every life, and the places that were not reached."""
    from crash.forked import ForkedBroker  # imports a broker as a whole: only where it is forked

    run = FailpointRun(PLACES, seed, folder=folder, kind=ForkedBroker)
    return run.run(), run.story, run.tally.missing()


@pytest.mark.timeout(400)
def test_nothing_confirmed_is_lost_when_the_broker_dies_at_these_places(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    result, story, missing = run_apart(run_places, seed, tmp_path)
    assert not result.faults, (seed, story, result.faults)
    assert missing == [], (seed, story)
    assert all(verdict.confirmed for verdict in result.verdicts.values())


@pytest.mark.timeout(200)
def test_a_broker_that_confirms_before_it_writes_is_caught_there(tmp_path: Path) -> None:
    """The planted bug: what was confirmed and not yet written is gone with a death just before the write."""
    names = ["log.before_write"] * 2
    result = FailpointRun(names, 5, folder=tmp_path, module="crash.hasty", stall_s=3.0).run()
    assert sum(verdict.lost for verdict in result.verdicts.values()) > 0, result.faults
