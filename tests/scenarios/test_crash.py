"""What was confirmed survives `kill -9` at any moment: nothing lost, nothing reordered, exactly once stays once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from campaign_apart import run_apart

from crash.campaign import Campaign, Result
from crash.journal import PATHS
from crash.run import make_table

KILLS = 30
PLANTED_KILLS = 3


def run_campaign(seed: int, folder: Path) -> Result:
    from crash.forked import ForkedBroker  # imports a broker as a whole: only where it is forked

    settings = (f"storage.segment_compression={'zstd' if seed % 2 else 'none'}",)
    return Campaign(PATHS, KILLS, seed, settings=settings, folder=folder, kind=ForkedBroker).run()


@pytest.mark.timeout(400)
def test_nothing_confirmed_is_lost_when_the_broker_is_killed_again_and_again(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    result = run_apart(run_campaign, seed, tmp_path)
    assert not result.faults, (seed, result.faults)
    assert result.kills > KILLS
    for path, verdict in result.verdicts.items():
        assert verdict.confirmed > KILLS, f"{path} was not under load\n" + "\n".join(make_table(result))


@pytest.mark.timeout(200)
def test_a_broker_that_confirms_before_it_syncs_is_caught(tmp_path: Path) -> None:
    """The planted bug: the real broker with a log that answers at once and writes up to 200 ms later."""
    result = Campaign(PATHS, PLANTED_KILLS, 1, "crash.hasty", folder=tmp_path, stall_s=3.0).run()
    lost = {path: verdict.lost for path, verdict in result.verdicts.items()}
    assert sum(lost.values()) > 0, lost
    assert [fault for fault in result.faults if "confirmed messages lost" in fault]
