"""`millstream storage repair` sets damage aside, says what is lost, and touches nothing that is good."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lmdb
import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import NEVER, RawClient
from test_backup import records_of
from typer.testing import CliRunner

from millstream.commands.tree import app
from millstream.runtime.disk.data_folder import read_state
from millstream.runtime.disk.files import RealDisk
from millstream.storage.records.queue_records import decode_record_message, record_place

COUNT = 250
PADDING = b"." * 500
SETTINGS = ("storage.log_file_size=65536", "queues.history.kind=stream")


def storage(command: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(
        app, ["storage", command, "--set", f"data_dir={folder}", *arguments], input="n\n"
    )
    return done.exit_code, done.stdout, done.stderr


def repair(folder: Path) -> dict[str, list[str]]:
    code, out, error = storage("repair", folder, "--yes", "-o", "json")
    assert code == 0, error
    found: dict[str, list[str]] = json.loads(out)
    return found


def payloads(folder: Path) -> dict[int, bytes]:
    disk = RealDisk(folder)
    (queue,) = read_state(disk, folder).state().queues
    return {
        record_place(body)[1]: decode_record_message(body, 0).payload
        for body in records_of(disk, queue, is_whole=False)
    }


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped data directory with a retained message, a session, and a stream in a segment and in the log."""
    home = tmp_path_factory.mktemp("made")
    broker = BrokerProcess(home, SETTINGS, ())
    broker.wait_ready()
    with RawClient(broker.mqtt_port) as client:
        client.connect("ledger", clean=False, expiry_s=NEVER)
        client.subscribe(b"plant/#", 1)
        client.publish(b"state/now", b"on", 1, retain=True)
        for number in range(COUNT):
            client.publish(b"$queue/history/a", b"%d %s" % (number, PADDING), 1)
    broker.stop()
    folder = home / "data"
    assert list((folder / "queues").rglob("*.segment"))
    assert storage("verify", folder)[0] == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    ignored = shutil.ignore_patterns("*.sock")
    return Path(shutil.copytree(made, tmp_path / "data", ignore=ignored))


def segment_of(folder: Path) -> Path:
    (path,) = (folder / "queues").rglob("*.segment")
    return path


def test_a_good_directory_is_left_alone(folder: Path) -> None:
    before = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".mdb"
    }
    assert repair(folder) == {"damaged": [], "lost": [], "done": []}
    after = {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".mdb"
    }
    assert before == after


def test_a_damaged_record_in_a_segment_goes_and_all_others_stay(
    folder: Path, start_broker: StartBroker
) -> None:
    whole = payloads(folder)
    assert sorted(whole) == list(range(COUNT))
    path = segment_of(folder)
    position = path.read_bytes().index(b"17 " + PADDING)
    flip(path, position + 100)
    code, out, error = storage("verify", folder)
    assert code == 1
    assert "no records" in out
    assert "millstream storage repair" in error
    code, out, error = storage("repair", folder)  # answered with no
    assert code == 1
    assert "the offsets 17 to 17 of the queue 'history'" in out
    assert "Nothing was changed" in error
    found = repair(folder)
    assert found["lost"] == ["the offsets 17 to 17 of the queue 'history'"]
    assert any(name.name.startswith("queues-") for name in (folder / "quarantine").iterdir())
    assert storage("verify", folder)[0] == 0
    assert repair(folder)["damaged"] == []
    del whole[17]
    assert payloads(folder) == whole
    start_broker(*SETTINGS, f"data_dir={folder}").stop()
    assert payloads(folder) == whole


def test_a_damaged_fact_in_the_log_is_named_and_kept_aside(folder: Path) -> None:
    whole = payloads(folder)
    path = sorted((folder / "log").iterdir())[-1]
    data = path.read_bytes()
    end = data.rindex(PADDING)
    first = data.index(b" " + PADDING)
    assert first < end  # more than one record: damage in the first is not a torn end
    flip(path, first + 50)
    code, out, _ = storage("verify", folder)
    assert code == 1
    assert "damaged" in out
    found = repair(folder)
    assert len(found["lost"]) == 1
    assert found["lost"][0].startswith("the facts ")
    assert (folder / "quarantine" / path.name).read_bytes() != data
    assert storage("verify", folder)[0] == 0
    assert repair(folder)["damaged"] == []
    left = payloads(folder)
    assert 0 < len(whole) - len(left) <= 20
    assert all(whole[offset] == payload for offset, payload in left.items())


def test_an_index_that_is_gone_is_made_again(folder: Path) -> None:
    whole = payloads(folder)
    path = segment_of(folder).with_suffix(".index")
    path.unlink()
    code, out, _ = storage("verify", folder)
    assert code == 0  # whoever appends next mends it
    assert "index" in out
    assert payloads(folder) == whole


def test_an_entry_of_the_table_that_makes_no_sense_goes_alone(folder: Path) -> None:
    environment = lmdb.open(str(folder / "state"), map_size=1 << 30)
    with environment.begin(write=True) as transaction:
        transaction.put(b"s" + (99).to_bytes(8, "big"), b"nonsense")
    environment.close()
    code, out, _ = storage("verify", folder)
    assert code == 1
    assert "state" in out
    assert len(repair(folder)["lost"]) == 1
    assert storage("verify", folder)[0] == 0
    state = read_state(RealDisk(folder), folder).state()
    assert [session.key.client_id for session in state.sessions] == ["ledger"]
    assert [message.payload for _, message in state.retained] == [b"on"]


@pytest.mark.parametrize("content", [b"\xff" * 16_384, None], ids=["nonsense", "missing"])
def test_a_table_that_cannot_be_opened_is_replaced_and_its_queues_set_aside(
    folder: Path, start_broker: StartBroker, content: bytes | None
) -> None:
    if content is None:
        (folder / "state" / "data.mdb").unlink()
    else:
        (folder / "state" / "data.mdb").write_bytes(content)
    code, out, error = storage("verify", folder)
    assert code == 1
    assert "state" in out
    assert "Traceback" not in error
    found = repair(folder)
    assert "every fact that was folded" in found["lost"][0]
    assert storage("verify", folder)[0] == 0
    assert repair(folder)["damaged"] == []
    assert list((folder / "quarantine").rglob("*.segment"))
    assert start_broker(*SETTINGS, f"data_dir={folder}").stop() == 0


def test_a_directory_in_use_is_refused(start_broker: StartBroker, tmp_path: Path) -> None:
    start_broker(*SETTINGS, f"data_dir={tmp_path / 'data'}")
    code, _, error = storage("repair", tmp_path / "data", "--yes")
    assert code == 1
    assert "stop it first" in error
