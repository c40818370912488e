"""Which starts doubt what the clients of restored sessions know: those behind a log that was not synced with every batch."""

from __future__ import annotations

from pathlib import Path

from millstream.app.server import Millstream
from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.config.load import config_of
from millstream.storage.store import SessionKey


def make_millstream(data_dir: Path, durability: str) -> Millstream:
    off = {"enabled": False}
    values = {"data_dir": str(data_dir), "mqtt": {"port": 0}, "websocket": off, "amqp": off}
    return Millstream(config_of({**values, "storage": {"durability": durability}}))


async def make_session(data_dir: Path, durability: str) -> None:
    async with make_millstream(data_dir, durability) as millstream:
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "c"), "user", 3600, 0)


async def is_in_doubt(data_dir: Path, durability: str) -> bool:
    async with make_millstream(data_dir, durability) as millstream:
        return millstream.broker.get_account(DEFAULT_ACCOUNT).sessions["c"].doubt is not None


async def test_a_start_without_a_sync_per_batch_is_in_doubt_each_time(tmp_path: Path) -> None:
    await make_session(tmp_path, "os")
    assert await is_in_doubt(tmp_path, "os")
    assert await is_in_doubt(tmp_path, "os")


async def test_the_first_start_with_a_sync_per_batch_doubts_a_log_without(tmp_path: Path) -> None:
    await make_session(tmp_path, "os")
    assert await is_in_doubt(tmp_path, "fsync")


async def test_a_log_with_a_sync_per_batch_is_never_in_doubt(tmp_path: Path) -> None:
    await make_session(tmp_path, "fsync")
    assert not await is_in_doubt(tmp_path, "fsync")
