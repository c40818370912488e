"""The connector as a distribution: it needs Spark and Arrow where tasks run, and nothing of the broker."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.version import VERSION as BROKER_VERSION
from pyspark_millstream import DefaultSource, MillstreamSparkError
from pyspark_millstream.errors import HIDE_SWITCH, WORKER_MARK, ReaderRefused
from pyspark_millstream.version import VERSION

CONNECTOR = Path(__file__).resolve().parents[3] / "spark" / "src"


def test_it_is_imported_without_the_broker() -> None:
    code = "import sys; sys.modules['millstream'] = None; import pyspark_millstream as p; print(p.DefaultSource.name())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(CONNECTOR)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("millstream\n", 0), run.stderr


def test_the_driver_of_a_lake_does_not_load_what_only_its_tasks_need() -> None:
    """Spark starts a process on the driver before and after every batch."""
    code = (
        "import sys, pyspark_millstream.lake.source; from pyspark_millstream.lake.store import open_lake; open_lake('t');"
        "print([name for name in ('pyarrow.compute', 'pyarrow.parquet') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(CONNECTOR)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "[]\n", run.stderr


def test_its_version_is_that_of_the_broker() -> None:
    assert VERSION == BROKER_VERSION


def test_a_source_travels_to_the_tasks() -> None:
    source = DefaultSource({"uri": "http://h", "queues": "a"})
    assert pickle.loads(pickle.dumps(source)).options == source.options


def test_an_error_travels_with_its_sentence() -> None:
    error = ReaderRefused("no", "Try: yes", 404, {"end": 5})
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.status, back.facts) == ("no. Try: yes", 404, {"end": 5})


def test_only_in_a_process_of_sparks_the_traceback_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE_SWITCH, raising=False)
    monkeypatch.delenv(WORKER_MARK, raising=False)
    MillstreamSparkError("wrong")
    assert HIDE_SWITCH not in os.environ
    monkeypatch.setenv(WORKER_MARK, "PYTHON_WORKER")
    monkeypatch.setenv(HIDE_SWITCH, "")  # so that it is put back after the test
    MillstreamSparkError("wrong")
    assert os.environ[HIDE_SWITCH] == "1"
