"""`millstream storage verify` notices a whole segment file of a stream that is gone, and names the offsets lost with it."""

from __future__ import annotations

from pathlib import Path

from conftest import BrokerProcess, StartBroker
from raw_client import RawClient
from test_storage_repair import payloads, repair, storage

COUNT = 600
PADDING = b"." * 500
SETTINGS = (
    "storage.log_file_size=65536",
    "storage.segment_size=65536",
    "queues.history.kind=stream",
)


def make(home: Path) -> Path:
    broker = BrokerProcess(home, SETTINGS, ())
    broker.wait_ready()
    with RawClient(broker.mqtt_port) as client:
        client.connect("writer")
        for number in range(COUNT):
            client.publish(b"$queue/history/a", b"%d %s" % (number, PADDING), 1)
    broker.stop()
    return home / "data"


def test_a_segment_file_that_is_gone_is_named_with_its_offsets(
    tmp_path: Path, start_broker: StartBroker
) -> None:
    folder = make(tmp_path)
    whole = payloads(folder)
    assert sorted(whole) == list(range(COUNT))
    assert storage("verify", folder)[0] == 0
    paths = sorted((folder / "queues").rglob("*.segment"))
    assert len(paths) > 3
    gone, behind = paths[1], paths[2]
    first, end = int(gone.stem), int(behind.stem)
    gone.unlink()
    gone.with_suffix(".index").unlink()

    code, out, error = storage("verify", folder, "-o", "json")
    assert code == 1
    sentence = f"the offsets {first} to {end - 1} of the queue 'history'"
    assert sentence in out
    assert "millstream storage repair" in error

    found = repair(folder)
    assert found["lost"] == [sentence]
    assert any("noted as lost" in line for line in found["done"])
    assert storage("verify", folder)[0] == 0
    assert repair(folder) == {"damaged": [], "lost": [], "done": []}
    kept = {offset: payload for offset, payload in whole.items() if not first <= offset < end}
    assert payloads(folder) == kept
    assert start_broker(*SETTINGS, f"data_dir={folder}").stop() == 0
    assert payloads(folder) == kept
