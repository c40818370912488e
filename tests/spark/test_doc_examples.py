"""The Python examples of the pages about Spark run as they stand, in their order, on a broker of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mqtt_traffic import Sent, publish_all
from pyspark.sql import SparkSession
from spark_world import StreamBroker

pytest_plugins = ["spark_fixtures"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "spark.md",
    "pipelines.md",
)  # those of reader.md need no Spark: tests/scenarios/test_reader_examples.py
BLOCK = re.compile(r"^(<!-- not run -->\n+)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_ADDRESS = "http://127.0.0.1:8090"


def python_blocks(text: str) -> list[tuple[int, str]]:
    """(line of the page, code) of each Python block that is to be run."""
    found = []
    for block in BLOCK.finditer(text):
        if block[2] == "python" and not block[1]:
            found.append((text.count("\n", 0, block.start(3)) + 1, block[3]))
    return found


def test_a_block_is_left_out_only_when_the_page_says_so() -> None:
    text = "a\n```python\nx = 1\n```\n<!-- not run -->\n```python\ny = 2\n```\n```sh\nls\n```\n"
    assert python_blocks(text) == [(3, "x = 1\n")]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(
    page: str, spark: SparkSession, own_streams: StreamBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The world is the one the pages ask the reader to make: three readings in one stream, an alarm in another."""
    own_streams.create_stream("readings", bindings=["plant/+/temperature"])
    own_streams.create_stream("alarms")
    own_streams.create_stream("undecoded")
    readings = [Sent(f"plant/hall{n}/temperature", f'{{"celsius": 2{n}.5}}') for n in (1, 2, 3)]
    publish_all(own_streams.mqtt_port, readings)
    own_streams.publish("alarms", ["too hot"])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = python_blocks(text)
    assert blocks, "a page without examples proves nothing"
    names = {"spark": spark, "uri": own_streams.uri, "__name__": "__main__"}
    for line, code in blocks:
        shifted = "\n" * (line - 1) + code.replace(DEFAULT_ADDRESS, own_streams.uri)
        exec(compile(shifted, str(DOCS / page), "exec"), names)
