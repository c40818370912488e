"""A streaming job whose driver and broker are killed copies every offset once, into a lake table and into a queue.

The life in which they die hands its ranges over to the tasks that write the lake; the next one, which runs the open batch
again, does not.

`python -m crash.spark_run` is the long version, with executors; executors die in test_cluster as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.spark_campaign import BROKER, DRIVER, SparkCampaign
from crash.spark_sinks import SLOW

SEED = 4
KILLS = [
    BROKER,
    DRIVER,
]  # between them a stream is added, and the limit of a batch changes with the life of the job


@pytest.mark.timeout(400)
def test_every_offset_is_in_both_sinks_once_after_the_broker_and_the_driver_were_killed(
    tmp_path: Path,
) -> None:
    result = SparkCampaign("both", KILLS, SEED, (SLOW,), tmp_path).run()
    assert result.faults == []
    assert (result.kills, result.lives, result.streams) == (2, 2, 2)
    assert result.handed_over == 2
    assert [verdict.sink for verdict in result.verdicts] == ["lake", "queue"]
    assert all(verdict.source_rows > 0 for verdict in result.verdicts)
