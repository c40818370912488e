"""`millstream pipeline` without Spark: names, files of runs, and what is said when something is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.commands import pipeline_runs
from millstream.commands.outcome import CommandFailed
from millstream.commands.pipeline import in_words
from millstream.commands.pipeline_runs import Run, birth_of, follow, masked
from millstream.commands.tree import app

WAITS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(1, flush=True); signal.pause()"


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", *arguments])
    return result.exit_code, result.stdout, result.stderr


def make_run(folder: Path, name: str, pid: int, birth: str) -> Run:
    run = Run(name, "rollup", pid, birth, 0.0, {}, str(folder / name))
    (folder / name).mkdir()
    (folder / name / "run.json").write_text(json.dumps(run.__dict__))
    return run


def write_status(run: Run, *lines: dict[str, object]) -> None:
    run.status_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_pipeline_that_died_is_not_called_running(tmp_path: Path) -> None:
    run = make_run(tmp_path, "rollup", 1, "not the birth of process 1")
    write_status(run, {"state": "running", "rows": 5, "rate": 2.0, "lag": 1, "end_in_s": 61})
    code, out, _ = invoke("status", "--run-dir", str(tmp_path), "-o", "json")
    (row,) = json.loads(out)
    assert code == 0
    assert (row["state"], row["rows"], row["lag"]) == ("died", 5, 1)
    assert "0:01:01" in invoke("status", "rollup", "--run-dir", str(tmp_path))[1]


def test_a_running_pipeline_is_stopped_and_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        run = make_run(tmp_path, "one", process.pid, birth_of(process.pid))
        assert run.is_running
        assert run.last_status()["state"] == "starting"
        code, out, _ = invoke("stop", "--all", "--run-dir", str(tmp_path))
        assert (code, out) == (0, "one is stopped.\n")
        assert not run.is_running
    assert invoke("stop", "one", "--run-dir", str(tmp_path))[1] == "one was not running.\n"


def test_a_process_that_took_the_number_of_an_ended_pipeline_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE) as process:
        make_run(tmp_path, "one", process.pid, "another birth")
        assert invoke("stop", "one", "--run-dir", str(tmp_path))[1] == "one was not running.\n"
        assert process.poll() is None
        process.kill()


def test_a_run_that_never_was_is_an_error_with_the_next_command(tmp_path: Path) -> None:
    code, _, err = invoke("stop", "none", "--run-dir", str(tmp_path))
    assert code == 1
    assert err == "error: No pipeline of the name none was started.\nnext: millstream pipeline status\n"
    assert invoke("stop", "../none", "--run-dir", str(tmp_path))[0] == 2
    assert invoke("stop", "--run-dir", str(tmp_path))[0] == 2
    assert invoke("status", "--run-dir", str(tmp_path / "not-there"))[0] == 0


def test_without_java_the_next_command_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(CommandFailed, match="needs Java 17") as failed:
        pipeline_runs.need_java()
    assert failed.value.next_step == "sudo apt-get install openjdk-17-jre-headless"


def test_without_the_connector_the_next_command_installs_it() -> None:
    with pytest.raises(CommandFailed, match="millstream-spark is not installed") as failed:
        pipeline_runs.need_spark("a_package_that_nobody_has")
    assert failed.value.next_step == "pip install millstream-spark"


def test_a_setting_without_a_value_is_refused_before_anything_starts(tmp_path: Path) -> None:
    code, _, err = invoke("run", "rollup", "--set", "queues", "--run-dir", str(tmp_path))
    assert code == 2
    assert err.startswith("error: queues: write NAME=VALUE.\n")
    assert list(tmp_path.iterdir()) == []


def test_passwords_are_not_kept_in_the_file_of_a_run() -> None:
    assert masked("uri", "http://ann:secret@host:8090") == "http://ann:***@host:8090"
    assert masked("uri", "http://host:8090") == "http://host:8090"
    assert masked("password", "secret") == "***"


def test_the_status_is_followed_to_its_last_line(tmp_path: Path) -> None:
    run = make_run(tmp_path, "one", 1, "")
    write_status(run, {"state": "starting"}, {"state": "running", "rows": 1}, {"state": "done"})
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert [line["state"] for line in follow(run, process)] == ["starting", "running", "done"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "-"), (0.0, "now"), (61.2, "0:01:01"), (90_000, "1 day, 1:00:00")]
)
def test_an_estimated_end_is_told_in_words(seconds: float | None, words: str) -> None:
    assert in_words(seconds) == words
