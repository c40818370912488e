"""The certificates that README and docs/security.md make are those of servers and clients, not of authorities."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^openssl (?:req|x509) (?:.*\\\n)*.*$", re.M)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def run(folder: Path, command: str) -> str:
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    ("page", "authority", "certificates"),
    [
        ("README.md", "server.crt", {"server.crt": "sslserver"}),
        ("docs/security.md", "ca.crt", {"server.crt": "sslserver", "sensor-7.crt": "sslclient"}),
    ],
)
def test_documented_certificates_are_leaves_for_their_purpose(
    page: str, authority: str, certificates: dict[str, str], tmp_path: Path
) -> None:
    commands = COMMAND.findall((ROOT / page).read_text(encoding="utf-8"))
    assert commands, "the page shows how to make one"
    for command in commands:
        run(tmp_path, command)
    for certificate, purpose in certificates.items():
        said = run(tmp_path, f"openssl verify -purpose {purpose} -CAfile {authority} {certificate}")
        assert said == f"{certificate}: OK\n"
        shown = run(tmp_path, f"openssl x509 -in {certificate} -noout -text")
        assert "Version: 3 " in shown
        assert "CA:FALSE" in shown
        assert "CA:TRUE" not in shown
