"""A broker whose segments are compressed, switched on and off: everything that reads segments reads both kinds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from millstream.app.server import Millstream
from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.config.faults import ConfigFault
from millstream.config.load import config_of
from millstream.maintenance.backup import make_backup, restore_backup
from millstream.maintenance.repair import repair_storage
from millstream.maintenance.survey import survey_storage
from millstream.model.message import Message
from millstream.queues.definition import Definition
from millstream.runtime.disk.files import RealDisk
from millstream.storage.records.queue_records import record_offset
from millstream.storage.segments.format import HEADER_SIZE, header_version
from millstream.storage.segments.reader import SegmentReader

COUNT = 400
PAYLOAD = b'{"site": "north", "pump": 7, "celsius": 21.5, "state": "running"}'


def make_millstream(data_dir: Path, compression: str) -> Millstream:
    off = {"enabled": False}
    values = {"data_dir": str(data_dir), "mqtt": {"port": 0}, "websocket": off, "amqp": off}
    return Millstream(config_of({**values, "storage": {"segment_compression": compression}}))


async def publish(data_dir: Path, compression: str) -> int:
    """Some more records in segments; the number of the queue."""
    async with make_millstream(data_dir, compression) as millstream:
        catalog = millstream.broker.get_account(DEFAULT_ACCOUNT).queues.catalog
        queue = catalog.declare("readings", Definition("stream"))
        for _ in range(COUNT):
            queue.append(Message(b"$queue/readings/a", PAYLOAD, 1, False, b"", 0, "pump"))
        durable = millstream._durable
        assert durable is not None
        durable.log.flush()
        async with asyncio.timeout(30):
            while queue.visible < queue.next:  # noqa: ASYNC110 a thread of the log moves it: there is no event
                await asyncio.sleep(0.001)
        await durable.seal()
        return queue.number


def offsets(data_dir: Path, queue: int) -> list[int]:
    reader = SegmentReader(RealDisk(data_dir))
    try:
        found = reader.read(queue, 0, 10 * COUNT, 10 * COUNT, 1 << 30)
    finally:
        reader.close()
    return [record_offset(body) for body in found.bodies]


def segments(data_dir: Path, queue: int) -> list[Path]:
    return sorted((data_dir / "queues" / str(queue)).glob("*.segment"))


def ignore(step: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Path, int]:
    async def run() -> int:
        for compression in ("none", "zstd", "none", "zstd"):
            queue = await publish(tmp_path / "data", compression)
        return queue

    return tmp_path / "data", asyncio.run(run())


def test_it_can_be_switched_on_and_off(mixed: tuple[Path, int]) -> None:
    data_dir, queue = mixed
    versions = [header_version(path.read_bytes()[:HEADER_SIZE]) for path in segments(data_dir, queue)]
    assert versions == [1, 2, 1, 2]
    assert offsets(data_dir, queue) == list(range(4 * COUNT))
    sizes = [path.stat().st_size for path in segments(data_dir, queue)]
    assert sizes[1] * 2 < sizes[0]
    assert not survey_storage(data_dir, ignore).is_damaged()


def test_a_backup_holds_both_kinds(mixed: tuple[Path, int], tmp_path: Path) -> None:
    data_dir, queue = mixed
    make_backup(data_dir, tmp_path / "backup.tar", ignore)
    assert restore_backup(tmp_path / "backup.tar", tmp_path / "new", ignore).damage == []
    assert offsets(tmp_path / "new", queue) == list(range(4 * COUNT))
    asyncio.run(publish(tmp_path / "new", "zstd"))
    assert offsets(tmp_path / "new", queue) == list(range(5 * COUNT))
    assert len(segments(tmp_path / "new", queue)) == 4  # it goes on in the last one
    assert not survey_storage(tmp_path / "new", ignore).is_damaged()


def test_damage_is_named_with_its_offsets_and_repaired(mixed: tuple[Path, int]) -> None:
    data_dir, queue = mixed
    path = segments(data_dir, queue)[1]
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    survey = survey_storage(data_dir, ignore)
    (finding,) = [finding for finding in survey.findings if finding.is_damaged]
    lost = [number for number in range(4 * COUNT) if number not in set(offsets(data_dir, queue))]
    assert lost
    assert f"the offsets {lost[0]} to {lost[-1]} of the queue 'readings'" in finding.lost[0]
    done = repair_storage(data_dir, survey)
    assert any("copied to quarantine" in line for line in done)
    assert not survey_storage(data_dir, ignore).is_damaged()
    asyncio.run(publish(data_dir, "zstd"))
    assert len(offsets(data_dir, queue)) == 5 * COUNT - len(lost)


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigFault, match="segment_compression"):
        config_of({"storage": {"segment_compression": "gzip"}})
