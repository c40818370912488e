"""The shared world as fixtures: `pytest_plugins = ["spark_fixtures"]` in a test file on real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_world import StreamBroker, shared_stream_broker, spark_session


@pytest.fixture
def spark() -> SparkSession:
    """The one session of this run."""
    return spark_session()


@pytest.fixture
def streams() -> StreamBroker:
    """The shared broker with its reader: use queues of your own (`unique`)."""
    return shared_stream_broker()


@pytest.fixture
def own_streams(tmp_path: Path) -> Iterator[StreamBroker]:
    """A broker for one test, which may kill it."""
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = StreamBroker(folder)
    yield broker
    broker.end()
