"""The examples run as their first lines say, from an empty folder, and leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import millstream

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SOURCE = str(Path(millstream.__file__).resolve().parents[1])  # of the build under test
TIMEOUT_S = 60.0


def run(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_program_can_embed_a_broker(tmp_path: Path) -> None:
    done = run(tmp_path, "embed.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "plant/hall1/temperature 21.5\n", "")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_shows_every_reading_that_was_published(tmp_path: Path) -> None:
    done = run(tmp_path, "demo.py", "--seconds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout, "without a terminal there is nothing to paint"
    totals = re.search(r"^(\d+) readings published, (\d+) received$", done.stdout, re.MULTILINE)
    assert totals is not None
    assert int(totals[1]) == int(totals[2]) > 0
    for topic in ("plant/hall-1/temperature", "plant/hall-1/humidity", "plant/pump-3/pressure"):
        assert topic in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_logs_no_error(tmp_path: Path) -> None:
    assert run(tmp_path, "demo.py", "--seconds", "0.5").stderr == ""


@pytest.mark.parametrize("name", ["embed.py", "demo.py"])
def test_an_example_says_how_to_run_it(name: str) -> None:
    assert "Run it with: " in (EXAMPLES / name).read_text(encoding="utf-8")
