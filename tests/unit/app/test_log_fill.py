"""`storage.log_fill_size` reaches the log of a broker, on a real data directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.app.server import Millstream
from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.config.load import config_of
from millstream.queues.definition import Definition

OFF = {"enabled": False}


@pytest.mark.parametrize(
    ("storage", "fills"),
    [
        ({}, [256 * 1024]),
        ({"log_fill_size": "64 KiB"}, [64 * 1024]),
        ({"log_fill_size": 0}, []),
        ({"durability": "os"}, []),
    ],
)
async def test_the_log_is_filled_ahead_as_far_as_it_is_told(
    storage: dict[str, object], fills: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    write = os.pwrite

    def watch(descriptor: int, data: bytes, offset: int) -> int:
        if not data.strip(b"\0"):
            found.append(len(data))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", watch)
    values = {"data_dir": str(tmp_path), "mqtt": {"port": 0}, "websocket": OFF, "amqp": OFF}
    async with Millstream(config_of({**values, "storage": storage})) as millstream:
        millstream.broker.get_account(DEFAULT_ACCOUNT).queues.catalog.declare("jobs", Definition("work"))
    assert found == fills
