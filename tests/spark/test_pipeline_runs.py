"""Pipelines as a user runs them: from the command line, each in a process of its own, and in the demo."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mqtt_traffic import Sent, publish_all
from pyspark.sql import SparkSession
from spark_world import CONNECTOR, ROOT, StreamBroker, unique

import millstream

pytest_plugins = ["spark_fixtures"]

SOURCE = str(Path(millstream.__file__).resolve().parents[1])  # of the build under test
DEADLINE_S = 300.0
# C1 only: a test never runs long enough to earn back what the second compiler costs.
SMALL_AND_QUICK = (
    *("--conf", "spark.driver.memory=1g"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
)


class Shell:
    """Types `millstream pipeline …` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = os.pathsep.join((SOURCE, str(CONNECTOR)))
        self.environment = {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder / "state")}

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "millstream", "pipeline", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def wait_rows(self, run: str, rows: int) -> dict[str, object]:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            (status,) = json.loads(self.type("status", run, "-o", "json").stdout)
            if status.get("rows", 0) >= rows:
                return dict(status)
            if status["state"] not in ("starting", "running") or time.monotonic() > deadline:
                pytest.fail(f"{status}\n{Path(status['log']).read_text()[-4000:]}")
            time.sleep(1.0)  # another process: there is no event to wait for, and each look starts a process


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.timeout(400)
def test_a_pipeline_is_started_watched_and_stopped_and_goes_on_where_it_was(
    shell: Shell, streams: StreamBroker
) -> None:
    plant = unique("run")
    queue = streams.create_stream(plant, bindings=[f"{plant}/+/temperature"])
    publish_all(streams.mqtt_port, [Sent(f"{plant}/d{n % 3}/temperature", "21.5") for n in range(500)])
    words = ["run", "rollup", "--name", "mine", "--master", "local[2]", *SMALL_AND_QUICK]
    settings = {"uri": streams.uri, "queues": queue, "topic": f"{plant}-windows/", "trigger": "1 second"}
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    started = shell.type(*words, "--detach")
    assert started.returncode == 0, started.stderr
    status = shell.wait_rows("mine", 500)
    assert (status["rows"], status["lag"], status["state"]) == (500, 0, "running")
    again = shell.type(*words, "--detach")
    assert (again.returncode, again.stderr) == (
        1,
        "error: mine is running already.\nnext: millstream pipeline stop mine\n",
    )
    stopped = shell.type("stop", "mine")
    assert (stopped.returncode, stopped.stdout) == (0, "mine is stopped.\n")
    (status,) = json.loads(shell.type("status", "-o", "json").stdout)
    assert status["state"] == "stopped"

    publish_all(streams.mqtt_port, [Sent(f"{plant}/d1/temperature", "22.5") for _ in range(100)])
    done = shell.type(*words, "--set", "trigger=available_now", "-o", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [lines[0]["state"], lines[-1]["state"]] == ["starting", "done"]
    assert max(line.get("rows", 0) for line in lines) == 100, "not from the beginning"


@pytest.mark.timeout(400)
def test_what_is_wrong_is_told_in_one_sentence(shell: Shell, streams: StreamBroker) -> None:
    unknown = shell.type("run", "rollup", "--set", "queues=q", "--set", "windw=1 minute")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error: rollup has no setting `windw`. Did you mean `window`?\nnext: ")
    words = ["run", "rollup", *SMALL_AND_QUICK, "--set", f"uri={streams.uri}"]
    missing = shell.type(*words, "--set", "queues=nobody-made-this")
    assert missing.returncode == 1
    assert re.match(r"error: [^\n]*nobody-made-this[^\n]*\nnext: tail [^\n]*\n$", missing.stderr), (
        missing.stderr
    )
    assert "Traceback" not in missing.stderr


def test_all_pipelines_are_listed_with_their_settings(shell: Shell) -> None:
    names = [one["name"] for one in json.loads(shell.type("list", "-o", "json").stdout)]
    assert names == ["lake", "rollup", "alert", "audit", "replay"]
    assert "watermark" in shell.type("list", "rollup").stdout
    assert shell.type("list", "rolup").returncode == 2


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_declared_project_brings_its_tables_up_to_date(
    shell: Shell, streams: StreamBroker, spark: SparkSession
) -> None:
    plant = unique("declared")
    results = streams.create_stream(f"{plant}-results", bindings=[f"{plant}-windows/#"])
    queue = streams.create_stream(plant, bindings=[f"{plant}/+/temperature"])
    stamps = [{"event-time": str(1_763_193_600_000 + n * 1000)} for n in range(60)]
    settings = {"uri": streams.uri, "queues": queue, "topic": f"{plant}-windows/", "window": "10 seconds"}
    # Old readings, replayed: they arrive when they were read.
    settings |= {"arrived": "event_time", "watermark": "5 seconds"}
    words = ["init", "plant", "rollup", "--sdp"]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    made = shell.type(*words)
    assert made.returncode == 0, made.stderr
    publish_all(
        streams.mqtt_port, [Sent(f"{plant}/d1/temperature", f"{n}", stamp) for n, stamp in enumerate(stamps)]
    )
    command = made.stdout.splitlines()[-1].removeprefix("next: ")
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=shell.folder,
        env={
            **shell.environment,
            "PYSPARK_PYTHON": sys.executable,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    table = spark.read.format("millstream").option("uri", streams.uri).option("queues", results).load()
    windows = sorted(
        (json.loads(bytes(row.payload)) for row in table.collect()), key=lambda one: str(one["window_start"])
    )
    found = [(one["device"], one["count"], one["min"], one["max"]) for one in windows]
    assert found == [("d1", 10, float(first), first + 9.0) for first in range(0, 50, 10)], (
        "windows that are over"
    )


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_demo_shows_windows_and_alerts_and_leaves_nothing_behind(shell: Shell) -> None:
    scratch = shell.folder / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo" / "run.py"), "--seconds", "8"],
        cwd=shell.folder,
        env={**shell.environment, "TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout, "without a terminal there is nothing to paint"
    totals = re.search(r"^(\d+) windows, (\d+) alerts$", done.stdout, re.MULTILINE)
    assert totals is not None
    assert min(int(totals[1]), int(totals[2])) > 0
    assert [path.name for path in scratch.iterdir() if "millstream-demo" in path.name] == []
