"""A start that fails leaves neither its lock nor its threads behind: the same process may try again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from millstream.app.server import Millstream
from millstream.config.load import config_of
from millstream.runtime.disk.data_folder import StorageFault
from millstream.runtime.transport.listeners import ListenFault
from millstream.storage.manifest import NAME as MANIFEST
from millstream.storage.marks.stop_mark import NAME as STOP_MARK


def make(data_dir: Path, **settings: object) -> Millstream:
    off = {"enabled": False}
    values = {"data_dir": str(data_dir), "mqtt": {"port": 0}, "websocket": off, "amqp": off}
    return Millstream(config_of({**values, **settings}))


def started_since(before: list[threading.Thread]) -> list[str]:
    """Without threads of the loop, which keeps them as it likes. Those of earlier tests may end meanwhile."""
    started = [thread.name for thread in threading.enumerate() if thread not in before]
    return [name for name in started if not name.startswith("asyncio_")]


async def run_once(data_dir: Path, **settings: object) -> None:
    async with make(data_dir, **settings):
        pass


@pytest.mark.parametrize("name", [STOP_MARK, f"{MANIFEST}.part"])
async def test_one_that_the_disk_refuses_can_be_tried_again(tmp_path: Path, name: str) -> None:
    await run_once(tmp_path)
    before = threading.enumerate()
    millstream = make(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()  # nobody can remove it as a file
    with pytest.raises(StorageFault, match=name):
        await millstream.start()
    assert started_since(before) == []
    await millstream.stop()  # does no harm
    (tmp_path / name).rmdir()
    await run_once(tmp_path)
    assert started_since(before) == []


async def test_one_that_settings_forbid_can_be_tried_again(tmp_path: Path) -> None:
    queues = {"jobs": {"bindings": ["jobs/#"]}}
    await run_once(tmp_path, queues=queues)
    before = threading.enumerate()
    with pytest.raises(StorageFault, match="jobs"):
        await run_once(tmp_path, queues={"jobs": {"bindings": ["jobs/#"], "kind": "stream"}})
    assert started_since(before) == []
    await run_once(tmp_path, queues=queues)
    assert started_since(before) == []


async def test_one_whose_port_is_taken_can_be_tried_again(tmp_path: Path) -> None:
    async with make(tmp_path / "other") as other:
        port = next(iter(other.addresses.values()))[1]
        before = threading.enumerate()
        with pytest.raises(ListenFault):
            await run_once(tmp_path / "data", mqtt={"port": port})
        assert started_since(before) == []
        await run_once(tmp_path / "data")
