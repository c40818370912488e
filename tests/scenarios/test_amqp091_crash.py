"""What AMQP clients were promised survives `kill -9`: confirms, transactions as a whole, declarations and bindings."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from crash.amqp_run import AmqpCampaign

KILLS = 5
PLANTED_KILLS = 3


@pytest.mark.timeout(300)
def test_nothing_promised_to_amqp_clients_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    campaign = AmqpCampaign(KILLS, seed, folder=tmp_path)
    asyncio.run(campaign.run())
    assert not campaign.faults, (seed, campaign.faults)
    journal = campaign.journal
    assert len(journal.confirmed) > KILLS
    assert len(journal.committed) > KILLS
    assert journal.declared


@pytest.mark.timeout(300)
def test_a_broker_that_promises_amqp_clients_too_early_is_caught(tmp_path: Path) -> None:
    """The planted bug: the real broker with a log that answers at once and writes up to 200 ms later."""
    campaign = AmqpCampaign(PLANTED_KILLS, 1, "crash.hasty", folder=tmp_path)
    asyncio.run(campaign.run())
    assert [fault for fault in campaign.faults if "confirmed messages are lost" in fault], campaign.faults
