"""A file of the data directory that is missing, empty, cut short, older or of another broker is named, and nothing is overwritten."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerProcess, StartBroker
from raw_amqp_channel import wait_until
from raw_client import RawClient
from test_storage_repair import payloads, repair, storage

COUNT = 300
PADDING = b"." * 500
TABLE = "state/data.mdb"
SETTINGS = (
    "storage.log_file_size=65536",
    "storage.segment_size=65536",
    "queues.history.kind=stream",
)


def populate(home: Path, word: bytes = b"") -> Path:
    """A stopped data directory with a stream in several segments and in the log."""
    home.mkdir(exist_ok=True)
    broker = BrokerProcess(home, SETTINGS, ())
    broker.wait_ready()
    with RawClient(broker.mqtt_port) as client:
        client.connect("writer")
        for number in range(COUNT):
            client.publish(b"$queue/history/a", b"%s%d %s" % (word, number, PADDING), 1)
    wait_until(
        lambda: len(list((home / "data").glob("queues/*/*.segment"))) > 1,
        "the log was not folded into two segments",
    )
    assert broker.stop() == 0
    return home / "data"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return populate(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(made, tmp_path / "data", ignore=shutil.ignore_patterns("*.sock")))


def content(folder: Path) -> dict[str, bytes]:
    """What no start that is refused may change."""
    names = [*folder.glob("queues/*/*"), *folder.glob("log/*"), *folder.glob("manifest"), folder / TABLE]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names if path.is_file()}


def refuse(folder: Path, home: Path, advice: str = "millstream storage verify") -> str:
    """What a start says that must not come about."""
    before = content(folder)
    broker = BrokerProcess(home, (*SETTINGS, f"data_dir={folder}"), ())
    wait_until(
        lambda: broker.process.poll() is not None or (home / "ready.json").exists(),
        "it neither starts nor ends",
    )
    code, text = broker.process.poll(), broker.log()
    broker.process.kill()  # if it has started
    assert code is not None, f"it has started: {text}"
    assert code in (1, 2), f"ended by {code}: {text}"
    assert "Traceback" not in text
    assert f"next: {advice}" in text
    assert content(folder) == before
    return text


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero_all_pages(path: Path) -> None:
    """But the first two, which name the others."""
    data = path.read_bytes()
    path.write_bytes(data[:8192].ljust(len(data), b"\0"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [Path.unlink, empty, cut_in_half, zero_all_pages])
def test_a_table_that_is_missing_or_damaged_is_named_and_no_queue_is_overwritten(
    folder: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(folder / TABLE)
    assert TABLE in refuse(folder, tmp_path)
    code, out, error = storage("verify", folder)
    assert code == 1
    assert "state" in out
    assert "millstream storage repair" in error
    segments = {path.name for path in folder.glob("queues/*/*.segment")}
    repair(folder)
    kept = {path.name for path in folder.glob("queues/*/*.segment")}
    kept |= {path.name for path in folder.glob("quarantine/queues-*/*.segment")}
    assert kept >= segments
    assert storage("verify", folder)[0] == 0


@pytest.mark.parametrize("harm", [Path.unlink, empty, cut_in_half])
def test_the_newest_file_of_the_log_is_missed(
    folder: Path, tmp_path: Path, start_broker: StartBroker, harm: Callable[[Path], None]
) -> None:
    whole = payloads(folder)
    newest = sorted(folder.glob("log/*.log"))[-1]
    harm(newest)
    assert f"log/{newest.name}" in refuse(folder, tmp_path)
    code, out, _ = storage("verify", folder)
    assert code == 1
    assert newest.name in out
    assert repair(folder)["lost"]
    assert storage("verify", folder)[0] == 0
    assert start_broker(*SETTINGS, f"data_dir={folder}").stop() == 0
    kept = payloads(folder)
    assert 0 < len(kept) < len(whole)
    assert all(whole[offset] == payload for offset, payload in kept.items())


def own_segment(folder: Path) -> Path:
    """One with others before and behind it."""
    return sorted(folder.glob("queues/*/*.segment"))[1]


def take_from_another(path: Path) -> None:
    """A directory made in the same way has a file of the same name."""
    other = populate(path.parents[3] / "other", b"other ")
    shutil.copyfile(own_segment(other), path)


@pytest.mark.parametrize("harm", [Path.unlink, empty, cut_in_half, take_from_another])
def test_a_segment_that_is_missing_cut_short_or_of_another_broker_is_missed(
    folder: Path, tmp_path: Path, start_broker: StartBroker, harm: Callable[[Path], None]
) -> None:
    whole = payloads(folder)
    path = own_segment(folder)
    name = str(path.relative_to(folder))
    harm(path)
    assert name in refuse(folder, tmp_path)
    code, out, _ = storage("verify", folder, "-o", "json")
    assert code == 1
    assert name in out
    found = repair(folder)
    assert "of the queue 'history'" in "".join(found["lost"])
    assert storage("verify", folder)[0] == 0
    assert start_broker(*SETTINGS, f"data_dir={folder}").stop() == 0
    kept = payloads(folder)
    assert 0 < len(kept) < len(whole)
    assert all(whole[offset] == payload for offset, payload in kept.items())


@pytest.mark.parametrize("name", ["manifest", TABLE, "log"])
def test_a_file_of_another_broker_is_told_from_our_own(folder: Path, tmp_path: Path, name: str) -> None:
    other = populate(tmp_path / "other", b"other ")
    target, source = folder / name, other / name
    if name == "log":
        target, source = sorted(target.iterdir())[-1], sorted(source.iterdir())[-1]
    shutil.copyfile(source, target)
    whole = payloads(folder)
    assert name in refuse(folder, tmp_path)
    assert storage("verify", folder)[0] == 1
    repair(folder)
    assert storage("verify", folder)[0] == 0
    if name == "manifest":
        assert payloads(folder) == whole  # table and log belong together: nothing else is lost


def test_an_older_copy_of_the_table_is_found_and_its_queue_goes_on_behind_its_segments(
    folder: Path, tmp_path: Path, start_broker: StartBroker
) -> None:
    older = tmp_path / "older.mdb"
    shutil.copyfile(folder / TABLE, older)
    broker = start_broker(*SETTINGS, f"data_dir={folder}")
    with RawClient(broker.mqtt_port) as client:
        client.connect("writer")
        for number in range(COUNT, 2 * COUNT):
            client.publish(b"$queue/history/a", b"%d %s" % (number, PADDING), 1)
    assert broker.stop() == 0
    whole = payloads(folder)
    assert len(whole) == 2 * COUNT
    shutil.copyfile(older, folder / TABLE)
    assert "older" in refuse(folder, tmp_path)
    repair(folder)
    assert payloads(folder) == whole
    assert storage("verify", folder)[0] == 0


@pytest.mark.parametrize("name", ["manifest", "stopped", "doubted"])
def test_a_mark_that_cannot_be_opened_is_named_and_is_not_taken_for_one_that_is_missing(
    folder: Path, tmp_path: Path, start_broker: StartBroker, name: str
) -> None:
    path = folder / name
    whole = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    path.symlink_to(name)  # to itself
    assert f"{name}: Too many levels of symbolic links" in refuse(folder, tmp_path, f"ls -ld {path}")
    assert path.is_symlink()
    code, _, error = storage("verify", folder)
    assert code == 1
    assert f"{name}: Too many levels of symbolic links" in error
    assert f"next: ls -ld {path}" in error
    path.unlink()
    if whole:
        path.write_bytes(whole)
    assert start_broker(*SETTINGS, f"data_dir={folder}").stop() == 0


def test_a_manifest_that_is_missing_is_made_again_by_a_repair(
    folder: Path, tmp_path: Path, start_broker: StartBroker
) -> None:
    whole = payloads(folder)
    (folder / "manifest").unlink()
    assert "manifest is missing" in refuse(folder, tmp_path)
    assert storage("verify", folder)[0] == 1
    repair(folder)
    assert start_broker(*SETTINGS, f"data_dir={folder}").stop() == 0
    assert payloads(folder) == whole
