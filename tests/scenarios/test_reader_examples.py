"""The examples of the reader, those in the documentation and those in files, run and print what is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BrokerProcess
from flight_world import FLIGHT_SETTINGS, connected
from reader_world import publish, publisher

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HALLS = {b"hall1": [b"20", b"22"], b"hall2": [b"30", b"31", b"35"]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("examples")
    broker = BrokerProcess(folder, (*FLIGHT_SETTINGS, "queues.readings.kind=stream"), ())
    broker.wait_ready()
    with publisher(broker) as raw:
        for hall, values in HALLS.items():
            publish(raw, b"$queue/readings/" + hall, values)
    yield broker
    broker.kill()


@pytest.fixture
def uri(broker: BrokerProcess) -> str:
    return f"http://127.0.0.1:{broker.ports['reader']}"


@pytest.fixture
def flight_uri(broker: BrokerProcess) -> str:
    with connected(broker):
        return f"grpc+tcp://127.0.0.1:{broker.ports['flight']}"


@pytest.mark.parametrize("name", ["reader_pandas.py", "reader_polars.py", "reader_duckdb.py"])
def test_an_example_summarises_the_stream(name: str, uri: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), uri, "readings"],
        cwd=tmp_path,
        env={**os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("$queue")]
    assert [(row[0], *[float(number) for number in row[1:]]) for row in rows] == [
        ("$queue/readings/hall1", 2, 20, 21, 22),
        ("$queue/readings/hall2", 3, 30, 32, 35),
    ]
    assert "Run it with: " in (ROOT / "examples" / name).read_text(encoding="utf-8")


def test_the_examples_of_the_documentation_run(
    uri: str, flight_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "reader.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 8
    names: dict[str, object] = {"uri": uri, "flight_uri": flight_uri}
    for block in blocks:
        exec(compile(block, "docs/reader.md", "exec"), names)
    shown = capsys.readouterr().out
    assert shown.startswith("0 5 5\n")
    assert "$queue/readings/hall2" in shown
    assert "readings 5\n" in shown, "the listing of Flight"
    assert shown.endswith("[1, 1, 1, 2]\n"), "the parts of the range"
