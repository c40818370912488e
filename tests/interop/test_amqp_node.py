"""amqplib in Node.js; what it claims stands in `amqplib_suite.mjs`, one process per claim."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest_plugins = ["amqp_broker"]

FOLDER = Path(__file__).parent
SUITE = FOLDER / "amqplib_suite.mjs"
NODE = shutil.which("node")
TIMEOUT_S = 30.0
CLAIMS = re.findall(r"^  async (\w+)\(", SUITE.read_text(encoding="utf-8"), re.MULTILINE)


def find_missing() -> str | None:
    """What has to be typed before amqplib can run, or None."""
    if NODE is None:
        return "Node.js is not installed"
    if not (FOLDER / "node_modules" / "amqplib").is_dir():
        return "amqplib is not installed; type: npm install --prefix tests/interop"
    return None


@pytest.mark.skipif(find_missing() is not None, reason=find_missing() or "")
@pytest.mark.parametrize("claim", CLAIMS)
def test_with_amqplib(amqp_url: str, claim: str) -> None:
    assert NODE is not None
    ended = subprocess.run(
        [NODE, str(SUITE), amqp_url, claim], cwd=FOLDER, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stderr
