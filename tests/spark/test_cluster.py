"""The same job on a standalone cluster: the connector travels with it, and executors reach the broker over HTTP only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.broker import PROJECT
from crash.copies import check_copy
from crash.processes import kill_all
from crash.spark_campaign import find_executors, java_options
from crash.spark_cluster import SPARK_HOME, SparkCluster, pack_connector
from crash.spark_job import Plan
from crash.spark_process import CONNECTOR, Checkpoints
from crash.spark_streams import StreamBroker, read_lake

ROWS = 2000
BATCH_ROWS = 500
PUBLISH_AT_ONCE = 250
WAIT_S = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[StreamBroker]:
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = StreamBroker(folder)
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Its workers know nothing of this source tree."""
    cluster = SparkCluster(tmp_path / "cluster")
    cluster.start()
    yield cluster
    cluster.end()


def submit(cluster: SparkCluster, plan: Path, folder: Path) -> subprocess.Popen[bytes]:
    archive = pack_connector(CONNECTOR, folder / "millstream_spark.zip")
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--py-files", str(archive)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "PYTHONPATH": f"{archive}{os.pathsep}{PROJECT}",  # of the driver; executors get the archive from Spark
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (folder / "job.log").open("wb") as log:
        return subprocess.Popen(
            [*command, str(PROJECT / "crash" / "spark_job.py"), str(plan)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
        )


def fill(broker: StreamBroker, name: str) -> None:
    for first in range(0, ROWS, PUBLISH_AT_ONCE):
        messages = [{"payload": f"reading {number}"} for number in range(first, first + PUBLISH_AT_ONCE)]
        broker.call("queue.publish", name=name, messages=messages)


@pytest.mark.timeout(400)
def test_a_job_on_a_cluster_copies_every_offset_once_although_an_executor_dies(
    broker: StreamBroker, cluster: SparkCluster, tmp_path: Path
) -> None:
    for name in ("source", "target"):
        broker.create_stream(name)
    fill(broker, "source")
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    lake, scratch = tmp_path / "lake", tmp_path / "scratch"
    plan = Plan(
        *(broker.uri, "source", str(lake), "target", str(checkpoints.folder), str(scratch), cluster.url),
        rows_max=BATCH_ROWS,
        is_available_now=True,
        java_options=java_options(),
        is_handed_over=True,
    )
    plan.write(tmp_path / "plan.json")
    job = submit(cluster, tmp_path / "plan.json", tmp_path)
    try:
        deadline = time.monotonic() + WAIT_S
        while job.poll() is None and not checkpoints.done() and time.monotonic() < deadline:
            time.sleep(0.02)  # other processes: there is no event to wait for
        executors = find_executors(cluster)
        is_running = job.poll() is None
        kill_all(executors[:1])
        assert job.wait(WAIT_S) == 0, (tmp_path / "job.log").read_text()[-3000:]
    finally:
        job.kill()
    assert (len(executors), is_running) == (2, True)
    source = broker.read_sources(["source"])
    assert len(source) == ROWS
    assert check_copy("lake", source, read_lake(lake)).faults == []
    assert check_copy("queue", source, broker.read_copy("target")).faults == []
    assert list((tmp_path / "cluster").glob("worker-*/app-*/*/millstream_spark.zip"))
