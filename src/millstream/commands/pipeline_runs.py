"""Pipelines as processes of their own: started, found again by their files, watched and stopped.

Each run has a folder: `run.json` says which process it is, `status.jsonl` how far it came, `log.txt` what Spark said.
A process number alone proves nothing after a while, so the moment of its birth is kept beside it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from millstream.commands.outcome import CommandFailed, ExitCode

PACKAGE: Final = "pyspark_millstream"  # a distribution of its own: it is started by name, never imported
RUNNER: Final = f"{PACKAGE}.pipelines.run"
CATALOG: Final = f"{PACKAGE}.pipelines.catalog"
PROJECT: Final = f"{PACKAGE}.pipelines.project"
POLL_S: Final = 0.1
STATUS_TAIL_BYTES: Final = 65_536
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
SECRET_NAMES: Final = ("password", "token")


@dataclass(frozen=True)
class Run:
    """One run of a pipeline, as its folder tells of it."""

    name: str
    pipeline: str
    pid: int
    birth: str
    started: float
    settings: Mapping[str, str]
    folder: str

    @property
    def status_file(self) -> Path:
        return Path(self.folder) / "status.jsonl"

    @property
    def log_file(self) -> Path:
        return Path(self.folder) / "log.txt"

    @property
    def is_running(self) -> bool:
        return bool(self.birth) and birth_of(self.pid) == self.birth

    def last_status(self) -> dict[str, object]:
        """The newest figures, and the newest state; one that died has nobody to write its end."""
        status: dict[str, object] = {"state": "starting"}
        for line in status_lines(self.status_file):
            status |= line
        if status["state"] in ("starting", "running") and not self.is_running:
            status["state"] = "died"
        return status

    def described(self) -> dict[str, object]:
        return {
            "name": self.name,
            "pipeline": self.pipeline,
            "pid": self.pid,
            **self.last_status(),
            "log": str(self.log_file),
        }


def default_folder() -> Path:
    """Where the folders of all runs are: they outlive a login and a restart."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "millstream" / "pipelines"


def need_spark(package: str = PACKAGE) -> None:
    """What a pipeline runs on is no part of the broker: say what is missing, and how to get it."""
    if importlib.util.find_spec(package) is None:
        raise CommandFailed(
            ExitCode.FAILED,
            "Pipelines run on Spark, and millstream-spark is not installed.",
            "pip install millstream-spark",
        )
    if importlib.util.find_spec("pyspark") is None:
        raise CommandFailed(
            ExitCode.FAILED,
            "Pipelines run on Spark, and PySpark is not installed.",
            "pip install 'pyspark>=4.3'",
        )


def need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").is_file()):
        raise CommandFailed(
            ExitCode.FAILED,
            "Spark needs Java 17 or newer, and there is none.",
            "sudo apt-get install openjdk-17-jre-headless",
        )


def call(module: str, *arguments: str) -> object:
    """The JSON that a module of millstream-spark prints."""
    need_spark()
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode:
        raise CommandFailed(ExitCode.USAGE, sentence_from(done.stderr), "millstream pipeline list")
    return json.loads(done.stdout)


def start(
    runs: Path,
    name: str,
    pipeline: str,
    settings: Mapping[str, str],
    options: Sequence[str],
) -> tuple[Run, subprocess.Popen[bytes]]:
    """A process of its own session: a Ctrl-C for the command is none for Spark."""
    need_spark()
    need_java()
    check_name(name)
    known = find_run(runs, name)
    if known is not None and known.is_running:
        raise CommandFailed(
            ExitCode.FAILED, f"{name} is running already.", f"millstream pipeline stop {name}"
        )
    folder = (runs / name).absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "status.jsonl").unlink(missing_ok=True)
    places = ("--status", str(folder / "status.jsonl"), "--run-folder", str(folder))
    command = [sys.executable, "-m", RUNNER, pipeline, "--settings-stdin", *places, *options]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    assert process.stdin is not None
    with process.stdin:  # not on the command line, where everybody could read a password
        process.stdin.write(json.dumps(dict(settings)).encode())
    shown = {key: masked(key, value) for key, value in settings.items()}
    run = Run(name, pipeline, process.pid, birth_of(process.pid), time.time(), shown, str(folder))
    draft = folder / ".run.json"
    draft.write_text(json.dumps(asdict(run)), encoding="utf-8")
    draft.replace(folder / "run.json")
    return run, process


def check_name(name: str) -> None:
    if not NAME_PATTERN.fullmatch(name):
        raise CommandFailed(
            ExitCode.USAGE,
            f"{name!r} cannot be the name of a run: it takes letters, digits, and _ . - between them.",
            "millstream pipeline run --help",
        )


def all_runs(runs: Path) -> list[Run]:
    folders = sorted(runs.iterdir()) if runs.is_dir() else []
    return [run for folder in folders if (run := find_run(runs, folder.name)) is not None]


def find_run(runs: Path, name: str) -> Run | None:
    try:
        return Run(**json.loads((runs / name / "run.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None  # no run, or a file that is none of ours


def get_run(runs: Path, name: str) -> Run:
    check_name(name)
    run = find_run(runs, name)
    if run is None:
        raise CommandFailed(
            ExitCode.FAILED, f"No pipeline of the name {name} was started.", "millstream pipeline status"
        )
    return run


def ask_to_stop(run: Run) -> None:
    if run.is_running:
        os.kill(run.pid, signal.SIGTERM)


def kill(run: Run) -> None:
    """With the Java process it started."""
    if run.is_running:
        os.killpg(run.pid, signal.SIGKILL)


def wait_end(run: Run, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while run.is_running and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return not run.is_running


def follow(run: Run, process: subprocess.Popen[bytes]) -> Iterator[dict[str, object]]:
    """Each line of the status as it comes, until the process has ended."""
    taken = 0
    while True:
        is_over = process.poll() is not None
        text = run.status_file.read_bytes() if run.status_file.exists() else b""
        taken = 0 if len(text) < taken else taken  # it began anew
        whole, _, _ = text[taken:].rpartition(b"\n")
        taken += len(whole) + 1 if whole else 0
        yield from (json.loads(line) for line in whole.splitlines())
        if is_over:
            return
        time.sleep(POLL_S)


def status_lines(file: Path) -> list[dict[str, object]]:
    """The last whole lines of a status file; none if there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - STATUS_TAIL_BYTES))
            text = opened.read()
    except OSError:
        return []
    lines = []
    for line in text.split(b"\n"):
        try:
            parsed = json.loads(line)
        except ValueError:
            continue  # cut at the start of the tail, or being written
        if isinstance(parsed, dict):
            lines.append(parsed)
    return lines


def birth_of(pid: int) -> str:
    """When a process began, in the kernel's own count; empty if there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # a name may hold spaces and parentheses
    return "" if fields[0] == "Z" else fields[19]


def masked(name: str, value: str) -> str:
    if name.lower() in SECRET_NAMES:
        return "***"
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", value)


def sentence_from(text: str) -> str:
    """What a module said on standard error before it ended."""
    lines = (
        [line for line in text.splitlines() if line.startswith("error: ")]
        or text.splitlines()
        or ["It said nothing."]
    )
    return lines[-1].removeprefix("error: ")
