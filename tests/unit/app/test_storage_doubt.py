"""Which starts doubt what the clients of sessions know: those behind a log that was not synced with every batch, and those
of a copy that was restored from a backup."""

from __future__ import annotations

from pathlib import Path

from full_disk import no_room

from millstream.app.server import Millstream
from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.config.load import config_of
from millstream.maintenance.backup import make_backup, restore_backup
from millstream.maintenance.repair import repair_storage
from millstream.maintenance.survey import survey_storage
from millstream.runtime.disk.data_folder import open_folder
from millstream.runtime.disk.files import RealDisk
from millstream.storage.manifest import find_manifest
from millstream.storage.marks.doubt_mark import NAME, NO_SESSION, write_mark
from millstream.storage.store import SessionKey


def ignore(step: str, done: int, total: int) -> None:
    pass


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


# ------------------------------------------------------------------- restored


async def restore(tmp_path: Path) -> Path:
    """A copy that was restored from a backup with one session."""
    await make_session(tmp_path / "data", "fsync")
    make_backup(tmp_path / "data", tmp_path / "backup.tar", ignore)
    restore_backup(tmp_path / "backup.tar", tmp_path / "copy", ignore)
    return tmp_path / "copy"


async def doubted_sessions(data_dir: Path) -> list[str]:
    async with make_millstream(data_dir, "fsync") as millstream:
        sessions = millstream.broker.get_account(DEFAULT_ACCOUNT).sessions
        return [name for name, session in sessions.items() if session.doubt is not None]


async def test_a_session_of_a_backup_is_in_doubt_at_every_start_of_the_restored_copy(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    assert await is_in_doubt(copy, "fsync")
    assert await is_in_doubt(copy, "fsync")
    assert not await is_in_doubt(tmp_path / "data", "fsync")


async def test_a_session_begun_after_the_restore_is_not_in_doubt(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    async with make_millstream(copy, "fsync") as millstream:
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "later"), "user", 3600, 0)
    assert await doubted_sessions(copy) == ["c"]


async def test_the_mark_of_a_restore_goes_with_the_last_session_of_the_backup(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    assert (copy / NAME).stat().st_mode & 0o777 == 0o600
    async with make_millstream(copy, "fsync") as millstream:
        millstream.broker.store.session_removed(SessionKey(DEFAULT_ACCOUNT, "c"))
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "c"), "user", 3600, 0)
    assert (copy / NAME).exists()
    assert await doubted_sessions(copy) == []
    assert not (copy / NAME).exists()
    assert await doubted_sessions(copy) == []


async def test_the_mark_of_a_restore_stays_while_there_is_no_room_to_say_that_it_goes(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    async with make_millstream(copy, "fsync") as millstream:
        millstream.broker.store.session_removed(SessionKey(DEFAULT_ACCOUNT, "c"))
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "later"), "user", 3600, 0)
    millstream = make_millstream(copy, "fsync")
    with no_room():
        await millstream.start()
    await millstream.stop()
    assert (copy / NAME).exists()
    assert open_folder(RealDisk(copy), copy)[0].notices == []
    assert await doubted_sessions(copy) == []
    assert not (copy / NAME).exists()


async def test_a_restore_without_sessions_leaves_no_mark(tmp_path: Path) -> None:
    async with make_millstream(tmp_path / "data", "fsync"):
        pass
    make_backup(tmp_path / "data", tmp_path / "backup.tar", ignore)
    restore_backup(tmp_path / "backup.tar", tmp_path / "copy", ignore)
    assert not (tmp_path / "copy" / NAME).exists()


async def test_a_damaged_mark_doubts_every_session_there_is_and_no_later_one(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    (copy / NAME).write_bytes(b"")
    assert await doubted_sessions(copy) == ["c"]
    (copy / NAME).write_bytes(b"")
    async with make_millstream(copy, "fsync") as millstream:
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "later"), "user", 3600, 0)
    assert await doubted_sessions(copy) == ["c"]  # the start before wrote down who was meant


async def test_a_copy_of_a_restored_copy_doubts_the_sessions_of_both(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    async with make_millstream(copy, "fsync") as millstream:
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "later"), "user", 3600, 0)
    make_backup(copy, tmp_path / "second.tar", ignore)
    restore_backup(tmp_path / "second.tar", tmp_path / "again", ignore)
    assert await doubted_sessions(tmp_path / "again") == ["c", "later"]


async def test_a_start_that_died_between_the_mark_and_the_manifest_doubts_nobody_else(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    for client in ("later", "last"):
        async with make_millstream(copy, "fsync") as millstream:
            millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, client), "user", 3600, 0)
    manifest = find_manifest(RealDisk(copy))
    assert manifest is not None
    write_mark(RealDisk(copy), manifest.doubted + 1)  # and the manifest was not written any more
    assert open_folder(RealDisk(copy), copy)[0].notices == []
    assert not survey_storage(copy, ignore).is_damaged()
    assert await doubted_sessions(copy) == ["c", "later"]
    caught_up = find_manifest(RealDisk(copy))
    assert caught_up is not None
    assert caught_up.doubted == manifest.doubted + 1


async def test_an_older_copy_of_the_mark_doubts_every_session(tmp_path: Path) -> None:
    copy = await restore(tmp_path)
    async with make_millstream(copy, "fsync") as millstream:
        millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, "later"), "user", 3600, 0)
    write_mark(RealDisk(copy), NO_SESSION)
    assert [notice.name for notice in open_folder(RealDisk(copy), copy)[0].notices] == [NAME]
    assert await doubted_sessions(copy) == ["c", "later"]


# -------------------------------------------------------------------- damaged


async def save_session(millstream: Millstream, client: str) -> None:
    millstream.broker.store.session_saved(SessionKey(DEFAULT_ACCOUNT, client), "user", 3600, 0)
    await millstream._stages._durable.wait_durable()


async def make_damaged(data_dir: Path) -> None:
    """A log whose second batch cannot be trusted."""
    async with make_millstream(data_dir, "fsync") as millstream:
        for client in ("c", "lost", "d"):
            await save_session(millstream, client)
    [log] = (data_dir / "log").glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"lost")] ^= 1
    log.write_bytes(data)


async def test_sessions_that_were_synced_from_some_time_on_stay_in_doubt_and_later_ones_are_not(
    tmp_path: Path,
) -> None:
    await make_session(tmp_path, "os")
    async with make_millstream(tmp_path, "fsync") as millstream:
        await save_session(millstream, "later")
    assert await doubted_sessions(tmp_path) == ["c"]
    assert await doubted_sessions(tmp_path) == ["c"]


async def test_after_damage_the_sessions_that_are_left_stay_in_doubt_and_later_ones_are_not(
    tmp_path: Path,
) -> None:
    await make_damaged(tmp_path)
    async with make_millstream(tmp_path, "fsync") as millstream:
        await save_session(millstream, "later")
    assert await doubted_sessions(tmp_path) == ["c", "d"]


async def test_a_repair_leaves_every_session_in_doubt_and_no_later_one(tmp_path: Path) -> None:
    await make_damaged(tmp_path)
    repair_storage(tmp_path, survey_storage(tmp_path, ignore))
    async with make_millstream(tmp_path, "fsync") as millstream:
        await save_session(millstream, "later")
    assert await doubted_sessions(tmp_path) == ["c", "d"]
