"""A broker that has started reads all segments in the background, and names what is damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_compressed_storage import make_millstream, publish, segments

from millstream.broker.conditions import STORAGE_DAMAGED


async def start_and_wait(data_dir: Path) -> str:
    """What is wrong with the storage, as the health of a broker says it."""
    async with make_millstream(data_dir, "none") as millstream:
        durable = millstream._durable
        assert durable is not None
        task = durable._checks._task
        assert task is not None
        await asyncio.wait_for(asyncio.shield(task), 30)
        found = millstream.health.find(STORAGE_DAMAGED)
        return "" if found is None else found.cause


@pytest.mark.parametrize("is_damaged", [False, True])
def test_damage_in_a_segment_is_named_before_anybody_reads_it(tmp_path: Path, is_damaged: bool) -> None:
    data_dir = tmp_path / "data"
    queue = asyncio.run(publish(data_dir, "none"))
    path = segments(data_dir, queue)[0]
    if is_damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    cause = asyncio.run(start_and_wait(data_dir))
    assert (path.name in cause and "of the queue 'readings'" in cause) if is_damaged else not cause


def test_a_stop_does_not_wait_for_it_and_folds_what_is_left(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    for count in range(1, 4):
        asyncio.run(publish(data_dir, "none"))  # starts, and stops while the segments may still be read
        assert len(segments(data_dir, 1)) == 1, count
